-- Find_error_groups: how many dead letters the error groups have; or, of some groups, also when. Reads only.
-- KEYS: error_groups, dead_by_group.
-- ARGV: now, start of the first bar and width of a bar (µs), number of bars (≤ 48), then groups (≤ 250; none = all that
--   have dead letters, without times and bars).
-- Returns: now, then per group: group, its record ('' = none), number of dead letters; of named groups also the first and
--   last time of death (µs; '' = it has none), and the numbers of dead letters within each bar, joined by spaces.
-- Cost: O(log n) a group and bar.
local now, start, width, bars = now_us(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local function before(group, moment)
  return '(' .. group .. struct.pack('>I8', moment)
end

-- The time of death of the first entry of a range.
local function died(found)
  return found[1] and #found[1] >= 20 and struct.unpack('>I8', found[1], 13) or ''
end

local reply, groups, is_named = {now}, {unpack(ARGV, 5)}, #ARGV > 4
if not is_named then groups = redis.call('HKEYS', error_groups) end
for _, group in ipairs(groups) do
  local count, last = count_of_group(group), #reply
  if count > 0 or is_named then
    reply[last + 1], reply[last + 2], reply[last + 3] = group, redis.call('HGET', error_groups, group) or '', count
  end
  if is_named then
    local low, high, counts = '[' .. group, '(' .. group .. string.rep('\255', 9), {}
    reply[last + 4] = died(redis.call('ZRANGE', dead_by_group, low, high, 'BYLEX', 'LIMIT', 0, 1))
    reply[last + 5] = died(redis.call('ZRANGE', dead_by_group, high, low, 'BYLEX', 'REV', 'LIMIT', 0, 1))
    for bar = 1, bars do
      local from, to = start + (bar - 1) * width, start + bar * width
      counts[bar] = redis.call('ZLEXCOUNT', dead_by_group, '[' .. group .. struct.pack('>I8', from), before(group, to))
    end
    reply[last + 6] = table.concat(counts, ' ')
  end
end
return reply
