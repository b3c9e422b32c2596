-- Promote: due jobs move from `scheduled` to `ready`, the queue with the oldest first; trims; says when to come again.
-- KEYS: leases, queues, next_promotion, workers, dispatchers, worker_names, exchanges, process_reports, quiet_workers,
--   dead_letters, dead_bodies, dead_bytes, no_lapse_before, queues_version, next_due, notify; then schedule, ready,
--   bell and recovered of each queue that the last step returned.
-- ARGV: now, the dispatcher's code (8 bytes), most jobs to move (≤ 500), head start (ms), sweep (µs), age (µs), number
--   and bytes of dead letters to keep, lateness of a promotion that shows an outage (µs), how long leases are spared
--   after one (µs), how long an empty queue is remembered (µs).
-- Returns: now and the moment of the next thing to do (µs), 1 = another promoted for this moment, jobs moved, µs the
--   oldest of them was late, dead letters trimmed, names (encoded) of queues to name in the next step (those that are due
--   by then, and those to forget), then the leases (30 bytes each, ≤ 500) whose end has passed, for the caller to judge.
-- Cost: O(k log n), and O(1) a named queue.
local now, code, limit, head_start, sweep = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local dead_age, dead_count, dead_limit, outage, recovery, remembered = tonumber(ARGV[6]), tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])

local BITE, PROCESS_KEPT, NAMED, SOON, MINUTE = 50, 3600000000, 250, 1000000, 60000000
local LETTERS, LETTERS_BYTES = 250, 8388608
local shard = {queues = queues, queues_version = queues_version, next_due = next_due, notify = notify}

-- The number in a key; of one that is something else (written by hand), none.
local function number_in(key)
  local found = redis.pcall('GET', key)
  if type(found) == 'table' and not string.find(found.err, 'WRONGTYPE', 1, true) then error(found.err) end
  return type(found) == 'string' and tonumber(found) or nil
end

-- Read before the first write: a key of another type (written by hand) refuses the step, or would end it half-done.
redis.call('ZCARD', workers); redis.call('ZCARD', dead_letters); redis.call('GET', dead_bytes)
for _, key in ipairs({worker_names, exchanges, process_reports, quiet_workers, dead_bodies}) do redis.call('HLEN', key) end
redis.call('ZCARD', dispatchers); redis.call('ZCARD', queues); redis.call('ZCARD', next_due); redis.call('GET', queues_version)
local expected, spared = number_in(next_promotion), number_in(no_lapse_before) or 0
-- Redis's clock was set back.
if spared > now + recovery then spared = 0 end

-- A write that frees comes first: with its memory full, Redis refuses a script whose first write grows.
redis.call('ZREM', leases, '')

-- An outage of Redis outlasts the leases of living workers too: they get time to renew them. Each lease is spared once:
-- those that had ended when the last outage was seen are not, or nothing would be reclaimed where promotions are always late.
local lapsed_by = now
if spared > now then
  lapsed_by = 0
elseif expected and now - expected > outage then
  lapsed_by, spared = spared - recovery, now + recovery
  redis.call('SET', no_lapse_before, spared)
end

