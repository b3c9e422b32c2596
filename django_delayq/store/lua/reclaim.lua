-- Reclaim: what was decided of jobs whose lease lapsed, where it is still lapsed and still the same lease.
-- KEYS: the named ones, then the schedule of each queue of the batch.
-- ARGV: now, then per job (≤ 500): lease (30 bytes), attempts record, queue number (0 = dead letter), delay (µs).
-- Returns: per job 1 = carried out, 0 = settled, revived by a late heartbeat, or reclaimed by somebody else meanwhile.
-- Cost: O(log n) a job.
local leases, running, bodies, attempts, extras, holders, dead_letters, dead_bodies, next_due, wake_at, alarm, dead_bytes = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11], KEYS[12]
local now = now_us(ARGV[1])

local FIXED, done = 12, {}
local shard = {next_due = next_due, wake_at = wake_at, alarm = alarm}
-- Read before the first write: a key of another type (written by hand) refuses the step, or would end it half-done.
redis.call('HLEN', running); redis.call('HLEN', bodies); redis.call('HLEN', attempts); redis.call('HLEN', extras); redis.call('HLEN', holders); redis.call('HLEN', dead_bodies)
redis.call('ZCARD', dead_letters); redis.call('GET', dead_bytes)
for queue = FIXED + 1, #KEYS do check_scheduled(shard, KEYS[queue]) end
for at = 2, #ARGV, 4 do
  local lease, record, queue, delay = ARGV[at], ARGV[at + 1], tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local member, lease_end = string.sub(lease, 1, 14), redis.call('ZSCORE', leases, lease)
  if lease_end and tonumber(lease_end) <= now then
    redis.call('ZREM', leases, lease)
    redis.call('HDEL', running, string.sub(lease, 1, 12))
    if queue == 0 then
      dead_letter(member, record, now, bodies, attempts, extras, holders, dead_letters, dead_bodies, dead_bytes)
    else
      redis.call('HSET', attempts, string.sub(lease, 1, 12), record)
      local due = math.min(now + delay, LATEST)
      put_scheduled(shard, KEYS[FIXED + queue], {due, member}, due)
    end
    done[#done + 1] = 1
  else
    done[#done + 1] = 0
  end
end
return done
