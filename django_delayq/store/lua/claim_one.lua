-- Claim_one: one waiting job is claimed under a new token, whenever it is due, also of a paused queue, and whatever its
--   limits say, which count it. The claim is
--   unconfirmed until its first heartbeat. Its record keeps a due time that is still ahead: a job that comes back waits
--   for it. Not safe to repeat.
-- KEYS: scheduled, ready, recovered, leases, claim_records, jobs, attempts, job_extras, unique_keys, queues, next_due,
--   workers, worker_names, unconfirmed, tenant_jobs, turns, tenants, parked, limit_rules, limit_jobs, limit_times,
--   next_let_in, waiting_for, claim_limits, paused_tasks, next_promotion, notify_dispatcher,
--   schedules; scheduled, ready, recovered
--   and parked are those of the queue that the caller read in the job's body.
-- ARGV: now, worker (8 bytes), exchange number, member, lease (µs), head start (ms), worker's name.
-- Returns: CLAIMED, now (µs), rank, body, attempts record (false = none); or LATE (it is running), GONE (no such job
--   waits), ELSEWHERE (it waits in another queue: read its body again).
-- Cost: O(log n).
local now, worker, number, member = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4]
local lease_us, head_start, worker_name = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]

local id, token = string.sub(member, 1, 12), worker .. struct.pack('>I8', number)
-- Type checks (see the prelude).
check_zsets(leases, queues, next_due, workers); check_hashes(claim_records, worker_names, job_extras, unique_keys)
check_tenants(); check_limit_states(); check_hashes(claim_limits, jobs, attempts, schedules); check_zsets(parked)
redis.call('SREM', unconfirmed, '')
local place, score = waiting_place(member, scheduled, ready, recovered, parked)
if not place then return {why_not_waiting(id)} end
local due = place == scheduled and tonumber(score)
local rank, is_ahead = due and rank_of(member, due, head_start) or tonumber(score), due and due > now
leave(place, member, score)
give_up_key(member)
redis.call('ZADD', queues, 'XX', now, queue_of(ready))
redis.call('ZADD', leases, now + lease_us, member .. token)
redis.call('SADD', unconfirmed, member .. token)
local record = token .. struct.pack('>I8I8B', now, rank, is_ahead and 2 or 0)
redis.call('HSET', claim_records, id, record .. (is_ahead and struct.pack('>I8', due) or ''))
if has(member, LIMITED) then
  count_in_limits(now, (limits_of_extras(read_extras(member))))
  store_slots(now, ready, member .. token, read_extras(member))
end
redis.call('ZADD', workers, now, worker)
redis.call('HSET', worker_names, worker, worker_name)
return {'CLAIMED', now, rank, redis.call('HGET', jobs, id), redis.call('HGET', attempts, id)}
