-- Promote: due jobs move from `scheduled` to `ready`, the queue with the oldest one first; pauses end at their time;
--   old dead letters, windows that are over, silent processes and unused queues are removed; returns when the next
--   promotion is due.
-- KEYS: leases, queues, next_promotion, workers, dispatchers, worker_names, exchanges, process_reports, quiet_workers,
--   dead_letters, dead_bodies, dead_bytes, no_reclaim_before, queues_version, next_due, notify, paused, pause_ends,
--   job_extras, tenant_jobs, turns, tenants, throttles, throttle_ends, limit_times, limit_jobs, next_let_in, outside_slots,
--   next_planting, error_groups, groups_of_dead, dead_by_group; then scheduled, ready, notify, recovered and parked of each
--   queue that the last promotion returned.
-- ARGV: now, the dispatcher's code (8 bytes), most jobs to move (≤ 500), head start (ms), sweep (µs), age (µs), number
--   and bytes of dead letters to keep, lateness of a promotion that shows an outage (µs), how long leases are spared
--   after an outage (µs), how long an unused queue stays listed (µs).
-- Lazy: _extras, _turns, _limits.
-- Returns: now and the time of the next promotion (µs), 1 = another dispatcher promoted for this time, jobs moved, µs
--   by which the oldest of them was late, dead letters removed, names (encoded) of queues to pass to the next promotion
--   (those that are due by then, those whose pause ends by then, and those to remove), ids of limits under which parked
--   jobs may begin, and names of the queues in which these wait, for the caller to let in, ids of recurring schedules (≤
--   64) for the caller to plant their next jobs, then expired leases (30 bytes each, ≤ 500) for the caller to judge.
-- Cost: O(k log n), and O(1) a named queue.
local now, code, limit, head_start = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local sweep, dead_age = tonumber(ARGV[5]), tonumber(ARGV[6])
local dead_count, dead_limit = tonumber(ARGV[7]), tonumber(ARGV[8])
local outage, recovery, unused = tonumber(ARGV[9]), tonumber(ARGV[10]), tonumber(ARGV[11])

-- Most processes, named queues, windows, limits, schedules, and dead letters (by number and bytes) in one promotion.
local PROCESSES, NAMED, WINDOWS, LIMITS, PLANTED, LETTERS, LETTERS_BYTES = 50, 250, 500, 100, 64, 250, 8388608
-- µs after which a silent process is removed; µs ahead for which queues are named; µs between removals of queues.
local PROCESS_KEPT, SOON = 3600000000, 1000000

-- The number that a key holds; nothing if it holds something else (it was edited manually).
local function number_in(key)
  local found = redis.pcall('GET', key)
  if type(found) == 'table' and not string.find(found.err, 'WRONGTYPE', 1, true) then error(found.err) end
  return type(found) == 'string' and tonumber(found) or nil
end

-- Most projects use none of what these hold. If none of the keys exists, nothing else of them is read.
local is_plain = redis.call(
  'EXISTS', paused, pause_ends, job_extras, throttles, throttle_ends, turns, tenants, tenant_jobs, limit_times, limit_jobs,
  next_let_in, outside_slots, next_planting, quiet_workers
) == 0
-- Entries of one of them between two moments, and the first of all with its score.
local function entries_between(key, low, high, most)
  return is_plain and {} or redis.call('ZRANGE', key, low, high, 'BYSCORE', 'LIMIT', 0, most)
end

local function first_entry(key)
  return is_plain and {} or lowest(key, 0)
end

-- Type checks (see the prelude).
check_hashes(worker_names, exchanges, process_reports)
check_zsets(workers, dispatchers, queues, next_due)
check_dead_letters()
local any_tenants = not is_plain and check_tenants()
if not is_plain then
  check_hashes(quiet_workers, paused, job_extras, throttles)
  check_zsets(pause_ends, throttle_ends, limit_times, limit_jobs, next_let_in, outside_slots, next_planting)
end
redis.call('GET', queues_version)
local expected, spared_until = number_in(next_promotion), number_in(no_reclaim_before) or 0
-- Redis's clock was set back.
if spared_until > now + recovery then spared_until = 0 end

-- Freeing first (see the prelude).
redis.call('ZREM', leases, '')

-- During an outage of Redis the leases of living workers expire too: afterwards workers get time to renew them. A lease
-- is spared once: one that had expired when the last outage was noticed is not. Otherwise nothing would be reclaimed if
-- promotions are always late.
local expired_by = now
if spared_until > now then
  expired_by = 0
