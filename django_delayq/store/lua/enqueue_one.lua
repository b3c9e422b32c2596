-- Enqueue_one: one job without a unique key is stored in `scheduled` or `ready`, as `enqueue` stores it, in half the
--   time. Safe to repeat: a job whose id exists (also as a dead letter) is skipped, and so is one that `cancel` withdrew
--   before it arrived.
-- KEYS: jobs, dead_bodies, enqueued, queues, queues_version, next_due, notify, next_promotion, notify_dispatcher, withdrawn,
--   scheduled, ready, queue_notify.
-- ARGV: now, head start (ms), member, due time ('' = at once, '+n' = n µs from now, n = µs since the epoch), body.
-- Returns: now (µs).
-- Replicas: a producer's call waits for those of WAIT_REPLICAS.
-- Cost: O(log n).
local now, head_start, member, due, body = now_us(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local id = string.sub(member, 1, 12)
if redis.call('ZSCORE', withdrawn, id) or redis.call('HEXISTS', dead_bodies, id) == 1 then return {now} end
-- Not HSETNX: see `enqueue`.
if redis.call('HEXISTS', jobs, id) == 1 then return {now} end

-- These reads are the type checks (see the prelude). The first write checks the type of its own key.
due = due ~= '' and due_time(due, now)
if due and due > now then
  check_next_due()
  redis.call('ZADD', scheduled, due, member)
  redis.call('HSET', jobs, id, body)
  index_and_notify(scheduled, due)
else
  local listed = listed_recently(now, ready)
  redis.call('ZADD', ready, rank_of(member, now, tonumber(head_start)), member)
  redis.call('HSET', jobs, id, body)
  list_and_notify(now, ready, queue_notify, listed)
end
count_enqueued(names_of(body), 1)
return {now}
