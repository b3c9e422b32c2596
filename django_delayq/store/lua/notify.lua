-- Notify: workers of the named queues are notified of those that have ready jobs; if none is named, workers of all
--   queues are notified.
-- KEYS: notify; then ready, notify, recovered and parked of each queue.
-- ARGV: now.
-- Returns: 1.
-- Cost: O(1) a queue.
local now = now_us(ARGV[1])

if #KEYS == FIXED then push_notification(notify) end
for base = FIXED, #KEYS - 4, 4 do
  if redis.call('EXISTS', KEYS[base + 1], KEYS[base + 3]) > 0 then push_notification(KEYS[base + 2]) end
end
return 1
