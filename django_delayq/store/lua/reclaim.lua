-- Reclaim: what was decided of jobs whose lease lapsed, where it is still lapsed and still the same lease.
-- KEYS: leases, claim_records, jobs, attempts, job_extras, unique_keys, dead_letters, dead_bodies, queues,
--   queues_version, next_due, notify, next_promotion, notify_dispatcher, dead_bytes, unconfirmed; then schedule, ready,
--   bell and recovered of each queue of the batch.
-- ARGV: now, head start (ms), then per job (≤ 500): lease (30 bytes), attempts record (a spared one is for unconfirmed
--   claims only), queue number (0 = dead letter), delay (µs; 0 = it waits again at its old rank).
-- Returns: per job 1 = carried out, 0 = settled, revived by a late heartbeat, or reclaimed by somebody else meanwhile.
-- Cost: O(log n) a job.
local now, head_start = now_us(ARGV[1]), tonumber(ARGV[2])

local done = {}
local shard = {queues = queues, queues_version = queues_version, next_due = next_due, notify = notify, next_promotion = next_promotion, notify_dispatcher = notify_dispatcher}

-- Whether a claim lapsed that nobody confirmed, and no attempt was counted.
local function is_spared(record)
  return math.floor((string.byte(record, 3) or 0) / 2) % 2 == 1
end

-- The rank it was claimed with; of one whose record in `claim_records` is lost, that of now.
local function old_rank(lease)
  local run = redis.call('HGET', claim_records, string.sub(lease, 1, 12)) or ''
  if #run < 32 or string.sub(run, 1, 16) ~= string.sub(lease, 15) then return rank_of(lease, now, head_start) end
  return (struct.unpack('>I8', run, 25))
end

-- Read before the first write: a key of another type (written by hand) refuses the step, or would end it half-done.
redis.call('HLEN', claim_records); redis.call('HLEN', jobs); redis.call('HLEN', attempts); redis.call('HLEN', job_extras); redis.call('HLEN', unique_keys); redis.call('HLEN', dead_bodies)
redis.call('ZCARD', dead_letters)
redis.call('GET', dead_bytes)
for base = FIXED, #KEYS - 4, 4 do
  check_scheduled(shard, KEYS[base + 1]); check_ready(shard, KEYS[base + 2]); redis.call('ZCARD', KEYS[base + 4])
end
-- A write that changes nothing: who may not write there must not get halfway.
redis.call('SREM', unconfirmed, '')
for at = 3, #ARGV, 4 do
  local lease, record, queue, delay = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local member, lease_end = string.sub(lease, 1, 14), redis.call('ZSCORE', leases, lease)
  -- Confirmed since it was judged: it is judged again.
  local is_judged = not is_spared(record) or redis.call('SISMEMBER', unconfirmed, lease) == 1
  if lease_end and tonumber(lease_end) <= now and is_judged then
    local rank, base = old_rank(lease), FIXED + 4 * (queue - 1)
    redis.call('ZREM', leases, lease)
    redis.call('SREM', unconfirmed, lease)
    redis.call('HDEL', claim_records, string.sub(lease, 1, 12))
    if queue == 0 then
      dead_letter(member, record, now, jobs, attempts, job_extras, unique_keys, dead_letters, dead_bodies, dead_bytes)
    else
      redis.call('HSET', attempts, string.sub(lease, 1, 12), record)
      if delay > 0 then
        local due = math.min(now + delay, LATEST)
        put_scheduled(shard, KEYS[base + 1], {due, member})
      else
        put_ready(shard, now, KEYS[base + (is_suspect(record) and 4 or 2)], KEYS[base + 3], {rank, member})
      end
    end
    done[#done + 1] = 1
  else
    done[#done + 1] = 0
  end
end
return done
