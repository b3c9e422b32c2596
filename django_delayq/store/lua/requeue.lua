-- Requeue: a dead letter becomes a waiting job again, under its id, its attempts counted anew, its history kept.
-- KEYS: dead_letters, dead_bodies, jobs, attempts, job_extras, unique_keys, queues, queues_version, next_due, notify,
--   scheduled, ready, queue_notify, next_promotion, notify_dispatcher, dead_bytes; schedule, ready and its bell are
--   those of the queue the caller read in the job's body.
-- ARGV: now, id, time of death the caller saw (µs), delay (µs), head start (ms), then '' thrice, or the body the
--   caller read, and the member and body to come in its place.
-- Returns: REQUEUED and its due time (µs); GONE (not dead since then, or not with that body) or HELD (its key is
--   another job's now) and 0.
-- Cost: O(log n).
local now, id, died, delay, head_start = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local seen, new_member, new_body = ARGV[6], ARGV[7], ARGV[8]

local shard = {queues = queues, queues_version = queues_version, next_due = next_due, notify = notify, next_promotion = next_promotion, notify_dispatcher = notify_dispatcher}

local score, stored = redis.call('ZSCORE', dead_letters, id), redis.call('HGET', dead_bodies, id)
if not score or tonumber(score) ~= died or not stored or redis.call('HEXISTS', jobs, id) == 1 then return {'GONE', 0} end
local record_size, extra_size = struct.unpack('>I4I4', stored)
local member, record = string.sub(stored, 9, 22), string.sub(stored, 23, 22 + record_size)
local extra = string.sub(stored, 23 + record_size, 22 + record_size + extra_size)
local digest = string.sub(extra, 2, 17)
local body = string.sub(stored, 23 + record_size + extra_size)
if seen ~= '' then
  if body ~= seen then return {'GONE', 0} end
  member, body = new_member, new_body
end
if has(member, NOTED) and redis.call('HEXISTS', unique_keys, digest) == 1 then return {'HELD', 0} end

-- Read before the first write: a key of another type (written by hand) refuses the step, or would end it half-done.
redis.call('HLEN', attempts); redis.call('HLEN', job_extras); redis.call('HLEN', unique_keys)
check_scheduled(shard, scheduled); check_ready(shard, ready); redis.call('GET', dead_bytes)
redis.call('ZREM', dead_letters, id)
redis.call('HDEL', dead_bodies, id)
add_dead_bytes(dead_bytes, -#stored)
redis.call('HSET', jobs, id, body)
if record_size > 3 then redis.call('HSET', attempts, id, '\0\0\0' .. string.sub(record, 4)) end
if has(member, NOTED) then
  redis.call('HSET', job_extras, id, extra)
  redis.call('HSET', unique_keys, digest, member)
end
local due = math.min(now + delay, LATEST)
if delay > 0 then
  put_scheduled(shard, scheduled, {due, member})
else
  put_ready(shard, now, ready, queue_notify, {rank_of(member, now, head_start), member})
end
return {'REQUEUED', due}
