-- Resume: workers take this queue's jobs again, from now on.
-- KEYS: the named ones; ready and queue_bell are those of the queue. ARGV: now.
-- Returns: 1 = resumed, 0 = it was not paused.
-- Cost: O(1).
local paused, ready, queue_bell, bell = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now = now_us(ARGV[1])

redis.call('ZCARD', ready)
local resumed = redis.call('HDEL', paused, ready)
if resumed == 1 and redis.call('ZCARD', ready) > 0 then ring(queue_bell); ring(bell) end
return resumed
