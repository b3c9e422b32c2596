-- Requeue: dead letters become waiting jobs again. They keep id and history; attempts, snoozes and interruptions are
--   counted from 0.
-- KEYS: dead_letters, dead_bodies, jobs, attempts, job_extras, unique_keys, queues, queues_version, next_due, notify,
--   next_promotion, notify_dispatcher, dead_bytes, tenant_jobs, turns, tenants, shards, lingering, error_groups,
--   groups_of_dead, dead_by_group; then scheduled, ready and notify of each queue that the caller read in the jobs' bodies.
-- ARGV: now, head start (ms), number of the layout ('' = no job is here because of its routing value); then per job (1 to
--   250): number of its queue, id, time of death that the caller saw (µs), due time ('+n' = n µs from now, n = µs since
--   the epoch), the attempts record to store, then three times '', or: the body that the caller read, and the member and
--   body that replace it; and '' or, if it belongs to another shard by now, since which layout (8) and its routing value.
-- Returns: per job REQUEUED and its due time (µs); or 0 with GONE (not a dead letter of that time and body), HELD
--   (another job holds its key now), or GO_ON (it belongs to another shard, and nothing of its value is left here).
-- Errors: LAYOUT <text>: the shard knows another layout.
-- Replicas: a producer's call waits for those of WAIT_REPLICAS.
-- Cost: O(log n) a job.
local now, head_start, is_refused = now_us(ARGV[1]), tonumber(ARGV[2]), other_layout(ARGV[3])
if is_refused then return is_refused end

local function requeue(base, id, died, given, record, seen, new_member, new_body, left)
  local score, stored = redis.call('ZSCORE', dead_letters, id), redis.call('HGET', dead_bodies, id)
  if not score or tonumber(score) ~= tonumber(died) or not stored then return 'GONE', 0 end
  if redis.call('HEXISTS', jobs, id) == 1 then return 'GONE', 0 end
  local record_size, extra_size = struct.unpack('>I4I4', stored)
  local member = string.sub(stored, 9, 22)
  local extra = string.sub(stored, 23 + record_size, 22 + record_size + extra_size)
  local key, until_start = key_of_extras(extra)
  local body = string.sub(stored, 23 + record_size + extra_size)
  if seen ~= '' then
    if body ~= seen then return 'GONE', 0 end
    member, body = new_member, new_body
  end
  local is_held = key and redis.call('HEXISTS', unique_keys, key) == 1
  if is_held and not until_start then return 'HELD', 0 end
  if left ~= '' and not lingers(left) then return 'GO_ON', 0 end

  remove_dead_letters({id}, #stored)
  redis.call('HSET', jobs, id, body)
  -- Without a history, no record is the same.
  if #record > 3 then redis.call('HSET', attempts, id, record) end
  if extra ~= '' then
    redis.call('HSET', job_extras, id, extra)
    if left ~= '' then keep_lingering(left) end
    if key and not is_held then redis.call('HSET', unique_keys, key, member) end
  end
  local due = math.max(now, due_time(given, now))
  if due > now then
    put_scheduled(KEYS[base + 1], {due, member})
  else
    put_ready(now, KEYS[base + 2], KEYS[base + 3], {rank_of(member, now, head_start), member})
  end
  return 'REQUEUED', due
end

-- Type checks (see the prelude).
check_hashes(jobs, attempts, job_extras, unique_keys, lingering)
check_dead_letters(); check_tenants()
for base = FIXED, #KEYS - 3, 3 do check_scheduled(KEYS[base + 1]); check_ready(KEYS[base + 2]) end
local replies = {}
for i = 4, #ARGV, 9 do
  local word, due = requeue(FIXED + 3 * (tonumber(ARGV[i]) - 1), unpack(ARGV, i + 1, i + 8))
  replies[#replies + 1], replies[#replies + 2] = word, due
end
return replies
