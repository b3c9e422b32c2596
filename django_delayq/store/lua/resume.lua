-- Resume: workers claim jobs of this queue again, from now on.
-- KEYS: paused, pause_ends, ready, recovered, queue_notify, notify; ready, recovered and queue_notify are those of the
--   queue.
-- ARGV: now.
-- Returns: 1 = resumed, 0 = it was not paused.
-- Cost: O(log n).
local now = now_us(ARGV[1])

-- Type checks (see the prelude).
local waiting = redis.call('ZCARD', ready) + redis.call('ZCARD', recovered)
redis.call('ZCARD', pause_ends)
local resumed = redis.call('HDEL', paused, ready)
redis.call('ZREM', pause_ends, queue_of(ready))
if resumed == 1 and waiting > 0 then notify_workers(queue_notify) end
return resumed
