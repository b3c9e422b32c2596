-- Enqueue_one: a single job without a unique key is stored in `scheduled` or `ready`. It does what `enqueue` does for
--   that job, in half the time. Safe to repeat: a job whose id exists (also as a dead letter) is skipped, and so is one
--   that `cancel` withdrew before it arrived.
-- KEYS: jobs, dead_bodies, queues, queues_version, next_due, notify, next_promotion, notify_dispatcher, withdrawn,
--   scheduled, ready, queue_notify.
-- ARGV: now, head start (ms), member, due time ('' = at once, '+n' = n µs from now, n = µs since the epoch), body.
-- Returns: now (µs).
-- Cost: O(log n).
local now, head_start, member, due, body = now_us(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
local id = string.sub(member, 1, 12)
if redis.call('ZSCORE', withdrawn, id) or redis.call('HEXISTS', dead_bodies, id) == 1 then return {now} end
due = due_time(due, now)
if due and due <= now then due = nil end

-- Type checks (see the prelude).
if due then check_scheduled(scheduled) else check_ready(ready) end

-- Not HSETNX, as in `enqueue`.
if redis.call('HEXISTS', jobs, id) == 0 then
  redis.call('HSET', jobs, id, body)
  if due then
    put_scheduled(scheduled, {due, member})
  else
    put_ready(now, ready, queue_notify, {rank_of(member, now, head_start), member})
  end
end
return {now}
