-- Cancel: waiting jobs are removed with all their records, so they never start. Safe to repeat with the same token.
-- KEYS: claim_records, jobs, attempts, job_extras, unique_keys, cancelled, withdrawn, next_due, tenant_jobs,
--   turns, tenants, throttles, throttle_ends, limit_jobs, next_let_in, waiting_for, next_promotion, notify_dispatcher,
--   schedules, next_planting;
--   then scheduled, ready, recovered and parked of each queue that the caller read in the jobs' bodies, then results of
--   each job that keeps its result.
-- ARGV: now, number of queues, the caller's token ('' = none), 1 = an enqueue of the jobs may still arrive: it is
--   refused from now on; then per job (1 to 250): number of its queue, member (or the bare id of a job without a body),
--   number of its results key (0 = none), JSON of the result to keep, for how long (ms).
-- Returns: per job CANCELLED (also if this token cancelled it before), LATE (it is running), GONE (no such job waits),
--   ELSEWHERE (it waits in another queue: read its body again).
-- Replicas: a producer's call waits for those of WAIT_REPLICAS.
-- Cost: O(log n) a job.
local now, queue_count, token, may_arrive = now_us(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4] == '1'

-- Nothing will be done for the calls that this job throttled.
local function end_window(id, key)
  if key and redis.call('HGET', throttles, key) == id then
    redis.call('HDEL', throttles, key)
    redis.call('ZREM', throttle_ends, key)
  end
end

local function cancel(base, member, results, ending, ttl)
  local id = string.sub(member, 1, 12)
  local place, score = waiting_place(member, KEYS[base + 1], KEYS[base + 2], KEYS[base + 3], KEYS[base + 4])
  if place then
    leave(place, member, score)
    if results then keep_result(results, id, ending, ttl) end
    end_window(id, throttle_of_extras(end_job(now, member, RUN_CANCELLED)))
    redis.call('HDEL', jobs, id)
    redis.call('HDEL', attempts, id)
    if token ~= '' then keep_record(cancelled, now, id .. token) end
    if may_arrive then keep_record(withdrawn, now, id) end
    return 'CANCELLED'
  end
  local reason = why_not_waiting(id)
  if reason ~= 'GONE' then return reason end
  if may_arrive then keep_record(withdrawn, now, id) end
  return token ~= '' and redis.call('ZSCORE', cancelled, id .. token) and 'CANCELLED' or 'GONE'
end

-- Type checks (see the prelude).
check_hashes(claim_records, jobs, attempts, job_extras, unique_keys, throttles)
check_zsets(next_due, cancelled, withdrawn, throttle_ends); check_tenants(); check_limits(); check_schedules()
for number = FIXED + 1, FIXED + 4 * queue_count do redis.call('ZCARD', KEYS[number]) end
local words = {}
for i = 5, #ARGV, 5 do
  local kept = tonumber(ARGV[i + 2])
  local results = kept > 0 and KEYS[FIXED + 4 * queue_count + kept]
  words[#words + 1] = cancel(FIXED + 4 * (tonumber(ARGV[i]) - 1), ARGV[i + 1], results, ARGV[i + 3], ARGV[i + 4])
end
return words
