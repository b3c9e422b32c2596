-- Give_back_limit: a slot that `take_limit` took is given back. The rate stays charged. Safe to repeat.
-- KEYS: limit_rules, limit_jobs, limit_times, open_limits, waiting_for, claim_limits, paused_tasks, next_promotion,
--   notify_dispatcher, limit_holders.
-- ARGV: now, the lease that has it, id of the limit.
-- Returns: 1 = given back, 0 = the lease had no slot.
-- Cost: O(log n).
local now, lease, id = now_us(ARGV[1]), ARGV[2], ARGV[3]

-- Type checks (see the prelude).
check_limits(); check_hashes(claim_limits); redis.call('ZCARD', limit_holders)
if not redis.call('ZSCORE', limit_jobs, SLOT .. id .. lease) then return 0 end
local job_id, kept = string.sub(lease, 1, 12), ''
local held = redis.call('HGET', claim_limits, job_id) or ''
for i = 1, #held - 13, 14 do
  if string.sub(held, i, i + 11) ~= id then kept = kept .. string.sub(held, i, i + 13) end
end
if #held > 0 then redis.call('HSET', claim_limits, job_id, kept) end
redis.call('ZREM', limit_holders, id .. lease)
free_slot(now, lease, id)
return 1
