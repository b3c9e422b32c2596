-- Enqueue: all jobs of a batch (1 to 250) are stored, each in `scheduled` or `ready`, or none is. Safe to repeat: a job
--   whose id exists (also as a dead letter) is skipped, and so is one that `cancel` withdrew before it arrived.
-- KEYS: jobs, job_extras, unique_keys, dead_bodies, enqueued, queues, queues_version, next_due, notify, next_promotion,
--   notify_dispatcher, withdrawn, tenant_jobs, turns, tenants, throttles, throttle_ends, shards, lingering; then scheduled,
--   ready and notify of each queue of the batch.
-- ARGV: now, head start (ms), number of the layout ('' = no job is here because of its routing value), then per job:
--   member, queue number, due time ('' = at once, '+n' = n µs from now, n = µs since the epoch), body; if the member has
--   HAS_EXTRAS also: extras record, 1 = reject if the key is held (for a throttled job the length of its window, µs), most
--   jobs of its tenant that may wait in the queue ('' = any number), '' or, if it belongs to another shard by now, since
--   which layout (8) and its routing value.
-- Returns: now (µs), then for each job that was not stored because its key is held: its number, the holder's member; for
--   each that was not because it is throttled: its number, the id of the first job of the window; and for each that was
--   not because it belongs to another shard, and nothing of its value is left here: its number, ''.
-- Lazy: _extras, _turns.
-- Errors: nothing was stored. LAYOUT <text>: the shard knows another layout. KEYHELD <job number> <holder's id in hex>: a
--   job with `reject` met a held key. TENANTFULL, then for each full tenant <job numbers, joined by commas> <number of
--   waiting jobs> <how many may wait>: without these jobs the batch would be stored.
-- Replicas: a producer's call waits for those of WAIT_REPLICAS.
-- Cost: O(log n) a job.
local now, head_start, is_refused = now_us(ARGV[1]), tonumber(ARGV[2]), other_layout(ARGV[3])
if is_refused then return is_refused end

-- In front of a throttled key in `lingering`: see _layout.lua.
local BEFORE_WINDOW = '\0'
-- timed, untimed: per queue the entries for `scheduled` and `ready`: score, member, score, member …
local batch, holders, timed, untimed, has_extras, reply = {}, {}, {}, {}, false, {now}
-- What refuse_if_full() counts, and the jobs of this batch that it counted: each counts once.
local waiting, counted = {}, {}
-- Per throttled key the first job of this batch: it opens a window.
local opened = {}

local function is_known(id)
  return redis.call('HEXISTS', jobs, id) == 1 or redis.call('HEXISTS', dead_bodies, id) == 1
end

-- The first job of the window in which a throttled job is sent: this job itself if it is stored already. Nothing if the
-- job is to be stored, and opens a window.
local function first_of_window(id, key, window)
  if is_known(id) then return id end
  local first, ends = redis.call('HGET', throttles, key), tonumber(redis.call('ZSCORE', throttle_ends, key) or 0)
  -- If more is left than two windows, it was made shorter since, or Redis's clock was set back: calls must not be kept
  -- away for that long. Not one window: after a failover the clock may be a little behind.
  return opened[key] or (ends > now and ends <= now + 2 * window and first)
end

