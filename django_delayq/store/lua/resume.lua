-- Resume: workers take this queue's jobs again, from now on.
-- KEYS: paused, ready, recovered, queue_notify, notify; ready, recovered and queue_notify are those of the queue.
-- ARGV: now.
-- Returns: 1 = resumed, 0 = it was not paused.
-- Cost: O(1).
local now = now_us(ARGV[1])

redis.call('ZCARD', ready); redis.call('ZCARD', recovered)
local resumed = redis.call('HDEL', paused, ready)
if resumed == 1 and redis.call('ZCARD', ready) + redis.call('ZCARD', recovered) > 0 then push_notification(queue_notify); push_notification(notify) end
return resumed
