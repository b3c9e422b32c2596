-- Discard: a dead letter is dropped for good.
-- KEYS: dead_letters, dead_bodies, dead_bytes.
-- ARGV: now, id, time of death that the caller saw (µs).
-- Returns: 1 = dropped, 0 = it is not a dead letter of that time.
-- Cost: O(log n).
local now, id, died = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3])

local score = redis.call('ZSCORE', dead_letters, id)
if not score or tonumber(score) ~= died then return 0 end
-- Type checks (see the prelude).
local size = redis.call('HSTRLEN', dead_bodies, id)
redis.call('GET', dead_bytes)
remove_dead_letters({id}, size)
return 1
