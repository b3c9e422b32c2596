-- Find: where one job is, and its records. Reads only.
-- KEYS: scheduled, ready, recovered, jobs, attempts, leases, claim_records, worker_names, dead_letters, dead_bodies,
--   results; schedule, ready and recovered are those of the queue the caller believes the job to be in.
-- ARGV: now, id, member as the caller knows it ('' = unknown).
-- Returns: state (scheduled, ready, claimed, dead, gone; elsewhere = it waits, but not there: ask again with what its body
--   says; ended = its result is kept), its score (lease end of a claimed one whose member is known), its body, dead letter
--   or result (false = none), its attempts record, its record in `claim_records`, its worker's name.
-- Cost: O(1).
local now, id, member = now_us(ARGV[1]), ARGV[2], ARGV[3]

local died = redis.call('ZSCORE', dead_letters, id)
if died then return {'dead', died, redis.call('HGET', dead_bodies, id), false, false, false} end
local body, record = redis.call('HGET', jobs, id), redis.call('HGET', attempts, id)
local run = redis.call('HGET', claim_records, id)
if run then
  local lease_end = redis.call('ZSCORE', leases, member .. string.sub(run, 1, 16))
  return {'claimed', lease_end or 0, body, record, run, redis.call('HGET', worker_names, string.sub(run, 1, 8))}
end
local place, score = waiting_place(member, scheduled, ready, recovered)
if place then return {place == scheduled and 'scheduled' or 'ready', score, body, record, false, false} end
if body then return {'elsewhere', 0, body, record, false, false} end
local kept = redis.pcall('LINDEX', results, 0)
-- Nothing else is forgiven: a user who may not read would be told that there is none.
if type(kept) == 'table' and not string.find(kept.err, 'WRONGTYPE', 1, true) then return kept end
if type(kept) == 'string' then return {'ended', 0, kept, false, false, false} end
return {'gone', 0, false, record, false, false}