local due, stuck = {}, {}
for base = FIXED, #KEYS - 4, 4 do
  local head = lowest(KEYS[base + 1], 0)
  -- Where `ready` is something else (written by hand) its jobs stay, and may not keep the dispatcher awake.
  local into = head[2] and tonumber(head[2]) <= now and redis.call('TYPE', KEYS[base + 2]).ok
  stuck[base] = into and into ~= 'zset' and into ~= 'none'
  if into and not stuck[base] then due[#due + 1] = {base = base, at = tonumber(head[2])} end
end
table.sort(due, function(a, b) return a.at < b.at end)

-- The score of a job written by hand may be anything.
local late = due[1] and math.min(now - due[1].at, 2 ^ 53) or 0
local moved, share = 0, math.max(1, math.floor(limit / math.max(1, #due)))
for _, queue in ipairs(due) do
  if moved >= limit then break end
  local scheduled, ready = KEYS[queue.base + 1], KEYS[queue.base + 2]
  local found = redis.call('ZRANGE', scheduled, '-inf', now, 'BYSCORE', 'LIMIT', 0, math.min(share, limit - moved), 'WITHSCORES')
  local members, entries = {}, {}
  for i = 1, #found, 2 do
    members[#members + 1] = found[i]
    entries[i], entries[i + 1] = rank_of(found[i], tonumber(found[i + 1]), head_start), found[i]
  end
  redis.call('ZREM', scheduled, unpack(members))
  put_ready(shard, now, ready, KEYS[queue.base + 3], entries)
  moved = moved + #members
end

for _, processes in ipairs({workers, dispatchers}) do
  local gone = redis.call('ZRANGE', processes, '-inf', now - PROCESS_KEPT, 'BYSCORE', 'LIMIT', 0, BITE)
  if #gone > 0 then
    redis.call('ZREM', processes, unpack(gone))
    for _, key in ipairs({worker_names, exchanges, process_reports, quiet_workers}) do redis.call('HDEL', key, unpack(gone)) end
  end
end
redis.call('ZADD', dispatchers, now, code)

-- The oldest go first, whichever limit they are beyond.
local count, bytes = redis.call('ZCARD', dead_letters), sum_of(dead_bytes)
local function is_beyond(died)
  return tonumber(died) <= now - dead_age or count > dead_count or bytes > dead_limit
end
local oldest, trimmed, freed, trims_left = lowest(dead_letters, 0), {}, 0, false
if oldest[1] and is_beyond(oldest[2]) then oldest = lowest(dead_letters, LETTERS) else oldest = {} end
for i = 1, #oldest, 2 do
  if not is_beyond(oldest[i + 1]) then break end
  local size = redis.call('HSTRLEN', dead_bodies, oldest[i])
  trims_left = #trimmed == LETTERS or (#trimmed > 0 and freed + size > LETTERS_BYTES)
  if trims_left then break end
  trimmed[#trimmed + 1], freed, count, bytes = oldest[i], freed + size, count - 1, bytes - size
end
if #trimmed > 0 then
  redis.call('ZREM', dead_letters, unpack(trimmed))
  redis.call('HDEL', dead_bodies, unpack(trimmed))
  add_dead_bytes(dead_bytes, -freed)
end

local lapsed = redis.call('ZRANGE', leases, '-inf', lapsed_by, 'BYSCORE', 'LIMIT', 0, 500)
local wake = trims_left and now or now + sweep
local forgotten = false
for base = FIXED, #KEYS - 4, 4 do
  local scheduled, ready, queue_notify = KEYS[base + 1], KEYS[base + 2], KEYS[base + 3]
  local queue = queue_of(ready)
  index_due(next_due, scheduled)
  if stuck[base] then redis.call('ZADD', next_due, now + sweep, queue) end
  local used = redis.call('ZSCORE', queues, queue)
  if used and tonumber(used) <= now - remembered then
    if redis.call('EXISTS', ready, KEYS[base + 4]) > 0 then
      redis.call('ZADD', queues, now, queue)
    else
      redis.call('ZREM', queues, queue)
      redis.call('DEL', queue_notify)
      forgotten = true
    end
  end
end
if forgotten then change_version(shard, now) end
local first = redis.call('ZRANGE', next_due, 0, 0, 'WITHSCORES')
if first[2] then wake = math.min(wake, tonumber(first[2])) end
-- Leases told above are judged by the caller at once; were they counted here, one that cannot be judged would spin it.
local lease = redis.call('ZRANGE', leases, #lapsed, #lapsed, 'WITHSCORES')
if lease[2] then wake = math.min(wake, math.max(tonumber(lease[2]), spared)) end
wake = math.max(wake, now)
-- A second dispatcher does not push on what the first one announced: both would do so, and promote for each moment.
if expected and expected > now then wake = math.min(wake, expected) end
local is_second = expected and expected > now and wake == expected and moved == 0
redis.call('SET', next_promotion, wake)
local names = redis.call('ZRANGE', next_due, '-inf', wake + SOON, 'BYSCORE', 'LIMIT', 0, NAMED)
-- Once a minute, and not whenever one is old enough: each time, workers of all queues read the names again.
local oldest = redis.call('ZRANGE', queues, 0, 0, 'WITHSCORES')
if oldest[2] and tonumber(oldest[2]) <= now - remembered - MINUTE then
  for _, name in ipairs(redis.call('ZRANGE', queues, '-inf', now - remembered, 'BYSCORE', 'LIMIT', 0, NAMED)) do
    names[#names + 1] = name
  end
end
return {now, wake, is_second and 1 or 0, moved, late, #trimmed, names, unpack(lapsed)}
