-- Settle_and_claim: a worker hands in its outcomes and claims its next jobs under a new token. An outcome applies only
--   while its lease stands. Safe to repeat: a repeated number gets the recorded answer.
-- KEYS: leases, claim_records, exchanges, jobs, attempts, job_extras, unique_keys, dead_letters, dead_bodies, queues,
--   queues_version, next_due, notify, workers, worker_names, paused, next_promotion, notify_dispatcher, dead_bytes,
--   unconfirmed, tenant_jobs, turns, tenants; then ready, notify and recovered of each served queue, then results of each job whose result is kept,
--   then scheduled, ready and notify of each queue that a retry or release names.
-- ARGV: now, worker (8 bytes), exchange number, most claims, lease (µs), 1 = strict queue order, number of served
--   queues, worker's name ('' = stored already), 1 = it may claim a recovered job (its last attempt crashed), 1 =
--   blocking (it was sent behind a blocking pop, so its claims are unconfirmed), 1 or 0 for each served queue: whether
--   it is fair ('' = none is), most claims of fair queues, leases to acknowledge (30 bytes each, joined), number of dead
--   letters, of retries, of kept results; then dead letters: lease, attempts record; retries:
--   lease, queue number, delay (µs), attempts record, rank to keep ('' = none: the delay applies); kept results: lease,
--   JSON, for how long (ms); releases: lease, queue number, rank. A job that was claimed before it was due, and is
--   retried or released, waits at least for its time.
-- Returns: now (µs), lost leases (30 bytes each, joined), leases whose job was asked to stop, so that its retry,
--   release or dead letter was refused (30 bytes each, joined), µs after which no dispatcher promotes any more (0 =
--   none does), version of the queues ('' = none), 1 = more jobs can be claimed, 2 = more of fair queues only, 1 = no
--   earlier exchange of this worker
--   is known, 1 = recovered jobs remain that this worker does not run, then per claim: member, number of its served
--   queue, rank, body, attempts record (false = none).
-- Errors: STALEEXCHANGE: a later exchange of this worker was applied.
-- Cost: O(k log n), and O(1) a served queue. It drops at most 512 stale entries of fair queues; then more can be claimed.
local now, worker, number, want = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local lease_us, strict, served, worker_name = tonumber(ARGV[5]), ARGV[6] == '1', tonumber(ARGV[7]), ARGV[8]
local may_recover, blocking, fair, most_fair = ARGV[9] == '1', ARGV[10] == '1', ARGV[11], tonumber(ARGV[12])
local acknowledged = ARGV[13]
local dead_count, retry_count, kept_count = tonumber(ARGV[14]), tonumber(ARGV[15]), tonumber(ARGV[16])
local OUTCOMES_AT = 17

-- No sweep is longer than 5 s: a promotion announced for later than that was written before the clock was set back.
local OVERDUE, LONGEST_SWEEP = 1000000, 5000000
-- Most jobs set aside in one exchange, and jobs read at once after some were; keys of one EXISTS (Lua passes some
-- thousand arguments at most).
local MOST_ASIDE, READ_AHEAD, EXISTS_KEYS = 512, 64, 1000
local token = worker .. struct.pack('>I8', number)

local last = redis.call('HGET', exchanges, worker)
-- No script writes a shorter one: it was edited manually.
if last and #last < 16 then last = false end
local promotion, version = redis.call('GET', next_promotion), redis.call('GET', queues_version) or ''

local function read(hash, claims)
  local ids = {}
  for i, claim in ipairs(claims) do ids[i] = string.sub(claim.member, 1, 12) end
  return #ids > 0 and redis.call('HMGET', hash, unpack(ids)) or ids
end

local function answer(lost, stopped, more, recovered, claims, bodies, records)
  local overdue_in = (tonumber(promotion or '') or 0) + OVERDUE - now
  -- Written so that NaN (it was edited manually) counts as overdue.
  if not (overdue_in >= 0 and overdue_in <= LONGEST_SWEEP + 2 * OVERDUE) then overdue_in = -1 end
  local reply = {
    now, lost, stopped, overdue_in + 1, version, more, last and 0 or 1, recovered and 1 or 0,
  }
  for i, claim in ipairs(claims) do
    local size = #reply
    reply[size + 1], reply[size + 2], reply[size + 3] = claim.member, claim.queue, claim.rank
    reply[size + 4], reply[size + 5] = bodies[i], records[i]
  end
  return reply
end

