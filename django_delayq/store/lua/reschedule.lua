-- Reschedule: a waiting job gets another due time; if that has come, it becomes ready. A job with a later time gets the
--   head start of delayed jobs: its member changes, and its body and the holder of its key follow.
-- KEYS: scheduled, ready, recovered, queue_notify, claim_records, jobs, job_extras, unique_keys, queues,
--   queues_version, next_due, notify, next_promotion, notify_dispatcher; scheduled, ready, recovered and queue_notify
--   are those of the queue that the caller read in the job's body.
-- ARGV: now, member, due time ('+n' = n µs from now, n = µs since the epoch), head start (ms), then three times '', or
--   for a job that was not delayed before, or that expires: the body that the caller read, and the member and body that
--   replace it. Another member replaces it only if the new time is later than now.
-- Returns: RESCHEDULED and the new due time (µs); or 0 with LATE (it is running), GONE (no such job waits) or ELSEWHERE
--   (it waits in another queue, or its body changed: read its body again).
-- Cost: O(log n).
local now, member, given, head_start = now_us(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local seen, new_member, new_body = ARGV[5], ARGV[6], ARGV[7]

local id, due = string.sub(member, 1, 12), math.max(now, due_time(given, now))
local is_changed = seen ~= '' and (due > now or new_member == member)
if is_changed and redis.call('HGET', jobs, id) ~= seen then return {'ELSEWHERE', 0} end
-- Type checks (see the prelude).
check_scheduled(scheduled); check_ready(ready); check_hashes(job_extras, unique_keys)
local place = waiting_place(member, scheduled, ready, recovered)
if not place then return {why_not_waiting(id), 0} end
redis.call('ZREM', place, member)
if place == scheduled then index_due(scheduled) end
if is_changed then
  redis.call('HSET', jobs, id, new_body)
  local digest = has(member, HAS_EXTRAS) and string.sub(redis.call('HGET', job_extras, id) or '', 2, 17)
  if digest and redis.call('HGET', unique_keys, digest) == member then
    redis.call('HSET', unique_keys, digest, new_member)
  end
  member = new_member
end
if due > now then
  put_scheduled(scheduled, {due, member})
else
  put_ready(now, ready, queue_notify, {rank_of(member, now, head_start), member})
end
return {'RESCHEDULED', due}
