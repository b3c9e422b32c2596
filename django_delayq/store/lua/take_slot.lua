-- Take_slot: a running job takes a slot of a limit until it ends, or other code for some time; its rate is charged. Safe
--   to repeat.
-- KEYS: leases, limit_rules, limit_jobs, limit_times, next_let_in, waiting_for, claim_limits, paused_tasks, next_promotion,
--   notify_dispatcher, outside_slots, shards, lingering.
-- ARGV: now, the job's lease (or 30 bytes that stand for other code), id of the limit, cost, '' or for how long other
--   code has the slot (µs), number of the layout ('' = it does not matter), '' or since which layout the limit belongs to
--   another shard (8) and its routing value.
-- Returns: TAKEN; HELD: it has a slot already; LOST: the lease has ended; CLOSED and µs until the limit may be open
--   (-1 = when a slot is given back); GO_ON: it belongs to another shard, and nothing of its value is left here.
-- Errors: LAYOUT <text>: the shard knows another layout.
-- Cost: O(log n); if all slots are taken, up to 100 times as much.
local now, lease, id, cost, length = now_us(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[5])

local is_refused, left = other_layout(ARGV[6]), ARGV[7]
if is_refused then return is_refused end
if left ~= '' and not lingers(left) then return {'GO_ON'} end
-- Type checks (see the prelude).
check_limit_states(); check_hashes(claim_limits); check_zsets(outside_slots); check_hashes(lingering)
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
if left ~= '' then keep_lingering(left) end
if length then
  redis.call('ZADD', outside_slots, now + length, id .. lease)
else
  local job_id = string.sub(lease, 1, 12)
  local held = redis.call('HGET', claim_limits, job_id) or ''
  redis.call('HSET', claim_limits, job_id, held .. pack_limit(limit))
end
return {'TAKEN'}
