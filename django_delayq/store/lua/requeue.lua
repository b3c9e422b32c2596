-- Requeue: a dead letter becomes a waiting job again. It keeps its id and history; attempts are counted from 0.
-- KEYS: dead_letters, dead_bodies, jobs, attempts, job_extras, unique_keys, queues, queues_version, next_due, notify,
--   scheduled, ready, queue_notify, next_promotion, notify_dispatcher, dead_bytes; scheduled, ready and queue_notify
--   are those of the queue that the caller read in the job's body.
-- ARGV: now, id, time of death that the caller saw (µs), delay (µs), head start (ms), then three times '', or: the body
--   that the caller read, and the member and body that replace it.
-- Returns: REQUEUED and its due time (µs); or 0 with GONE (not a dead letter of that time and body) or HELD (another
--   job holds its key now).
-- Cost: O(log n).
local now, id, died = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3])
local delay, head_start = tonumber(ARGV[4]), tonumber(ARGV[5])
local seen, new_member, new_body = ARGV[6], ARGV[7], ARGV[8]

local score, stored = redis.call('ZSCORE', dead_letters, id), redis.call('HGET', dead_bodies, id)
if not score or tonumber(score) ~= died or not stored then return {'GONE', 0} end
if redis.call('HEXISTS', jobs, id) == 1 then return {'GONE', 0} end
local record_size, extra_size = struct.unpack('>I4I4', stored)
local member, record = string.sub(stored, 9, 22), string.sub(stored, 23, 22 + record_size)
local extra = string.sub(stored, 23 + record_size, 22 + record_size + extra_size)
local digest = string.sub(extra, 2, 17)
local body = string.sub(stored, 23 + record_size + extra_size)
if seen ~= '' then
  if body ~= seen then return {'GONE', 0} end
  member, body = new_member, new_body
end
if has(member, HAS_EXTRAS) and redis.call('HEXISTS', unique_keys, digest) == 1 then return {'HELD', 0} end

-- Type checks (see the prelude).
check_hashes(attempts, job_extras, unique_keys)
check_scheduled(scheduled); check_ready(ready); redis.call('GET', dead_bytes)
remove_dead_letters({id}, #stored)
redis.call('HSET', jobs, id, body)
if record_size > 3 then redis.call('HSET', attempts, id, '\0\0\0' .. string.sub(record, 4)) end
if has(member, HAS_EXTRAS) then
  redis.call('HSET', job_extras, id, extra)
  redis.call('HSET', unique_keys, digest, member)
end
local due = math.min(now + delay, LATEST)
if delay > 0 then
  put_scheduled(scheduled, {due, member})
else
  put_ready(now, ready, queue_notify, {rank_of(member, now, head_start), member})
end
return {'REQUEUED', due}
