-- Take_slot: a running job takes a slot of a limit until it ends, or other code for some time; its rate is charged. Safe
--   to repeat.
-- KEYS: leases, limit_rules, limit_jobs, limit_times, next_let_in, waiting_for, claim_limits, paused_tasks, next_promotion,
--   notify_dispatcher, outside_slots.
-- ARGV: now, the job's lease (or 30 bytes that stand for other code), id of the limit, cost, '' or for how long other
--   code has the slot (µs).
-- Returns: TAKEN; HELD: it has a slot already; LOST: the lease has ended; CLOSED and µs until the limit may be open
--   (-1 = when a slot is given back).
-- Cost: O(log n); if all slots are taken, up to 100 times as much.
local now, lease, id, cost, length = now_us(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

-- Type checks (see the prelude).
check_limit_states(); check_hashes(claim_limits); check_zsets(outside_slots)
if not length and not redis.call('ZSCORE', leases, lease) then return {'LOST'} end
if redis.call('ZSCORE', limit_jobs, SLOT .. id .. lease) then return {'HELD'} end
local state = limit_state(now, id)
if state.slots >= state.most then free_ended_slots(id, state) end
local opens = opens_at(state, cost)
correct_times(id, state)
if opens > now then return {'CLOSED', opens < math.huge and math.ceil(opens - now) or -1} end
local limit = {id = id, cost = cost}
count_in_limit(state, cost)
store_slot(lease, limit, state)
if length then
  redis.call('ZADD', outside_slots, now + length, id .. lease)
else
  local job_id = string.sub(lease, 1, 12)
  local held = redis.call('HGET', claim_limits, job_id) or ''
  redis.call('HSET', claim_limits, job_id, held .. pack_limit(limit))
end
return {'TAKEN'}
