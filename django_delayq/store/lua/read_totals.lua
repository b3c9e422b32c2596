-- Read_totals: what was counted since the shard began, per dimension, and how many jobs were enqueued. Reads only.
-- KEYS: metrics, totals, enqueued.
-- ARGV: now, the dimension after which to begin ('' = at the first), how many to read.
-- Returns: now (µs); the dimension after which the next call begins ('' = there are no further ones); the fields of
--   `enqueued`, none unless it is the first call; then per dimension its name, and its total with the lines of its series
--   that the total lacks, each `minute row`.
-- Cost: O(n log n) for n dimensions, at most 1,000, and about 15 µs for each that is read.
local now, after, most = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3])

-- The part of a series above the line of a minute; all of it if it has none.
local function above(series, minute)
  local at = 1
  while at <= #series and string.match(series, '^%d+', at) ~= minute do
    at = (string.find(series, '\n', at, true) or #series) + 1
  end
  return string.sub(series, 1, at - 1)
end

local names = {}
for _, name in ipairs(redis.call('HKEYS', totals)) do
  if name > after then names[#names + 1] = name end
end
table.sort(names)
local found, read = {}, math.min(most, #names)
for at = 1, read do
  local known = redis.call('HGET', totals, names[at])
  local lines = above(redis.call('HGET', metrics, names[at]) or '', string.match(known, '^%d+'))
  found[#found + 1], found[#found + 2] = names[at], known .. '\n' .. lines
end
return {
  now, read < #names and names[read] or '', after == '' and redis.call('HGETALL', enqueued) or {}, found,
}
