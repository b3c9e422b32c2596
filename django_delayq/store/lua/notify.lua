-- Notify: the notification of workers of all queues or, where queues are named, that of each with ready jobs.
-- KEYS: notify; then ready, bell and recovered of each queue.
-- ARGV: now.
-- Returns: 1.
-- Cost: O(1) a queue.
local now = now_us(ARGV[1])

if #KEYS == FIXED then push_notification(notify) end
for base = FIXED, #KEYS - 3, 3 do
  if redis.call('EXISTS', KEYS[base + 1], KEYS[base + 3]) > 0 then push_notification(KEYS[base + 2]) end
end
return 1