elseif expected and now - expected > outage then
  expired_by, spared_until = spared_until - recovery, now + recovery
  redis.call('SET', no_reclaim_before, spared_until)
end

local due, stuck = {}, {}
for base = FIXED, #KEYS - 5, 5 do
  local head = lowest(KEYS[base + 1], 0)
  -- If `ready` has another type (it was edited manually), the jobs stay, and must not keep the dispatcher busy.
  local kind = head[2] and tonumber(head[2]) <= now and redis.call('TYPE', KEYS[base + 2]).ok
  stuck[base] = kind and kind ~= 'zset' and kind ~= 'none'
  if kind and not stuck[base] then due[#due + 1] = {base = base, at = tonumber(head[2])} end
end
table.sort(due, function(a, b) return a.at < b.at end)

-- The score of an entry that was edited manually may be any number.
local late = due[1] and math.min(now - due[1].at, 2 ^ 53) or 0
local moved, share = 0, math.max(1, math.floor(limit / math.max(1, #due)))
for _, queue in ipairs(due) do
  if moved >= limit then break end
  local scheduled, ready = KEYS[queue.base + 1], KEYS[queue.base + 2]
  local most = math.min(share, limit - moved)
  local found = redis.call('ZRANGE', scheduled, '-inf', now, 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES')
  local members, entries = {}, {}
  for i = 1, #found, 2 do
    members[#members + 1] = found[i]
    entries[i], entries[i + 1] = rank_of(found[i], tonumber(found[i + 1]), head_start), found[i]
  end
  redis.call('ZREM', scheduled, unpack(members))
  for i, member in ipairs(members) do
    if any_tenants and has(member, HAS_EXTRAS) then remove_tenant_job(scheduled, member, found[2 * i]) end
  end
  put_ready(now, ready, KEYS[queue.base + 3], entries)
  moved = moved + #members
end

local pause_end = first_entry(pause_ends)
if pause_end[2] and tonumber(pause_end[2]) <= now then
  for base = FIXED, #KEYS - 5, 5 do
    local ready, ends = KEYS[base + 2], redis.call('ZSCORE', pause_ends, queue_of(KEYS[base + 2]))
    if ends and tonumber(ends) <= now then
      redis.call('ZREM', pause_ends, queue_of(ready))
      redis.call('HDEL', paused, ready)
      if redis.call('EXISTS', ready, KEYS[base + 4]) > 0 then notify_workers(KEYS[base + 3]) end
    end
  end
  pause_end = first_entry(pause_ends)
end

for _, processes in ipairs({workers, dispatchers}) do
  local gone = redis.call('ZRANGE', processes, '-inf', now - PROCESS_KEPT, 'BYSCORE', 'LIMIT', 0, PROCESSES)
  if #gone > 0 then
    redis.call('ZREM', processes, unpack(gone))
    for _, key in ipairs({worker_names, exchanges, process_reports, quiet_workers}) do
      redis.call('HDEL', key, unpack(gone))
    end
  end
end
redis.call('ZADD', dispatchers, now, code)

-- The oldest dead letters go first, whichever limit is exceeded.
local count, bytes = redis.call('ZCARD', dead_letters), sum_of_dead_bytes()
local function exceeds_limit(died)
  return tonumber(died) <= now - dead_age or count > dead_count or bytes > dead_limit
end
local oldest, trimmed, freed, trims_left = lowest(dead_letters, 0), {}, 0, false
if oldest[1] and exceeds_limit(oldest[2]) then oldest = lowest(dead_letters, LETTERS) else oldest = {} end
for i = 1, #oldest, 2 do
  if not exceeds_limit(oldest[i + 1]) then break end
  local size = redis.call('HSTRLEN', dead_bodies, oldest[i])
  trims_left = #trimmed == LETTERS or (#trimmed > 0 and freed + size > LETTERS_BYTES)
  if trims_left then break end
  trimmed[#trimmed + 1], freed, count, bytes = oldest[i], freed + size, count - 1, bytes - size
end
if #trimmed > 0 then remove_dead_letters(trimmed, freed) end

local over = entries_between(throttle_ends, '-inf', now, WINDOWS)
if #over > 0 then
  redis.call('ZREM', throttle_ends, unpack(over))
  redis.call('HDEL', throttles, unpack(over))
end

-- A time that has passed binds nobody.
local passed = entries_between(limit_times, '-inf', now, WINDOWS)
if #passed > 0 then redis.call('ZREM', limit_times, unpack(passed)) end

-- Code outside a job took a slot, and has not given it back in time: it was killed.
local ended = entries_between(outside_slots, '-inf', now, WINDOWS)
for _, holder in ipairs(ended) do
  redis.call('ZREM', outside_slots, holder)
  redis.call('ZREM', limit_jobs, SLOT .. holder)
  if first_parked(string.sub(holder, 1, 12), '') then redis.call('ZADD', next_let_in, 0, string.sub(holder, 1, 12)) end
end

-- No look at a limit is farther ahead than this, unless the clock was set back.
local farthest = now + math.max(sweep, LOOK_AGAIN)
for _, id in ipairs(entries_between(next_let_in, farthest + 1, '+inf', LIMITS)) do
  redis.call('ZADD', next_let_in, now, id)
end
local open = entries_between(next_let_in, '-inf', now, LIMITS)
local planting = entries_between(next_planting, '-inf', now, PLANTED)
local expired = redis.call('ZRANGE', leases, '-inf', expired_by, 'BYSCORE', 'LIMIT', 0, 500)
local wake = (trims_left or #over == WINDOWS or #open > 0) and now or now + sweep
local removed = false
for base = FIXED, #KEYS - 5, 5 do
  local scheduled, ready, queue_notify = KEYS[base + 1], KEYS[base + 2], KEYS[base + 3]
  local queue = queue_of(ready)
  index_due(scheduled)
  if stuck[base] then redis.call('ZADD', next_due, now + sweep, queue) end
  local used = redis.call('ZSCORE', queues, queue)
  if used and tonumber(used) <= now - unused then
    if redis.call('EXISTS', ready, KEYS[base + 4], KEYS[base + 5]) > 0 then
      redis.call('ZADD', queues, now, queue)
    else
      redis.call('ZREM', queues, queue)
      redis.call('DEL', queue_notify)
      removed = true
    end
  end
end
if removed then change_version(now) end
local first = redis.call('ZRANGE', next_due, 0, 0, 'WITHSCORES')
if first[2] then wake = math.min(wake, tonumber(first[2])) end
if pause_end[2] then wake = math.min(wake, tonumber(pause_end[2])) end
for _, key in ipairs({next_let_in, outside_slots}) do
  local next_open = first_entry(key)
  if next_open[2] then wake = math.min(wake, tonumber(next_open[2])) end
end
-- The caller judges the expired leases now, and plants. If these counted here, one that cannot be judged, or a schedule
-- whose next job cannot be planted, would make it loop.
local lease = redis.call('ZRANGE', leases, #expired, #expired, 'WITHSCORES')
local next_plan = is_plain and {} or redis.call('ZRANGE', next_planting, #planting, #planting, 'WITHSCORES')
if next_plan[2] then wake = math.min(wake, tonumber(next_plan[2])) end
if lease[2] then wake = math.min(wake, math.max(tonumber(lease[2]), spared_until)) end
wake = math.max(wake, now)
-- A second dispatcher does not postpone the time that the first one wrote: each would then promote for its own time.
if expected and expected > now then wake = math.min(wake, expected) end
local is_second = expected and expected > now and wake == expected and moved == 0
redis.call('SET', next_promotion, wake)
local names = redis.call('ZRANGE', next_due, '-inf', wake + SOON, 'BYSCORE', 'LIMIT', 0, NAMED)
if pause_end[2] and tonumber(pause_end[2]) <= wake + SOON then
  for _, name in ipairs(redis.call('ZRANGE', pause_ends, '-inf', wake + SOON, 'BYSCORE', 'LIMIT', 0, NAMED)) do
    names[#names + 1] = name
  end
end
-- Once a minute, not as soon as one is old enough: each removal makes workers of all queues read the names again.
local longest = redis.call('ZRANGE', queues, 0, 0, 'WITHSCORES')
if longest[2] and tonumber(longest[2]) <= now - unused - MINUTE then
  for _, name in ipairs(redis.call('ZRANGE', queues, '-inf', now - unused, 'BYSCORE', 'LIMIT', 0, NAMED)) do
    names[#names + 1] = name
  end
end
local parked_in, is_named = {}, {}
for _, id in ipairs(open) do
  for _, parked in ipairs(parked_queues(id, NAMED - #parked_in)) do
    if not is_named[parked.queue] then parked_in[#parked_in + 1], is_named[parked.queue] = parked.queue, true end
  end
end
return {now, wake, is_second and 1 or 0, moved, late, #trimmed, names, open, parked_in, planting, unpack(expired)}
