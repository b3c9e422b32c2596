-- Settle_and_claim: a worker hands in its outcomes and claims its next jobs under a new token. An outcome applies only
--   while its lease stands. Safe to repeat: a repeated number gets the recorded answer.
-- KEYS: leases, claim_records, exchanges, jobs, attempts, job_extras, unique_keys, dead_letters, dead_bodies, queues,
--   queues_version, next_due, notify, workers, worker_names, paused, next_promotion, notify_dispatcher, dead_bytes,
--   unconfirmed, tenant_jobs, turns, tenants, limit_rules, limit_jobs, limit_times, next_let_in, waiting_for,
--   claim_limits, paused_tasks, schedules, next_planting, error_groups, groups_of_dead, dead_by_group; then ready, notify,
--   recovered and parked of each served queue, then results of each job whose result is kept, then scheduled, ready,
--   notify and parked of each queue that a retry or release names.
-- ARGV: now, worker (8 bytes), exchange number, most claims, lease (µs), 1 = strict queue order, number of served
--   queues, worker's name ('' = stored already), 1 = it may claim a recovered job (its last attempt crashed), 1 =
--   blocking (it was sent behind a blocking pop, so its claims are unconfirmed), 1 or 0 for each served queue: whether
--   it is fair ('' = none is), most claims of fair queues, most claims of jobs with limits, leases to acknowledge (30
--   bytes each, joined), leases of those of them, and of kept results, whose job has extras and was not done, each with an
--   outcome (31 bytes each, joined), number of dead letters, of retries, of kept results; then dead letters: lease,
--   attempts record, error group and its label; retries: lease, queue number, delay (µs), attempts record, rank to keep ('' = none: the delay
--   applies); kept results: lease, JSON, for how long (ms); releases: lease, queue number, rank, id of its paused task (''
--   = it is not paused). A job that was claimed before it was due, and is retried or released, waits at least for its time.
-- Returns: now (µs), lost leases (30 bytes each, joined), leases whose job was asked to stop, so that its retry,
--   release or dead letter was refused (30 bytes each, joined), µs after which no dispatcher promotes any more (0 =
--   none does), version of the queues ('' = none), 1 = more jobs can be claimed, 2 = more of fair queues or with limits
--   only, 1 = no earlier exchange of this worker is known, 1 = recovered jobs remain that this worker does not run, ids
--   of paused tasks (12 bytes each, joined), numbers of the claims to drop, since a limit keeps their jobs from beginning
--   (a byte each, joined); then per claim: member, number of its served queue, rank, body, attempts record (false = none).
-- Lazy: _queues, _schedules, _extras, _turns, _limits, _parking, _places, _dead_letters, _choice.
-- Errors: STALEEXCHANGE: a later exchange of this worker was applied.
-- Cost: O(k log n), and O(1) a served queue. It drops at most 512 stale entries of fair queues; then more can be claimed.
local now, worker, number, want = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local lease_us, served, worker_name = tonumber(ARGV[5]), tonumber(ARGV[7]), ARGV[8]
local may_recover, blocking, OUTCOMES_AT = ARGV[9] == '1', ARGV[10] == '1', 19
-- See _candidates.lua.
local request = {want = want, strict = ARGV[6] == '1', fair = ARGV[11], most_fair = tonumber(ARGV[12]), numbers = {}}
local token = worker .. struct.pack('>I8', number)

local last = redis.call('HGET', exchanges, worker)
-- No script writes a shorter one: it was edited manually.
if last and #last < 16 then last = false end
local promotion, version = redis.call('GET', next_promotion), redis.call('GET', queues_version) or ''
-- Most projects use no pauses, unique keys, tenants and limits. If none of their keys exists, nothing else of them is read.
local is_plain = redis.call(
  'EXISTS', paused, job_extras, unique_keys, turns, tenants, tenant_jobs, limit_rules, limit_jobs, limit_times,
  next_let_in, waiting_for, claim_limits, paused_tasks, schedules
) == 0
local any_limits = not is_plain and redis.call(
  'EXISTS', limit_rules, limit_jobs, limit_times, next_let_in, waiting_for, claim_limits, paused_tasks, schedules
) > 0

