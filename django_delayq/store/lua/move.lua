-- Move: waiting jobs change their queue and keep their due time or rank.
-- KEYS: to_scheduled, to_ready, to_recovered, to_notify, claim_records, jobs, job_extras, queues, queues_version,
--   next_due, notify, next_promotion, notify_dispatcher, tenant_jobs, turns, tenants, limit_jobs, next_let_in,
--   waiting_for; then scheduled, ready, recovered and parked of each queue that the caller read in the jobs' bodies. The
--   keys named to_… are those of the new queue.
-- ARGV: now; then per job (1 to 250): number of its queue, member, the body that the caller read, the body to write,
--   the weight of its tenant in the new queue (0 = that queue is not fair).
-- Returns: per job MOVED; LATE (it is running), GONE (no such job waits), ELSEWHERE (it waits in another queue, or its
--   body changed: read its body again).
-- Cost: O(log n) a job.
local now = now_us(ARGV[1])

local function move(base, member, old_body, new_body, weight)
  local id, scheduled, ready = string.sub(member, 1, 12), KEYS[base + 1], KEYS[base + 2]
  local place, score = waiting_place(member, scheduled, ready, KEYS[base + 3], KEYS[base + 4])
  if not place then return why_not_waiting(id) end
  if redis.call('HGET', jobs, id) ~= old_body then return 'ELSEWHERE' end
  leave(place, member, score)
  redis.call('HSET', jobs, id, new_body)
  local extra = has(member, HAS_EXTRAS) and redis.call('HGET', job_extras, id)
  if tenant_of_extras(extra) then
    redis.call('HSET', job_extras, id, string.sub(extra, 1, -10) .. string.char(weight) .. string.sub(extra, -8))
  end
  if place == scheduled then
    put_scheduled(to_scheduled, {tonumber(score), member})
  else
    -- A parked job becomes ready: a claim parks it again if it still has to wait.
    put_ready(now, place == KEYS[base + 3] and to_recovered or to_ready, to_notify, {tonumber(score), member})
  end
  return 'MOVED'
end

-- Type checks (see the prelude).
check_scheduled(to_scheduled); check_ready(to_ready); redis.call('ZCARD', to_recovered)
check_hashes(jobs, job_extras); check_tenants(); check_limits()
for number = FIXED + 1, #KEYS do redis.call('ZCARD', KEYS[number]) end
local words = {}
for i = 2, #ARGV, 5 do
  words[#words + 1] = move(FIXED + 4 * (tonumber(ARGV[i]) - 1), unpack(ARGV, i + 1, i + 4))
end
return words
