-- Reclaim: a dispatcher applies its decisions on jobs whose leases expired. Each applies only if its lease is still
--   expired.
-- KEYS: leases, claim_records, jobs, attempts, job_extras, unique_keys, dead_letters, dead_bodies, queues,
--   queues_version, next_due, notify, next_promotion, notify_dispatcher, dead_bytes, unconfirmed, tenant_jobs, turns,
--   tenants, limit_rules, limit_jobs, limit_times, next_let_in, waiting_for, claim_limits, paused_tasks, schedules,
--   next_planting, error_groups, groups_of_dead, dead_by_group; then results of each stopped job that keeps its result, then
--   scheduled, ready, notify, recovered and parked of each queue of the batch.
-- ARGV: now, head start (ms), number of those results, then four values per job (≤ 500):
--   - a job that waits again: lease (30 bytes), attempts record (one marked as spared applies to an unconfirmed claim
--     only), queue number, delay (µs; 0 = ready at its old rank, or scheduled for its due time if that is still ahead);
--   - a dead letter: lease, attempts record, 0, its error group and that group's label as one text;
--   - a job that was asked to stop: lease, JSON of the result to keep ('' = none), -1, how long Redis keeps it (ms).
-- Returns: per job 1 = applied, 0 = it was settled, renewed by a late heartbeat, asked to stop since it was judged, or
--   reclaimed by another dispatcher.
-- Cost: O(log n) a job.
local now, head_start, kept = now_us(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local done, next_result, of_queues = {}, FIXED + 1, FIXED + kept

-- Whether the lease of an unconfirmed claim expired and no attempt was counted.
local function is_spared(record)
  return math.floor((string.byte(record, 3) or 0) / 2) % 2 == 1
end

-- The rank with which it was claimed; if its claim record is lost, the rank of a job that is due now.
local function old_rank(lease, claim)
  if #claim < 32 or string.sub(claim, 1, 16) ~= string.sub(lease, 15) then return rank_of(lease, now, head_start) end
  return (struct.unpack('>I8', claim, 25))
end

-- When it was claimed (µs); nothing if its claim record is lost.
local function claimed_at(claim)
  return #claim >= 24 and struct.unpack('>I8', claim, 17)
end

-- Type checks (see the prelude).
check_hashes(claim_records, jobs, attempts, job_extras, unique_keys)
check_dead_letters(); check_tenants()
check_limit_states(); check_hashes(claim_limits); check_schedules()
for base = of_queues, #KEYS - 5, 5 do
  check_scheduled(KEYS[base + 1]); check_ready(KEYS[base + 2]); redis.call('ZCARD', KEYS[base + 4])
end
-- This changes nothing: a user who may not write here fails before the first change.
redis.call('SREM', unconfirmed, '')
for at = 4, #ARGV, 4 do
  local lease, record, queue, delay = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local member, lease_end = string.sub(lease, 1, 14), redis.call('ZSCORE', leases, lease)
  local claim = redis.call('HGET', claim_records, string.sub(lease, 1, 12)) or ''
  local stop_by, due, _, has_paid = read_claim(claim, string.sub(lease, 15))
  local stops = stop_by ~= nil
  -- If its worker confirmed the claim, or somebody asked it to stop, after it was judged, it must be judged again.
  local is_judged = stops == (queue == -1)
    and (stops or not is_spared(record) or redis.call('SISMEMBER', unconfirmed, lease) == 1)
  local result = queue == -1 and record ~= '' and KEYS[next_result]
  if result then next_result = next_result + 1 end
  if lease_end and tonumber(lease_end) <= now and is_judged then
    local rank, base = old_rank(lease, claim), of_queues + 5 * (queue - 1)
    redis.call('ZREM', leases, lease)
    redis.call('SREM', unconfirmed, lease)
    local id = string.sub(lease, 1, 12)
    local held = redis.call('HGET', claim_limits, id)
    if held then free_slots(now, lease, held, queue > 0 and is_spared(record) and claimed_at(claim)) end
    if stops then
      if result then keep_result(result, id, record, delay) end
      end_job(now, member, RUN_CANCELLED)
      redis.call('HDEL', jobs, id)
      redis.call('HDEL', attempts, id)
    elseif queue == 0 then
      put_dead_letter(now, member, record, ARGV[at + 3])
    else
      redis.call('HSET', attempts, id, record)
      take_key_again(member)
      due = math.max(now + delay, due or 0)
      if due > now then
        put_scheduled(KEYS[base + 1], {math.min(due, LATEST), member})
      else
        local place = KEYS[base + (crash_suspected(record) and 4 or 2)]
        put_ready(now, place, KEYS[base + 3], {rank, member})
        if has_paid then refund_turn(place, member) end
      end
    end
    redis.call('HDEL', claim_records, id)
    done[#done + 1] = 1
  else
    done[#done + 1] = 0
  end
end
return done
