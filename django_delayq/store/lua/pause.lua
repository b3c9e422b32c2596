-- Pause: no worker takes this queue's jobs any more; what it holds already runs on. Jobs still become ready.
-- KEYS: workers, paused, ready; ready is that of the queue.
-- ARGV: now, who pauses it.
-- Returns: 1 = paused, 0 = it was already, and stays its earlier pauser's.
-- Cost: O(1).
local now, by = now_us(ARGV[1]), ARGV[2]

redis.call('ZCARD', workers); redis.call('HLEN', paused)
-- A write that frees comes first: with its memory full, Redis refuses a script whose first write grows.
redis.call('ZREM', workers, '')
return redis.call('HSETNX', paused, ready, string.format('%.0f ', now) .. by)
