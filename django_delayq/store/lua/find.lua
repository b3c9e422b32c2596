-- Find: where one job is, and its records. Reads only.
-- KEYS: scheduled, ready, recovered, parked, jobs, attempts, leases, claim_records, worker_names, dead_letters,
--   dead_bodies, waiting_for, results; scheduled, ready, recovered and parked are those of the queue in which the caller
--   expects the job.
-- ARGV: now, id, member as the caller knows it ('' = unknown).
-- Returns: state (scheduled, ready, claimed, dead, gone; elsewhere = it waits, but not there: call again with the queue
--   and member of its body; ended = its result is kept), its score (the lease's end if it is claimed and its member is
--   known), its body, dead letter or result (false = none), its attempts record, its claim record or the id of the limit
--   that it waits for, its worker's name.
-- Cost: O(1).
local now, id, member = now_us(ARGV[1]), ARGV[2], ARGV[3]

local died = redis.call('ZSCORE', dead_letters, id)
if died then return {'dead', died, redis.call('HGET', dead_bodies, id), false, false, false} end
local body, record = redis.call('HGET', jobs, id), redis.call('HGET', attempts, id)
local claim = redis.call('HGET', claim_records, id)
if claim then
  local lease_end = redis.call('ZSCORE', leases, member .. string.sub(claim, 1, 16))
  return {'claimed', lease_end or 0, body, record, claim, redis.call('HGET', worker_names, string.sub(claim, 1, 8))}
end
local place, score = waiting_place(member, scheduled, ready, recovered, parked)
if place then
  local id = place == parked and redis.call('HGET', waiting_for, id)
  return {place == scheduled and 'scheduled' or 'ready', score, body, record, id, false}
end
if body then return {'elsewhere', 0, body, record, false, false} end
local kept = redis.pcall('LINDEX', results, 0)
-- Other errors are raised: without the right to read, a user would be shown that there is no result.
if type(kept) == 'table' and not string.find(kept.err, 'WRONGTYPE', 1, true) then return kept end
if type(kept) == 'string' then return {'ended', 0, kept, false, false, false} end
return {'gone', 0, false, record, false, false}