-- Mostly nothing is withdrawn: one check for the whole batch.
local any_withdrawn = redis.call('ZCARD', withdrawn) > 0
local at, number = 4, 0
while at <= #ARGV do
  local member, queue, due, body = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3]
  local id = string.sub(member, 1, 12)
  local job = {id = id, member = member, queue = queue, body = body}
  local keep = not (any_withdrawn and redis.call('ZSCORE', withdrawn, id))
  at = at + 4
  if has(member, HAS_EXTRAS) then
    job.extra, job.key = ARGV[at], key_of_extras(ARGV[at])
    local holder = keep and job.key and (holders[job.key] or redis.call('HGET', unique_keys, job.key))
    if holder and string.sub(holder, 1, 12) ~= id then
      if ARGV[at + 1] == '1' then
        local function hex(c) return string.format('%02x', string.byte(c)) end
        return redis.error_reply('KEYHELD ' .. number .. ' ' .. string.gsub(string.sub(holder, 1, 12), '.', hex))
      end
      reply[#reply + 1], reply[#reply + 2] = number, holder
      keep = false
    end
    if keep and job.key then holders[job.key] = member end
    job.throttle, job.window = throttle_of_extras(job.extra), tonumber(ARGV[at + 1])
    if keep and job.throttle then
      local first = first_of_window(id, job.throttle, job.window)
      if not first then opened[job.throttle] = id else keep = false end
      if first and first ~= id then reply[#reply + 1], reply[#reply + 2] = number, first end
    end
    job.most, job.left, at = tonumber(ARGV[at + 2]), ARGV[at + 3], at + 4
    if keep and job.left ~= '' and not is_known(id) and not lingers(job.left) then
      if job.key then holders[job.key] = nil end
      if job.throttle then opened[job.throttle] = nil end
      reply[#reply + 1], reply[#reply + 2], keep = number, '', false
    end
  end
  if keep and redis.call('HEXISTS', dead_bodies, id) == 0 then
    if job.most and not counted[id] and redis.call('HEXISTS', jobs, id) == 0 then
      counted[id] = true
      local tenant = queue_hash(KEYS[FIXED + 3 * queue]) .. tenant_of_extras(job.extra)
      -- The jobs behind it are judged as if it were not in the batch.
      if refuse_if_full(waiting, number, tenant, job.most) then
        if job.key then holders[job.key] = nil end
        if job.throttle then opened[job.throttle] = nil end
      end
    end
    job.due = due_time(due, now)
    if job.due and job.due <= now then job.due = nil end
    if job.due then timed[queue] = {} else untimed[queue] = {} end
    batch[#batch + 1], has_extras = job, has_extras or job.extra
  end
  number = number + 1
end
if waiting[1] then return tenant_full(waiting) end

-- Type checks (see the prelude).
if has_extras then check_hashes(job_extras, lingering); check_tenants() end
for queue in pairs(timed) do check_scheduled(KEYS[FIXED + 3 * queue - 2]) end
for queue in pairs(untimed) do check_ready(KEYS[FIXED + 3 * queue - 1]) end

local stored = {}
for _, job in ipairs(batch) do
  -- Not HSETNX: only `pause` and `quiet` call it, so the ACL rule of a producer, which lacks it, forbids both.
  if redis.call('HEXISTS', jobs, job.id) == 0 then
    -- The first write needs memory: if the memory is full, Redis refuses the whole batch.
    redis.call('HSET', jobs, job.id, job.body)
    local names = names_of(job.body)
    stored[names] = (stored[names] or 0) + 1
    if job.extra then
      redis.call('HSET', job_extras, job.id, job.extra)
      if job.left ~= '' then keep_lingering(job.left) end
      if job.key then redis.call('HSET', unique_keys, job.key, job.member) end
      if job.throttle then
        redis.call('HSET', throttles, job.throttle, job.id)
        local window_end = math.min(now + job.window, LATEST)
        redis.call('ZADD', throttle_ends, window_end, job.throttle)
        if job.left ~= '' then
          redis.call('HSET', lingering, BEFORE_WINDOW .. job.throttle, string.format('%.0f', window_end))
        end
      end
    end
    local entries = job.due and timed[job.queue] or untimed[job.queue]
    entries[#entries + 1], entries[#entries + 2] = job.due or rank_of(job.member, now, head_start), job.member
  end
end
for names, count in pairs(stored) do count_enqueued(names, count) end
for queue, entries in pairs(timed) do
  if entries[1] then put_scheduled(KEYS[FIXED + 3 * queue - 2], entries) end
end
for queue, entries in pairs(untimed) do
  if entries[1] then put_ready(now, KEYS[FIXED + 3 * queue - 1], KEYS[FIXED + 3 * queue], entries) end
end
return reply
