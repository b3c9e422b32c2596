-- Reschedule: a job that waits gets another due time; one that is due at once goes to `ready`. One that is put off has the
--   head start of delayed jobs from then on: it gets another member, which its body and its key's holder follow.
-- KEYS: scheduled, ready, recovered, queue_notify, claim_records, jobs, job_extras, unique_keys, queues,
--   queues_version, next_due, notify, next_promotion, notify_dispatcher; schedule, ready, recovered and the bell are
--   those of the queue the caller read in the job's body.
-- ARGV: now, member, due ('+n' = n µs from now, n = µs since the epoch), head start (ms), then '' thrice,
--   or for a job that was not delayed before: the body the caller read, and the member and body to come in its place.
-- Returns: RESCHEDULED and the new due time (µs); LATE, GONE or ELSEWHERE (as cancel, or its body is another by now) and 0.
-- Cost: O(log n).
local now, member, due, head_start = now_us(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local seen, new_member, new_body = ARGV[5], ARGV[6], ARGV[7]

local shard = {queues = queues, queues_version = queues_version, next_due = next_due, notify = notify, next_promotion = next_promotion, notify_dispatcher = notify_dispatcher}
local id = string.sub(member, 1, 12)
if string.byte(due) == 43 then due = now + tonumber(string.sub(due, 2)) else due = math.max(now, tonumber(due)) end
due = math.min(due, LATEST)
local is_changed = due > now and seen ~= ''
if is_changed and redis.call('HGET', jobs, id) ~= seen then return {'ELSEWHERE', 0} end
-- Read before the first write: a key of another type (written by hand) refuses the step, or would end it half-done.
check_scheduled(shard, scheduled); check_ready(shard, ready)
redis.call('HLEN', job_extras); redis.call('HLEN', unique_keys)
local place = waiting_place(member, scheduled, ready, recovered)
if not place then
  if redis.call('HEXISTS', claim_records, id) == 1 then return {'LATE', 0} end
  return {redis.call('HEXISTS', jobs, id) == 1 and 'ELSEWHERE' or 'GONE', 0}
end
redis.call('ZREM', place, member)
if place == scheduled then index_due(next_due, scheduled) end
if is_changed then
  redis.call('HSET', jobs, id, new_body)
  local digest = has(member, NOTED) and string.sub(redis.call('HGET', job_extras, id) or '', 2, 17)
  if digest and redis.call('HGET', unique_keys, digest) == member then redis.call('HSET', unique_keys, digest, new_member) end
  member = new_member
end
if due > now then
  put_scheduled(shard, scheduled, {due, member})
else
  put_ready(shard, now, ready, queue_notify, {rank_of(member, now, head_start), member})
end
return {'RESCHEDULED', due}
