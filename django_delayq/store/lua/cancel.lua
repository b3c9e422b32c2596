-- Cancel: a job that waits is removed with all that belongs to it, and starts no more. Repeatable by its token.
-- KEYS: scheduled, ready, recovered, claim_records, jobs, attempts, job_extras, unique_keys, results, cancelled,
--   withdrawn, next_due; schedule, ready and recovered are those of the queue the caller read in the job's body,
--   results the job's.
-- ARGV: now, member (or the bare id of a job without a body), ending to keep as its result ('' = it keeps none), for how
--   long (ms), the caller's token ('' = none), 1 = an enqueue of it may still be on its way: it is refused from now on.
-- Returns: CANCELLED (also by this token before), LATE (it is running), GONE (no such job waits), ELSEWHERE (it waits in
--   another queue: read again).
-- Cost: O(log n).
local now, member, ending, ttl, token, on_its_way = now_us(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6] == '1'

local id = string.sub(member, 1, 12)
-- Bounded by count, since nothing else ends a record: so many calls are cancelled before an answer is asked for again.
local function note(place, entry)
  redis.call('ZADD', place, now, entry)
  redis.call('ZREMRANGEBYRANK', place, 0, -10001)
end

-- Read before the first write: a key of another type (written by hand) refuses the step, or would end it half-done.
redis.call('HLEN', jobs); redis.call('HLEN', attempts); redis.call('HLEN', job_extras); redis.call('HLEN', unique_keys)
redis.call('ZCARD', next_due); redis.call('ZCARD', cancelled); redis.call('ZCARD', withdrawn)
local place = waiting_place(member, scheduled, ready, recovered)
if place then
  redis.call('ZREM', place, member)
  index_due(next_due, scheduled)
  if ending ~= '' then
    keep_result(results, redis.call('HGET', attempts, id) or '', ending, redis.call('HGET', jobs, id) or '', ttl)
  end
  let_go(job_extras, unique_keys, member)
  redis.call('HDEL', jobs, id)
  redis.call('HDEL', attempts, id)
  if token ~= '' then note(cancelled, id .. token) end
  if on_its_way then note(withdrawn, id) end
  return 'CANCELLED'
end
if redis.call('HEXISTS', claim_records, id) == 1 then return 'LATE' end
if redis.call('HEXISTS', jobs, id) == 1 then return 'ELSEWHERE' end
if on_its_way then note(withdrawn, id) end
return token ~= '' and redis.call('ZSCORE', cancelled, id .. token) and 'CANCELLED' or 'GONE'
