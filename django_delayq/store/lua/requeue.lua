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

-- Ids of the call, and keys that its jobs take: a second job of the same id or key finds them as if the first were done.
local is_known, is_taken = {}, {}
local removed, removed_bytes, bodies, records = {}, 0, {}, {}

-- What becomes of a dead letter; nothing is written, because the first write of the script must free memory.
local function examine(base, id, died, given, record, seen, new_member, new_body, left)
  local score, stored = redis.call('ZSCORE', dead_letters, id), redis.call('HGET', dead_bodies, id)
  if not score or tonumber(score) ~= tonumber(died) or not stored then return 'GONE' end
  if is_known[id] or redis.call('HEXISTS', jobs, id) == 1 then return 'GONE' end
  local record_size, extra_size = struct.unpack('>I4I4', stored)
  local member = string.sub(stored, 9, 22)
  local extra = string.sub(stored, 23 + record_size, 22 + record_size + extra_size)
  local key, until_start = key_of_extras(extra)
  local body = string.sub(stored, 23 + record_size + extra_size)
  if seen ~= '' then
    if body ~= seen then return 'GONE' end
    member, body = new_member, new_body
  end
  local is_held = key and (is_taken[key] or redis.call('HEXISTS', unique_keys, key) == 1)
  if is_held and not until_start then return 'HELD' end
  if left ~= '' and not lingers(left) then return 'GO_ON' end

  is_known[id] = true
  if key then is_taken[key] = true end
  removed[#removed + 1], removed_bytes = id, removed_bytes + #stored
  bodies[#bodies + 1], bodies[#bodies + 2] = id, body
  -- Without a history, no record is the same.
  if #record > 3 then records[#records + 1], records[#records + 2] = id, record end
  local job = {base = base, id = id, member = member, extra = extra, left = left, due = math.max(now, due_time(given, now))}
  job.key = not is_held and key
  return 'REQUEUED', job
end

local function put_extras(job)
  redis.call('HSET', job_extras, job.id, job.extra)
  if job.left ~= '' then keep_lingering(job.left) end
  if job.key then redis.call('HSET', unique_keys, job.key, job.member) end
end

-- Type checks (see the prelude).
check_hashes(jobs, attempts, job_extras, unique_keys, lingering)
check_dead_letters(); check_tenants()
for base = FIXED, #KEYS - 3, 3 do check_scheduled(KEYS[base + 1]); check_ready(KEYS[base + 2]) end
local replies, requeued = {}, {}
for i = 4, #ARGV, 9 do
  local word, job = examine(FIXED + 3 * (tonumber(ARGV[i]) - 1), unpack(ARGV, i + 1, i + 8))
  requeued[#requeued + 1] = job
  replies[#replies + 1], replies[#replies + 2] = word, job and job.due or 0
end
if #removed == 0 then return replies end

-- Once for all of them: a call for each job would be half of the cost.
remove_dead_letters(removed, removed_bytes)
redis.call('HSET', jobs, unpack(bodies))
if #records > 0 then redis.call('HSET', attempts, unpack(records)) end
local entries_at = {}
for _, job in ipairs(requeued) do
  if job.extra ~= '' then put_extras(job) end
  local is_due = job.due <= now
  local place = job.base + (is_due and 2 or 1)
  local entries = entries_at[place] or {}
  entries_at[place] = entries
  entries[#entries + 1] = is_due and rank_of(job.member, now, head_start) or job.due
  entries[#entries + 1] = job.member
end
for base = FIXED, #KEYS - 3, 3 do
  if entries_at[base + 1] then put_scheduled(KEYS[base + 1], entries_at[base + 1]) end
  if entries_at[base + 2] then put_ready(now, KEYS[base + 2], KEYS[base + 3], entries_at[base + 2]) end
end
return replies
