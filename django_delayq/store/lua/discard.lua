-- Discard: a dead letter is dropped for good.
-- KEYS: dead_letters, dead_bodies, dead_bytes.
-- ARGV: now, id, time of death the caller saw (µs).
-- Returns: 1 = dropped, 0 = not dead since then.
-- Cost: O(log n).
local now, id, died = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3])

local score = redis.call('ZSCORE', dead_letters, id)
if not score or tonumber(score) ~= died then return 0 end
-- Read before the first write: a key of another type (written by hand) refuses the step, or would end it half-done.
local size = redis.call('HSTRLEN', dead_bodies, id)
redis.call('GET', dead_bytes)
redis.call('ZREM', dead_letters, id)
redis.call('HDEL', dead_bodies, id)
add_dead_bytes(dead_bytes, -size)
return 1
