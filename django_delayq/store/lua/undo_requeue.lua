-- Undo_requeue: requeued jobs that have not begun since become dead letters again.
-- KEYS: claim_records, jobs, attempts, job_extras, unique_keys, dead_letters, dead_bodies, dead_bytes, error_groups,
--   groups_of_dead, dead_by_group, next_due, tenant_jobs, turns, tenants, limit_jobs, next_let_in, waiting_for,
--   next_promotion, notify_dispatcher; then scheduled, ready, recovered and parked of each queue that the caller read in
--   the jobs' bodies.
-- ARGV: now, head start (ms); then per job (1 to 250): number of its queue, member, time of death (µs), the due time
--   that the requeue gave it (µs), the attempts record that the caller read, the record to store, and its error group.
-- Returns: per job DEAD; LATE (it has begun, or got another due time), GONE (no such job waits), ELSEWHERE (it waits in
--   another queue: read its body again).
-- Cost: O(log n) a job.
local now, head_start = now_us(ARGV[1]), tonumber(ARGV[2])

local function undo(base, member, died, due, seen, record, group)
  local id = string.sub(member, 1, 12)
  local place, score = waiting_place(member, KEYS[base + 1], KEYS[base + 2], KEYS[base + 3], KEYS[base + 4])
  if not place then return why_not_waiting(id) end
  if not still_waits(due, place, score, member, head_start) then return 'LATE' end
  -- The record to store was made from that one.
  if (redis.call('HGET', attempts, id) or '') ~= seen then return 'LATE' end
  leave(place, member, score)
  put_dead_body(now, tonumber(died), member, record, delete_extras(member), group)
  return 'DEAD'
end

-- Type checks (see the prelude).
check_hashes(claim_records, jobs, attempts, job_extras, unique_keys)
check_zsets(next_due); check_dead_letters(); check_tenants(); check_limits()
for number = FIXED + 1, #KEYS do redis.call('ZCARD', KEYS[number]) end
local words = {}
for i = 3, #ARGV, 7 do
  words[#words + 1] = undo(FIXED + 4 * (tonumber(ARGV[i]) - 1), unpack(ARGV, i + 1, i + 6))
end
return words
