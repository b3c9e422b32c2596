-- Quiet: a worker stops or resumes claiming jobs; it is notified, and reads this with its next heartbeat or report.
-- KEYS: workers, quiet_workers, worker_notify; worker_notify is its own notification.
-- ARGV: now, the worker's code (8 bytes), who asks ('' = it may claim again).
-- Returns: 1 = changed, 0 = there is no such worker, or it is in that state already.
-- Cost: O(log n).
local now, code, by = now_us(ARGV[1]), ARGV[2], ARGV[3]

local known = redis.call('ZSCORE', workers, code)
-- Type checks, then freeing first (see the prelude).
redis.call('HLEN', quiet_workers)
redis.call('ZREM', workers, '')
local changed = 0
if by == '' then
  changed = redis.call('HDEL', quiet_workers, code)
elseif known then
  changed = redis.call('HSETNX', quiet_workers, code, by)
end
if changed == 1 then
  push_notification(worker_notify)
  expire(worker_notify, 60000)
end
return changed
