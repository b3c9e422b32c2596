-- Give_back_slot: a slot that `take_slot` took is given back. The rate stays charged. Safe to repeat.
-- KEYS: limit_rules, limit_jobs, limit_times, next_let_in, waiting_for, claim_limits, paused_tasks, next_promotion,
--   notify_dispatcher, outside_slots.
-- ARGV: now, the lease that has it, id of the limit.
-- Returns: 1 = given back, 0 = the lease had no slot.
-- Cost: O(log n).
local now, lease, id = now_us(ARGV[1]), ARGV[2], ARGV[3]

-- Type checks (see the prelude).
check_limit_states(); check_hashes(claim_limits); check_zsets(outside_slots)
if not redis.call('ZSCORE', limit_jobs, SLOT .. id .. lease) then return 0 end
local job_id, kept = string.sub(lease, 1, 12), ''
local held = redis.call('HGET', claim_limits, job_id) or ''
for _, limit in ipairs(unpack_limits(held)) do
  if limit.id ~= id then kept = kept .. pack_limit(limit) end
end
if #held > 0 then redis.call('HSET', claim_limits, job_id, kept) end
redis.call('ZREM', outside_slots, id .. lease)
free_slot(now, lease, id)
return 1
