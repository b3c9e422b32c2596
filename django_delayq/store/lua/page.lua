-- Page: rows of one place, or of several merged, after a cursor; lowest score first, ties by member. Reads only.
-- KEYS: jobs, dead_bodies, attempts, claim_records, worker_names, leases, dead_letters, waiting_for, dead_by_group; then the
--   places: scheduled or ready, recovered and parked sets of queues, or `leases`, or `dead_letters`; none with groups.
-- ARGV: now, the cursor's score ('' = the start; the end for rows before), the cursor's member ('' = none), rows
--   (≤ 2,000), 1 = the rows before the cursor, bytes of a body to return (0 = read none), bytes of all bodies after which the page
--   ends early, the lowest score ('' = any), the score that all rows are below ('' = any); then the error groups of which the
--   dead letters are the rows (≤ 1,251), each in place of a place.
-- Returns: rank of the first row within these scores, number of rows within them, 1 = more rows follow, then per row:
--   member, number of its place, score, body or dead letter, size of that (bytes), attempts record, claim record or
--   the limit that a parked job waits for, worker's name. Bodies are cut at their end, so a cut one still shows its queue
--   and task.
-- Cost: O(places x (log n + rows)).
local now, score, member, count, before = now_us(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1'
local preview, budget, from, to = tonumber(ARGV[6]), tonumber(ARGV[7]), ARGV[8], ARGV[9]

local step = before and -1 or 1
-- Rows of a place that are read at once.
local batch = math.max(16, math.ceil(2 * count / math.max(1, #KEYS - FIXED, #ARGV - 9)))

-- Lua's `<` follows the locale of the server; Redis compares bytes.
local function is_less(a, b)
  for i = 1, math.min(#a, #b) do
    local x, y = string.byte(a, i), string.byte(b, i)
    if x ~= y then return x < y end
  end
  return #a < #b
end

-- The entries of `dead_by_group` before one.
local function rank_in_groups(entry)
  return redis.call('ZLEXCOUNT', dead_by_group, '-', '(' .. entry)
end

-- The ranks at which the rows of a source with these scores begin, and end.
local function range_of(source)
  local group, place = source.group, source.place
  if group then
    local first, after = from == '' and '' or pack_death(from), to == '' and string.rep('\255', 9) or pack_death(to)
    return rank_in_groups(group .. first), rank_in_groups(group .. after)
  end
  local low = from == '' and 0 or redis.call('ZCOUNT', place, '-inf', '(' .. from)
  return low, to == '' and redis.call('ZCARD', place) or redis.call('ZCOUNT', place, '-inf', '(' .. to)
end

-- The rows of a source before the cursor, and whether the cursor's row is there; if not, its place among ties counts.
local function rows_before(source)
  local place = source.place
  if source.group then
    local entry = source.group .. pack_death(score) .. member
    return rank_in_groups(entry), redis.call('ZSCORE', dead_by_group, entry)
  end
  local found = member ~= '' and redis.call('ZSCORE', place, member)
  if found and tonumber(found) == tonumber(score) then return redis.call('ZRANK', place, member), true end
  local low, high = redis.call('ZCOUNT', place, '-inf', '(' .. score), redis.call('ZCOUNT', place, '-inf', score)
  if member == '' then high = low end
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_less(redis.call('ZRANGE', place, middle, middle)[1], member) then low = middle + 1 else high = middle end
  end
  return low, false
end

local rank, total, sources = 0, 0, {}
for number = 1, #KEYS - FIXED do sources[number] = {place = KEYS[FIXED + number]} end
for at = 10, #ARGV do sources[#sources + 1] = {place = dead_letters, group = ARGV[at]} end
for number, source in ipairs(sources) do
  local low, high = range_of(source)
  local at = before and high - 1 or low
  if score ~= '' then
    local passed, here = rows_before(source)
    if before then at = math.min(high, passed) - 1 else at = math.max(low, passed + (here and 1 or 0)) end
  end
  total = total + math.max(0, high - low)
  rank = rank + math.max(0, (before and at + 1 or at) - low)
  source.number, source.at, source.last, source.buffer, source.next = number, at, before and low or high - 1, {}, 0
end

-- Step to the next row of a place: `entry` becomes that row, or nil.
local function advance(source)
  source.next = source.next + 1
  if source.next > #source.buffer and (source.last - source.at) * step >= 0 then
    local stop = source.at + step * (batch - 1)
    if (source.last - stop) * step < 0 then stop = source.last end
    local key = source.group and dead_by_group or source.place
    local found = redis.call('ZRANGE', key, math.min(source.at, stop), math.max(source.at, stop), 'WITHSCORES')
    source.buffer, source.next, source.at = {}, 1, stop + step
    for i = before and #found - 1 or 1, before and 1 or #found, 2 * step do
      local row, value = found[i], found[i + 1]
      if source.group then row, value = string.sub(row, 21), string.format('%.0f', struct.unpack('>I8', row, 13)) end
      local entry = {member = row, score = value, value = tonumber(value), source = source}
      source.buffer[#source.buffer + 1] = entry
    end
  end
  source.entry = source.buffer[source.next]
end

local function precedes(a, b)
  if a.value ~= b.value then return (a.value < b.value) ~= before end
  return is_less(a.member, b.member) ~= before
end

for _, source in ipairs(sources) do advance(source) end
local reply, rows, spent, best = {0, total, 0}, {}, 0, nil
repeat
  best = nil
  for _, source in ipairs(sources) do
    local entry = source.entry
    if entry and (not best or precedes(entry, best)) then best = entry end
  end
  if best and #rows < count and spent < budget then
    advance(best.source)
    local id, dead = string.sub(best.member, 1, 12), best.source.place == dead_letters
    local stored, cut = preview > 0 and redis.call('HGET', dead and dead_bodies or jobs, id), preview
    if stored and dead and #stored > 22 then
      local record_size, extra_size = struct.unpack('>I4I4', stored)
      cut = cut + 22 + record_size + extra_size
    end
    best.stored, best.size = stored and string.sub(stored, 1, cut), stored and #stored or 0
    if not dead then best.record = redis.call('HGET', attempts, id) end
    if is_parked(best.source.place) then best.claim = redis.call('HGET', waiting_for, id) end
    if best.source.place == leases then
      best.claim = redis.call('HGET', claim_records, id)
      best.worker = redis.call('HGET', worker_names, string.sub(best.member, 15, 22))
    end
    spent = spent + (best.stored and #best.stored or 0) + (best.record and #best.record or 0) + 1
    rows[#rows + 1] = best
  end
until not best or #rows == count or spent >= budget
local more = false
for _, source in ipairs(sources) do more = more or source.entry ~= nil end

reply[1], reply[3] = before and rank - #rows or rank, more and 1 or 0
for i = before and #rows or 1, before and 1 or #rows, step do
  local row, last = rows[i], #reply
  reply[last + 1], reply[last + 2], reply[last + 3] = row.member, row.source.number, row.score
  reply[last + 4], reply[last + 5], reply[last + 6] = row.stored, row.size, row.record or false
  reply[last + 7], reply[last + 8] = row.claim or false, row.worker or false
end
return reply
