-- Enqueue_one: a single job without a unique key is stored in `scheduled` or `ready`. It does what `enqueue` does for
--   that job, in half the time. Safe to repeat: a job whose id exists (also as a dead letter) is skipped, and so is one
--   that `cancel` withdrew before it arrived.
-- KEYS: jobs, dead_bodies, queues, queues_version, next_due, notify, next_promotion, notify_dispatcher, withdrawn,
--   scheduled, ready, queue_notify.
-- ARGV: now, head start (ms), member, due time ('' = at once, '+n' = n µs from now, n = µs since the epoch), body.
-- Returns: now (µs).
-- Cost: O(log n).
local now, head_start, member, due, body = now_us(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local id = string.sub(member, 1, 12)
if redis.call('ZSCORE', withdrawn, id) or redis.call('HEXISTS', dead_bodies, id) == 1 then return {now} end
-- Not HSETNX, as in `enqueue`.
if redis.call('HEXISTS', jobs, id) == 1 then return {now} end

-- These reads are the type checks (see the prelude). The waiting place needs none: to enter it is the first write.
due = due ~= '' and due_time(due, now)
if due and due > now then
  promotion_at = redis.call('GET', next_promotion); redis.call('ZCARD', next_due)
  redis.call('ZADD', scheduled, due, member)
  redis.call('HSET', jobs, id, body)
  announce_scheduled(scheduled, due)
else
  local listed = is_listed(now, ready)
  redis.call('ZADD', ready, rank_of(member, now, tonumber(head_start)), member)
  redis.call('HSET', jobs, id, body)
  announce_ready(now, ready, queue_notify, listed)
end
return {now}
