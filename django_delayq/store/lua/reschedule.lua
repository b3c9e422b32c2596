-- Reschedule: waiting jobs get another due time; if that has come, they become ready. A job with a later time gets the
--   head start of delayed jobs: its member changes, and its body and the holder of its key follow.
-- KEYS: claim_records, jobs, attempts, job_extras, unique_keys, queues, queues_version, next_due, notify, next_promotion,
--   notify_dispatcher, tenant_jobs, turns, tenants, limit_jobs, next_let_in, waiting_for; then scheduled, ready, notify,
--   recovered and parked of each queue that the caller read in the jobs' bodies.
-- ARGV: now, head start (ms), 1 = return the counts of attempts; then per job (1 to 250): number of its queue, member, due
--   time ('+n' = n µs from now, n = µs since the epoch), the body that the caller read, the member and body that replace
--   it if it has a later time ('' = they stay), the body that replaces it if it becomes ready ('' = it stays), the due time
--   (µs) that it must still wait for ('' = any), and the counts of attempts that it must still have then.
-- Returns: per job RESCHEDULED, the new due time, the former one if it was scheduled (µs; else 0), and the counts of its
--   attempts ('' = not requested, or none). Otherwise 0, 0 and '' with LATE (it is running, has begun since, or waits for
--   another due time), GONE (no such job waits) or ELSEWHERE (it waits in another queue, or its body changed: read its
--   body again).
-- Replicas: a producer's call waits for those of WAIT_REPLICAS.
-- Cost: O(log n) a job.
local now, head_start, with_counts = now_us(ARGV[1]), tonumber(ARGV[2]), ARGV[3] == '1'

local function reschedule(base, member, given, seen, later_member, later_body, ready_body, left, left_counts)
  local id, due = string.sub(member, 1, 12), math.max(now, due_time(given, now))
  local scheduled, ready = KEYS[base + 1], KEYS[base + 2]
  local new_member, new_body = member, ready_body
  if due > now and later_body ~= '' then new_member, new_body = later_member, later_body end
  if new_body ~= '' and redis.call('HGET', jobs, id) ~= seen then return 'ELSEWHERE', 0, 0, '' end
  local place, score = waiting_place(member, scheduled, ready, KEYS[base + 4], KEYS[base + 5])
  if not place then return why_not_waiting(id), 0, 0, '' end
  local counts = (with_counts or left ~= '') and string.sub(redis.call('HGET', attempts, id) or '', 1, 3) or ''
  if left ~= '' then
    -- A job that has begun and came back has the same rank.
    local is_left = counts == left_counts and still_waits(left, place, score, member, head_start)
    if not is_left then return 'LATE', 0, 0, '' end
  end
  leave(place, member, score)
  if new_body ~= '' then
    redis.call('HSET', jobs, id, new_body)
    local key = has(member, HAS_EXTRAS) and key_of_extras(redis.call('HGET', job_extras, id))
    if key and redis.call('HGET', unique_keys, key) == member then
      redis.call('HSET', unique_keys, key, new_member)
    end
  end
  if due > now then
    put_scheduled(scheduled, {due, new_member})
  else
    put_ready(now, ready, KEYS[base + 3], {rank_of(new_member, now, head_start), new_member})
  end
  return 'RESCHEDULED', due, is_scheduled(place) and tonumber(score) or 0, counts
end

-- Type checks (see the prelude).
check_hashes(jobs, attempts, job_extras, unique_keys); check_tenants(); check_limits()
for base = FIXED, #KEYS - 5, 5 do
  check_scheduled(KEYS[base + 1]); check_ready(KEYS[base + 2]); check_zsets(KEYS[base + 4], KEYS[base + 5])
end
local replies = {}
for i = 4, #ARGV, 9 do
  local reply = {reschedule(FIXED + 5 * (tonumber(ARGV[i]) - 1), unpack(ARGV, i + 1, i + 8))}
  for _, part in ipairs(reply) do replies[#replies + 1] = part end
end
return replies