-- A blocking exchange is cancelled if its number was sent again with want = 0, or its process has left. Its blocking
-- pop consumed a notification all the same, so it is sent again.
local last_number, lost_size, stopped_size, position = struct.unpack('>I8I4I4', last or string.rep('\0', 16))
if blocking and want > 0 and number <= last_number or blocking and not last then
  for base = FIXED + 1, FIXED + 3 * served, 3 do
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
      if redis.call('ZSCORE', leases, member .. token) then
        held[#held + 1] = {member = member, rank = rank, queue = queue}
      end
    end
    return answer(lost, stopped, 1, false, held, read(jobs, held), read(attempts, held))
  end
end

-- Type checks (see the prelude).
redis.call('HLEN', claim_records); redis.call('ZCARD', workers); redis.call('ZCARD', queues)
local any_tenants = check_tenants()
-- Without outcomes these two are only read, and that before anything is claimed.
if #acknowledged > 0 or #ARGV >= OUTCOMES_AT then redis.call('HLEN', jobs); redis.call('HLEN', attempts) end
local any_paused = redis.call('HLEN', paused) > 0
if worker_name ~= '' then redis.call('HLEN', worker_names) end
if dead_count > 0 then
  redis.call('HLEN', dead_bodies); redis.call('ZCARD', dead_letters); redis.call('GET', dead_bytes)
end
local outcome_keys = FIXED + 3 * served + kept_count
for base = outcome_keys, #KEYS - 3, 3 do check_scheduled(KEYS[base + 1]); check_ready(KEYS[base + 2]) end

-- Read the outcomes first, then see which of them still hold their lease.
local settled, dead, retries, results, at = {}, {}, {}, {}, OUTCOMES_AT
for i = 1, #acknowledged, 30 do settled[#settled + 1] = string.sub(acknowledged, i, i + 29) end
for _ = 1, dead_count do
  dead[ARGV[at]], settled[#settled + 1], at = ARGV[at + 1], ARGV[at], at + 2
end
for _ = 1, retry_count do
  local due = math.min(now + tonumber(ARGV[at + 2]), LATEST)
  retries[ARGV[at]] = {queue = tonumber(ARGV[at + 1]), due = due, record = ARGV[at + 3], rank = tonumber(ARGV[at + 4])}
  settled[#settled + 1], at = ARGV[at], at + 5
end
for key = outcome_keys - kept_count + 1, outcome_keys do
  results[ARGV[at]] = {key = KEYS[key], ending = ARGV[at + 1], ttl = ARGV[at + 2]}
  settled[#settled + 1], at = ARGV[at], at + 3
end
while at <= #ARGV do
  -- A release is a retry that counts no attempt.
  retries[ARGV[at]] = {queue = tonumber(ARGV[at + 1]), rank = tonumber(ARGV[at + 2])}
  settled[#settled + 1], at = ARGV[at], at + 3
end
local alive, lost, seen, has_extras = {}, '', {}, false
if #settled > 0 then
  local ends = redis.call('ZMSCORE', leases, unpack(settled))
  for i, lease in ipairs(settled) do
    if not ends[i] then lost = lost .. lease elseif not seen[lease] then alive[#alive + 1] = lease end
    seen[lease], has_extras = true, has_extras or has(lease, HAS_EXTRAS)
  end
end
-- A job that is claimed may give its key up, after outcomes were applied.
if has_extras or (want > 0 and #settled > 0) then redis.call('HLEN', job_extras); redis.call('HLEN', unique_keys) end
-- A job that was asked to stop is not run again, nor dead: its worker settles it once more, as stopped. A job that
-- succeeded is done nevertheless.
local stopped, again = '', {}
for i, lease in ipairs((next(dead) or next(retries)) and alive or {}) do
  if dead[lease] or retries[lease] then again[#again + 1] = i end
end
for number = #again, 1, -1 do
  local lease = alive[again[number]]
  local record = redis.call('HGET', claim_records, string.sub(lease, 1, 12))
  local stop_by, due, _, has_paid = read_claim(record, string.sub(lease, 15))
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
for i, lease in ipairs(alive) do
  local member = string.sub(lease, 1, 14)
  local id = string.sub(member, 1, 12)
  ended[i] = id
  if dead[lease] then
    put_dead_letter(now, member, dead[lease])
  elseif retries[lease] then
    local retry = retries[lease]
    local base = outcome_keys + 3 * (retry.queue - 1)
    waiting[#waiting + 1] = member
    if retry.record then redis.call('HSET', attempts, id, retry.record) end
    if retry.rank then
      put_ready(now, KEYS[base + 2], KEYS[base + 3], {retry.rank, member})
      if retry.has_paid then refund_turn(KEYS[base + 2], member) end
    else
      put_scheduled(KEYS[base + 1], {retry.due, member})
    end
  else
    local result = results[lease]
    if result then keep_result(result.key, id, result.ending, result.ttl) end
    delete_extras(member)
    done[#done + 1] = id
  end
end
-- After all of them: a job that has ended may have held the key.
for _, member in ipairs(waiting) do take_key_again(member) end
if #ended > 0 then redis.call('HDEL', claim_records, unpack(ended)) end
if #done > 0 then redis.call('HDEL', jobs, unpack(done)); redis.call('HDEL', attempts, unpack(done)) end

-- A paused queue sends no notification either: the worker would wake up for nothing.
local unpaused, recovered_keys = {}, {}
for queue = 1, want > 0 and served or 0 do
  if not (any_paused and redis.call('HEXISTS', paused, KEYS[FIXED + 3 * queue - 2]) == 1) then
    unpaused[#unpaused + 1], recovered_keys[#recovered_keys + 1] = queue, KEYS[FIXED + 3 * queue]
  end
end

local function is_fair(queue)
  return string.byte(fair, queue) == 49
end

local function precedes(a, b)
  if strict and a.queue ~= b.queue then return a.queue < b.queue end
  local first, second = a.sorted_by or a.rank, b.sorted_by or b.rank
  return first < second or (first == second and a.order < b.order)
end

-- The ranks of the first jobs of a fair queue: the n-th of its turns has the place of the n-th rank among other queues.
local function ranks_of(place, most)
  local entries = lowest(place, most)
  local jobs = unpaused_jobs(place, entries)
  if #jobs < #entries then jobs = unpaused_jobs(place, lowest(place, math.max(most, READ_AHEAD))) end
  local ranks = {}
  for i = 2, #jobs, 2 do ranks[i / 2] = tonumber(jobs[i]) end
  return ranks
end

-- The count + 1 best of all ready jobs, and the queues not read. The best job of each queue is read first: the k-th best
-- queue holds at most count + 2 - k of the count + 1 best jobs. `beside` = whether other jobs are put among them.
local function best(count, beside)
  local found, sources, left, fair_left = {}, {}, {}, most_fair
  for _, queue in ipairs(unpaused) do
    local place, by_turns = KEYS[FIXED + 3 * queue - 2], is_fair(queue)
    -- The only queue's best jobs are the best of all: they are read at once.
    local heads = lowest(place, served == 1 and not by_turns and count or 0)
    if by_turns and heads[1] then
      give_turns(now, place)
      heads = first_unpaused(now, place, heads)
      if not heads[1] then
        local jobs, is_cut = by_turn(place, 1)
        if jobs[1] then heads = {jobs[1].member, jobs[1].rank} end
        if is_cut then left[#left + 1] = queue end
      end
    elseif by_turns then
      drop_all_idle(place)
    end
    if heads[1] then
      sources[#sources + 1] = {
        queue = queue, rank = tonumber(heads[2]), order = queue, place = place, by_turns = by_turns, heads = heads,
      }
    end
  end
  if #sources > 1 then table.sort(sources, precedes) end
  for number, source in ipairs(sources) do
    local queue, place = source.queue, source.place
    local most = strict and count - #found or count + 1 - number
    if most < 0 then
      left[#left + 1] = queue
    elseif source.by_turns then
      local ranks, last_rank = (beside or #sources > 1) and ranks_of(place, most) or {}, -math.huge
      -- After jobs were set aside more are looked at, as in other queues: those behind them may have crashed too.
      local jobs, is_cut = next_by_turn(now, place, (count > want and most or math.min(most, fair_left)) + 1)
      if is_cut then left[#left + 1] = queue end
      for i, job in ipairs(jobs) do
        job.queue, job.place, job.order = queue, place, queue * 1000 + i
        -- The jobs of a queue keep the order of its turns, also where fewer ranks are known.
        last_rank = math.max(last_rank, ranks[i] or job.rank)
        job.sorted_by, found[#found + 1], fair_left = last_rank, job, math.max(0, fair_left - 1)
      end
    else
      local heads = served == 1 and source.heads or lowest(place, most)
      for i = 1, #heads, 2 do
        if #heads[i] == 14 then
          found[#found + 1] = {
            member = heads[i], rank = tonumber(heads[i + 1]), order = queue * 1000 + i, queue = queue, place = place,
          }
        else
          -- An entry that was edited manually; correct ones may follow it.
          redis.call('ZREM', place, heads[i])
          left[#left + 1] = queue
        end
      end
    end
  end
  if #sources > 1 then table.sort(found, precedes) end
  return found, left
end

-- A large body, or a job whose last attempt crashed, is claimed only as the first and then alone: several large bodies
-- would block Redis, and a second crash would blame the other jobs. A crashed job that this worker may not run is set
-- aside once, so that later claims do not meet it.
local function next_recovered()
  local first
  for _, queue in ipairs(unpaused) do
    local place = KEYS[FIXED + 3 * queue]
    local head = lowest(place, 0)
    if is_fair(queue) then head = first_unpaused(now, place, head) end
    if head[1] and #head[1] == 14 then
      local entry = {member = head[1], rank = tonumber(head[2]), order = queue * 1000, queue = queue, place = place}
      if not first or precedes(entry, first) then first = entry end
    elseif head[1] then
      -- An entry that was edited manually.
      redis.call('ZREM', place, head[1])
    end
  end
  return first
end
local recovered_job = may_recover and next_recovered()
local claims, records, moved, ahead, fair_left, found, left, aside = {}, {}, 0, want, most_fair
repeat
  found, left = best(ahead, recovered_job)
  aside = {}
  if recovered_job then table.insert(found, recovered_job); table.sort(found, precedes) end
  local known, full, rest = read(attempts, {unpack(found, 1, math.min(ahead, #found))}), false, {}
  for i, entry in ipairs(found) do
    local suspect = entry == recovered_job or crash_suspected(known[i])
    if suspect and not may_recover then
      aside[#aside + 1] = entry
    else
      local alone = suspect or has(entry.member, LARGE)
      entry.is_beyond = entry.flow and fair_left <= 0
      full = full or #claims == want or i > ahead or (alone and #claims > 0 and not entry.is_beyond)
      if not full and not entry.is_beyond then
        claims[#claims + 1], records[#records + 1], full = entry, known[i], alone
        if entry.flow then fair_left = fair_left - 1 end
      elseif entry ~= recovered_job then
        rest[#rest + 1] = entry
      end
    end
  end
  found = rest
  if #aside > 0 then redis.call('HLEN', jobs) end
  for _, entry in ipairs(aside) do
    local place = KEYS[FIXED + 3 * entry.queue]
    -- A key of another type was edited manually and holds none of our data.
    if type(redis.pcall('ZCARD', place)) == 'table' then redis.call('DEL', place) end
    leave(entry.place, entry.member, entry.rank)
    put_ready(now, place, KEYS[FIXED + 3 * entry.queue - 1], {entry.rank, entry.member})
  end
  moved, ahead = moved + #aside, math.max(want, READ_AHEAD)
until #claims > 0 or #aside == 0 or moved >= MOST_ASIDE
-- Read before anything is claimed: if the bodies cannot be read, nothing is.
local bodies, keyed, with_turn = read(jobs, claims), {}, {}
for _, claim in ipairs(claims) do
  local is_late = any_tenants and not claim.flow and has_late_turns(claim.place)
  if has(claim.member, HAS_EXTRAS) or is_late then keyed[#keyed + 1] = claim end
  if claim.flow then with_turn[#with_turn + 1] = claim end
end
if #keyed > 0 and #settled == 0 then redis.call('HLEN', job_extras); redis.call('HLEN', unique_keys) end
local taken, lease_entries, claim_entries, recorded = {}, {}, {}, {}
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
  charge(with_turn, #aside == 0)
  for _, claim in ipairs(keyed) do
    if not claim.flow then remove_tenant_job(claim.place, claim.member, claim.rank) end
    give_up_key(claim.member)
  end
  for i = 2, blocking and #lease_entries or 0, 2 do redis.call('SADD', unconfirmed, lease_entries[i]) end
end
-- Recovered jobs that remain need a worker with a free process, so a worker that claimed one notifies the next. A
-- worker that claimed none, because it has no process, starts one; if it notified too, it would keep waking itself.
local remaining = 0
for from = 1, #recovered_keys, EXISTS_KEYS do
  local to = math.min(from + EXISTS_KEYS - 1, #recovered_keys)
  remaining = remaining + redis.call('EXISTS', unpack(recovered_keys, from, to))
end
local recovered_waits = remaining > 0 and not (may_recover and not recovered_job)
-- Those of paused tenants do not count.
if recovered_waits and fair ~= '' then recovered_waits = next_recovered() ~= nil end
if recovered_job and recovered_waits then notify_workers(KEYS[FIXED + 3 * recovered_job.queue - 1]) end
local more = (#left > 0 or moved >= MOST_ASIDE) and 1 or 0
for _, entry in ipairs(found) do
  left[#left + 1] = entry.queue
  if more ~= 1 then more = entry.is_beyond and 2 or 1 end
end
local notified = {}
for _, queue in ipairs(left) do
  if not notified[queue] then notified[queue] = true; push_notification(KEYS[FIXED + 3 * queue - 1]) end
end
if #left > 0 then push_notification(notify) end
local sizes = struct.pack('>I8I4I4', number, #lost, #stopped)
redis.call('HSET', exchanges, worker, sizes .. lost .. stopped .. table.concat(recorded))
redis.call('ZADD', workers, now, worker)
if worker_name ~= '' then redis.call('HSET', worker_names, worker, worker_name) end
return answer(lost, stopped, more, recovered_waits, claims, bodies, records)
