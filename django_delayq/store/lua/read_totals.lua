-- Read_totals: what was counted since the shard began, per dimension, and how many jobs were enqueued. Reads only.
-- KEYS: metrics, totals, enqueued.
-- ARGV: now, the dimension after which to begin ('' = at the first), how many series to read.
-- Returns: now (µs); the dimension after which the next call begins ('' = there are no further ones); the fields of
--   `totals`, and those of `enqueued`, both empty unless it is the first call; then per series its dimension, and the row of
--   its newest minute, which `totals` lacks.
-- Cost: O(n log n) for n dimensions, at most 1,000.
local now, after, most = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3])

local MOST_DIMENSIONS = 1000
local names = {}
for _, name in ipairs(redis.call('HKEYS', metrics)) do
  if name > after then names[#names + 1] = name end
end
table.sort(names)
-- A dimension for which `totals` has no room counts nowhere: its numbers would go back with each minute that ends.
local has_room = redis.call('HLEN', totals) < MOST_DIMENSIONS
local rows, read = {}, math.min(most, #names)
for at = 1, read do
  local newest = string.match(redis.call('HGET', metrics, names[at]), '^%d+ ([^\n]*)\n')
  if newest and (has_room or redis.call('HEXISTS', totals, names[at]) == 1) then
    rows[#rows + 1], rows[#rows + 2] = names[at], newest
  end
end
local is_first = after == ''
return {
  now, read < #names and names[read] or '', is_first and redis.call('HGETALL', totals) or {},
  is_first and redis.call('HGETALL', enqueued) or {}, rows,
}
