-- Pause: no worker claims jobs of this queue from now on; running ones continue. Jobs still become ready.
-- KEYS: workers, paused, ready; ready is that of the queue.
-- ARGV: now, who pauses it.
-- Returns: 1 = paused, 0 = it was paused already; the earlier name stays.
-- Cost: O(1).
local now, by = now_us(ARGV[1]), ARGV[2]

-- Type checks, then freeing first (see the prelude).
redis.call('ZCARD', workers); redis.call('HLEN', paused)
redis.call('ZREM', workers, '')
return redis.call('HSETNX', paused, ready, string.format('%.0f ', now) .. by)