local function read(hash, claims)
  local ids = {}
  for i, claim in ipairs(claims) do ids[i] = string.sub(claim.member, 1, 12) end
  return #ids > 0 and redis.call('HMGET', hash, unpack(ids)) or ids
end

local function answer(lost, stopped, more, recovered, claims, bodies, records)
  local to_drop = ''
  for i, claim in ipairs(claims) do
    if claim.waits_for then to_drop = to_drop .. string.char(i) end
  end
  local reply = {
    now, lost, stopped, overdue_in(now, promotion), version, more, last and 0 or 1, recovered and 1 or 0,
    any_limits and table.concat(redis.call('HKEYS', paused_tasks)) or '', to_drop,
  }
  for i, claim in ipairs(claims) do
    local size = #reply
    reply[size + 1], reply[size + 2], reply[size + 3] = claim.member, claim.queue, claim.rank
    reply[size + 4], reply[size + 5] = bodies[i], records[i]
  end
  return reply
end

-- The answer to an exchange that is not applied: it is cancelled, too old, or was applied before. Nothing for others.
do
  -- A blocking exchange is cancelled if its number was sent again with want = 0, or its process has left. Its blocking
  -- pop consumed a notification all the same, so it is sent again.
  local last_number, lost_size, stopped_size, position = struct.unpack('>I8I4I4', last or string.rep('\0', 16))
  if blocking and want > 0 and number <= last_number or blocking and not last then
    for base = FIXED + 1, FIXED + 4 * served, 4 do
      if redis.call('EXISTS', KEYS[base], KEYS[base + 2]) > 0 then notify_workers(KEYS[base + 1]) end
    end
    if not last then return answer('', '', 1, false, {}) end
  end
  if last then
    if number < last_number then return redis.error_reply('STALEEXCHANGE ' .. last_number) end
    if number == last_number then
      local stopped_at, held = position + lost_size, {}
      local lost = string.sub(last, position, stopped_at - 1)
      local stopped = string.sub(last, stopped_at, stopped_at + stopped_size - 1)
      for i = stopped_at + stopped_size, #last - 25, 26 do
        local member, rank, queue = struct.unpack('>c14I8I4', last, i)
        -- If it was claimed although it may not begin, it holds nothing.
        local waits = has(member, LIMITED) and redis.call('HEXISTS', claim_limits, string.sub(member, 1, 12)) == 0
        if redis.call('ZSCORE', leases, member .. token) then
          held[#held + 1] = {member = member, rank = rank, queue = queue, waits_for = waits}
        end
      end
      return answer(lost, stopped, 1, false, held, read(jobs, held), read(attempts, held))
    end
  end
end

-- Type checks (see the prelude).
redis.call('HLEN', claim_records); redis.call('ZCARD', workers); redis.call('ZCARD', queues)
local any_tenants = not is_plain and check_tenants()
-- Without outcomes these two are only read, and that before anything is claimed.
if #ARGV[14] > 0 or #ARGV >= OUTCOMES_AT then redis.call('HLEN', jobs); redis.call('HLEN', attempts) end
local any_paused = not is_plain and redis.call('HLEN', paused) > 0
promotion_at = promotion
if any_limits then
  check_limit_states(); check_hashes(claim_limits); check_schedules()
end
if worker_name ~= '' then redis.call('HLEN', worker_names) end
if ARGV[16] ~= '0' then check_dead_letters() end
local outcome_keys = FIXED + 4 * served + tonumber(ARGV[18])
for base = outcome_keys, #KEYS - 4, 4 do
  check_scheduled(KEYS[base + 1]); check_ready(KEYS[base + 2])
  if any_limits then redis.call('ZCARD', KEYS[base + 4]) end
end
-- A job that is claimed may give its key up.
if not is_plain and want > 0 then check_hashes(job_extras, unique_keys) end

-- Apply the outcomes.
local lost, stopped = '', ''
do
  -- Read the outcomes first, then see which of them still hold their lease.
  local acknowledged, not_done, dead_count, retry_count = ARGV[14], ARGV[15], tonumber(ARGV[16]), tonumber(ARGV[17])
  local settled, dead, retries, results, outcomes, at = {}, {}, {}, {}, {}, OUTCOMES_AT
  for i = 1, #acknowledged, 30 do settled[#settled + 1] = string.sub(acknowledged, i, i + 29) end
  for i = 1, #not_done, 31 do outcomes[string.sub(not_done, i, i + 29)] = string.sub(not_done, i + 30, i + 30) end
  for _ = 1, dead_count do
    dead[ARGV[at]], settled[#settled + 1], at = {ARGV[at + 1], ARGV[at + 2]}, ARGV[at], at + 3
  end
  for _ = 1, retry_count do
    local due = math.min(now + tonumber(ARGV[at + 2]), LATEST)
    retries[ARGV[at]] = {queue = tonumber(ARGV[at + 1]), due = due, record = ARGV[at + 3], rank = tonumber(ARGV[at + 4])}
    settled[#settled + 1], at = ARGV[at], at + 5
  end
  for key = FIXED + 4 * served + 1, outcome_keys do
    results[ARGV[at]] = {key = KEYS[key], ending = ARGV[at + 1], ttl = ARGV[at + 2]}
    settled[#settled + 1], at = ARGV[at], at + 3
  end
  while at <= #ARGV do
    -- A release is a retry that counts no attempt.
    retries[ARGV[at]] = {queue = tonumber(ARGV[at + 1]), rank = tonumber(ARGV[at + 2]), paused_task = ARGV[at + 3]}
    settled[#settled + 1], at = ARGV[at], at + 4
  end
  local alive, seen, has_extras = {}, {}, false
  if #settled > 0 then
    local ends = redis.call('ZMSCORE', leases, unpack(settled))
    for i, lease in ipairs(settled) do
      if not ends[i] then lost = lost .. lease elseif not seen[lease] then alive[#alive + 1] = lease end
      seen[lease], has_extras = true, has_extras or has(lease, HAS_EXTRAS)
    end
  end
  if has_extras then check_hashes(job_extras, unique_keys) end
  -- If somebody stopped a job, its success is accepted. Its retry, release or dead letter is refused, and the worker settles
  -- it as stopped.
  local again = {}
  for i, lease in ipairs((next(dead) or next(retries)) and alive or {}) do
    if dead[lease] or retries[lease] then again[#again + 1] = i end
  end
  for number = #again, 1, -1 do
    local lease = alive[again[number]]
    local record = redis.call('HGET', claim_records, string.sub(lease, 1, 12))
    local stop_by, due, at, has_paid = read_claim(record, string.sub(lease, 15))
    if at and retries[lease] then retries[lease].claimed = struct.unpack('>I8', record, 17) end
    if stop_by then
      stopped = stopped .. lease
      table.remove(alive, again[number])
    elseif due and due > now and retries[lease] then
      local retry = retries[lease]
      retry.rank, retry.due = nil, math.max(retry.due or 0, due)
    elseif retries[lease] then
      retries[lease].has_paid = has_paid
    end
  end

  -- Freeing first (see the prelude). From here on nobody else can settle these leases.
  redis.call('SREM', unconfirmed, '', unpack(alive))
  redis.call('ZREM', leases, '', unpack(alive))
  local ended, done, waiting = {}, {}, {}
  for i, lease in ipairs(alive) do ended[i] = string.sub(lease, 1, 12) end
  for i, held in ipairs(any_limits and #ended > 0 and redis.call('HMGET', claim_limits, unpack(ended)) or {}) do
    local retry = retries[alive[i]]
    if held then free_slots(now, alive[i], held, retry and retry.paused_task and retry.claimed) end
  end
  for i, lease in ipairs(alive) do
    local member, id = string.sub(lease, 1, 14), ended[i]
    if dead[lease] then
      put_dead_letter(now, member, unpack(dead[lease]))
    elseif retries[lease] then
      local retry = retries[lease]
      local base = outcome_keys + 4 * (retry.queue - 1)
      waiting[#waiting + 1] = member
      if retry.record then redis.call('HSET', attempts, id, retry.record) end
      local paused_task = retry.rank and retry.paused_task or ''
      if paused_task ~= '' and opens_at(limit_state(now, paused_task), 1) > now then
        park(KEYS[base + 4], member, retry.rank, paused_task)
        schedule_let_in(paused_task, now + LOOK_AGAIN)
      elseif retry.rank then
        put_ready(now, KEYS[base + 2], KEYS[base + 3], {retry.rank, member})
      else
        put_scheduled(KEYS[base + 1], {retry.due, member})
      end
      if retry.rank and retry.has_paid then refund_turn(KEYS[base + 2], member) end
    else
      local result = results[lease]
      if result then keep_result(result.key, id, result.ending, result.ttl) end
      if has_extras then end_job(now, member, outcomes[lease] or RUN_DONE) end
      done[#done + 1] = id
    end
  end
  -- After all of them: a job that has ended may have held the key.
  for _, member in ipairs(waiting) do take_key_again(member) end
  if #ended > 0 then redis.call('HDEL', claim_records, unpack(ended)) end
  if #done > 0 then redis.call('HDEL', jobs, unpack(done)); redis.call('HDEL', attempts, unpack(done)) end
end

-- A paused queue sends no notification either: the worker would wake up for nothing.
for queue = 1, want > 0 and served or 0 do
  if not (any_paused and redis.call('HEXISTS', paused, KEYS[FIXED + 4 * queue - 3]) == 1) then
    table.insert(request.numbers, queue)
  end
end
-- A large body, or a job whose last attempt crashed, is claimed only as the first and then alone: several large bodies
-- would block Redis, and a second crash would blame the other jobs. A crashed job that this worker may not run is set
-- aside once, so that later claims do not meet it.
local recovered_job = may_recover and next_recovered(now, request)
-- Choose the jobs to claim: the claims and their attempts records; whether more can be claimed (see above), and the queues
-- that have more; and whether no job was set aside at last.
local claims, records, more, left, is_sure = {}, {}, 0, {}, true
do
  -- Most jobs set aside in one exchange, and most of those that are parked.
  local MOST_ASIDE, MOST_PARKED = 512, 64
  local found, aside, moved, ahead, parked_left = {}, {}, 0, want, MOST_PARKED
  local fair_left, limited_left = request.most_fair, tonumber(ARGV[13])
  repeat
    found, left = best_ready(now, request, ahead, recovered_job)
    if recovered_job then recovered_job.is_passed_over = false end
    aside = {}
    if recovered_job then table.insert(found, recovered_job); sort_jobs(request, found) end
    local known, full, rest = read(attempts, {unpack(found, 1, math.min(ahead, #found))}), false, {}
    for i, entry in ipairs(found) do
      local suspect = entry == recovered_job or crash_suspected(known[i])
      if suspect and not may_recover then
        aside[#aside + 1] = entry
      else
        local alone, limited = suspect or has(entry.member, LARGE), has(entry.member, LIMITED)
        entry.is_limited, entry.is_beyond = limited, entry.flow and fair_left <= 0 or limited and limited_left <= 0
        full = full or #claims == want or i > ahead or (alone and #claims > 0 and not entry.is_beyond)
          or limited and parked_left == 0
        if not full and not entry.is_beyond and limited and not passes_limits(now, entry) then
          aside[#aside + 1], parked_left = entry, parked_left - 1
        elseif not full and not entry.is_beyond then
          claims[#claims + 1], records[#records + 1], full = entry, known[i], alone
          if entry.flow then fair_left = fair_left - 1 end
          if limited then limited_left = limited_left - 1 end
        elseif entry ~= recovered_job or not full then
          rest[#rest + 1], entry.is_passed_over = entry, entry.is_beyond and not full
        end
      end
    end
    found = rest
    if #aside > 0 then redis.call('HLEN', jobs) end
    for _, entry in ipairs(aside) do
      local place = KEYS[FIXED + 4 * entry.queue - (entry.waits_for and 0 or 1)]
      -- A key of another type was edited manually and holds none of our data.
      if type(redis.pcall('ZCARD', place)) == 'table' then redis.call('DEL', place) end
      if entry.waits_for then
        leave(entry.place, entry.member, entry.rank)
        park(place, entry.member, entry.rank, entry.waits_for)
        schedule_let_in(entry.waits_for, math.min(entry.opens, now + LOOK_AGAIN))
        if entry == recovered_job then recovered_job = next_recovered(now, request) end
      else
        leave_ready(entry.place, entry.member, entry.rank)
        put_ready(now, place, KEYS[FIXED + 4 * entry.queue - 2], {entry.rank, entry.member})
      end
    end
    moved, ahead = moved + #aside, math.max(want, READ_AHEAD)
  until #claims > 0 or #aside == 0 or moved >= MOST_ASIDE or parked_left == 0
  more, is_sure = (#left > 0 or moved >= MOST_ASIDE or parked_left == 0) and 1 or 0, #aside == 0
  for _, entry in ipairs(found) do
    left[#left + 1] = entry.queue
    if more ~= 1 then more = entry.is_beyond and 2 or 1 end
  end
end
-- Read before anything is claimed: if the bodies cannot be read, nothing is.
local bodies, recorded = read(jobs, claims), {}
-- Claim them.
do
  local keyed, with_turn = {}, {}
  for _, claim in ipairs(claims) do
    local is_late = any_tenants and not claim.flow and has_late_turns(claim.place)
    if has(claim.member, HAS_EXTRAS) or is_late then keyed[#keyed + 1] = claim end
    if claim.flow then with_turn[#with_turn + 1] = claim end
  end
  local taken, lease_entries, claim_entries = {}, {}, {}
  for i, claim in ipairs(claims) do
    taken[claim.place] = taken[claim.place] or {}
    table.insert(taken[claim.place], claim.member)
    lease_entries[2 * i - 1], lease_entries[2 * i] = now + lease_us, claim.member .. token
    claim_entries[2 * i - 1] = string.sub(claim.member, 1, 12)
    claim_entries[2 * i] = token .. struct.pack('>I8I8B', now, claim.rank, claim.flow and 4 or 0)
    recorded[i] = struct.pack('>c14I8I4', claim.member, claim.rank, claim.queue)
  end
  for place, members in pairs(taken) do
    redis.call('ZREM', place, unpack(members))
    -- A claimed job keeps its queue listed, as its heartbeats do.
    redis.call('ZADD', queues, 'XX', now, queue_of(place))
  end
  if #claims > 0 then
    redis.call('ZADD', leases, unpack(lease_entries))
    redis.call('HSET', claim_records, unpack(claim_entries))
    if #with_turn > 0 then charge(with_turn, is_sure) end
    for i, claim in ipairs(claims) do
      local lease = lease_entries[2 * i]
      if claim.is_limited and claim.waits_for then
        -- A limit may have let it in before its schedule drops it.
        forget_let_in(claim.place, claim.member)
      elseif claim.is_limited then
        store_slots(now, claim.place, lease, claim.record)
      end
    end
    -- Since the first look at these, jobs of this exchange may have become ready again.
    local has_tenants = #keyed > 0 and redis.call('EXISTS', tenant_jobs) == 1
    for _, claim in ipairs(keyed) do
      if has_tenants and not claim.flow then remove_tenant_job(claim.place, claim.member, claim.rank) end
      if not claim.record or key_of_extras(claim.record) then
        give_up_key(claim.member)
      end
    end
    for i = 2, blocking and #lease_entries or 0, 2 do redis.call('SADD', unconfirmed, lease_entries[i]) end
  end
end
-- Recovered jobs that remain need a worker with a free process, so a worker that claimed one notifies the next. A
-- worker that claimed none, because it has no process, starts one; if it notified too, it would keep waking itself.
local recovered_waits = not (may_recover and not recovered_job) and any_recovered(request)
-- The worker has no free slot for a recovered job with a limit. Because of `more` it sends the next request when a slot is
-- free. If the reply said that recovered jobs remain, or if a notification were sent, it would repeat the request at once.
if recovered_job and recovered_job.is_passed_over then recovered_waits = false end
-- Those of paused tenants do not count.
if recovered_waits and request.fair ~= '' then recovered_waits = next_recovered(now, request) ~= nil end
if recovered_job and recovered_waits then notify_workers(KEYS[FIXED + 4 * recovered_job.queue - 2]) end
do
  local notified = {}
  for _, queue in ipairs(left) do
    if not notified[queue] then notified[queue] = true; push_notification(KEYS[FIXED + 4 * queue - 2]) end
  end
  if #left > 0 then push_notification(notify) end
  local sizes = struct.pack('>I8I4I4', number, #lost, #stopped)
  redis.call('HSET', exchanges, worker, sizes .. lost .. stopped .. table.concat(recorded))
  redis.call('ZADD', workers, now, worker)
  if worker_name ~= '' then redis.call('HSET', worker_names, worker, worker_name) end
end
return answer(lost, stopped, more, recovered_waits, claims, bodies, records)
