-- Cancel: a waiting job is removed with all its records, so it never starts. Safe to repeat with the same token.
-- KEYS: scheduled, ready, recovered, claim_records, jobs, attempts, job_extras, unique_keys, results, cancelled,
--   withdrawn, next_due; scheduled, ready and recovered are those of the queue that the caller read in the job's body,
--   results is that of the job.
-- ARGV: now, member (or the bare id of a job without a body), JSON of the result to keep ('' = none), for how long
--   (ms), the caller's token ('' = none), 1 = an enqueue of the job may still arrive: it is refused from now on.
-- Returns: CANCELLED (also if this token cancelled it before), LATE (it is running), GONE (no such job waits),
--   ELSEWHERE (it waits in another queue: read its body again).
-- Cost: O(log n).
local now, member, ending, ttl, token, may_arrive = now_us(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6] == '1'

local id = string.sub(member, 1, 12)
-- These records have no other end. A caller that repeats a call does so before 10,000 others were recorded.
local function record(log, entry)
  redis.call('ZADD', log, now, entry)
  redis.call('ZREMRANGEBYRANK', log, 0, -10001)
end

-- Type checks (see the prelude).
check_hashes(jobs, attempts, job_extras, unique_keys)
check_zsets(next_due, cancelled, withdrawn)
local place = waiting_place(member, scheduled, ready, recovered)
if place then
  redis.call('ZREM', place, member)
  index_due(scheduled)
  if ending ~= '' then keep_result(results, id, ending, ttl) end
  delete_extras(member)
  redis.call('HDEL', jobs, id)
  redis.call('HDEL', attempts, id)
  if token ~= '' then record(cancelled, id .. token) end
  if may_arrive then record(withdrawn, id) end
  return 'CANCELLED'
end
local reason = why_not_waiting(id)
if reason ~= 'GONE' then return reason end
if may_arrive then record(withdrawn, id) end
return token ~= '' and redis.call('ZSCORE', cancelled, id .. token) and 'CANCELLED' or 'GONE'
