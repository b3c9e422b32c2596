-- Settle_and_claim: a worker hands in outcomes, each fenced by its lease, and takes its next claims under a lease; repeatable.
-- KEYS: leases, claim_records, exchanges, jobs, attempts, job_extras, unique_keys, dead_letters, dead_bodies, queues,
--   queues_version, next_due, notify, workers, worker_names, paused, next_promotion, notify_dispatcher, dead_bytes,
--   unconfirmed; then ready, bell and recovered of each served queue, then results of each job whose result is kept,
--   then schedule, ready and bell of each outcome queue.
-- ARGV: now, worker (8 bytes), exchange number, want, lease (µs), 1 = strict queue order, number of served queues,
--   description ('' = known), 1 = it may take a recovered job (one whose last attempt crashed), 1 = armed: it waited
--   behind a blocking pop, and what it takes is unconfirmed, acknowledged leases (30 bytes each, joined), number of dead
--   letters, of retries and of kept results, then dead letters: lease, attempts record; retries: lease, outcome queue,
--   delay (µs), record, rank to keep ('' = that of its new due time); acknowledged with a result: lease, ending, for how
--   long (ms); releases: lease, queue, rank.
-- Returns: now (µs), lost leases (30 bytes each, joined), µs after which nobody promotes (0 = nobody does), version of
--   the queues ('' = none), 1 = takeable work was left behind, 1 = no earlier exchange of this worker is known here, 1 =
--   recovered jobs were left behind, then per claim: member, served queue, rank, body, attempts record (false = none).
-- Errors: STALEEXCHANGE (a later one was carried out). An equal number gets the recorded answer and what is still held.
-- Cost: O(k log n), and O(1) a served queue.
local now, worker, number, want, lease_us = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local strict, served, description, may_recover, armed, acknowledged = ARGV[6] == '1', tonumber(ARGV[7]), ARGV[8], ARGV[9] == '1', ARGV[10] == '1', ARGV[11]

-- No sweep is longer than 5 s: who would promote later than that never wrote so by this clock.
local OVERDUE, LONGEST_SWEEP = 1000000, 5000000
-- Most jobs set aside in one exchange, and looked at once some were; keys of one EXISTS (Lua takes some thousand arguments).
local MOST_ASIDE, LOOK, SLICE = 512, 64, 1000
local shard = {queues = queues, queues_version = queues_version, next_due = next_due, notify = notify, next_promotion = next_promotion, notify_dispatcher = notify_dispatcher}
local token = worker .. struct.pack('>I8', number)

local last = redis.call('HGET', exchanges, worker)
-- Shorter than any we write: it was written by hand, and says nothing.
if last and #last < 12 then last = false end
local wake, version = redis.call('GET', next_promotion), redis.call('GET', queues_version) or ''
local function read(hash, claims)
  local ids = {}
  for i, claim in ipairs(claims) do ids[i] = string.sub(claim.member, 1, 12) end
  return #ids > 0 and redis.call('HMGET', hash, unpack(ids)) or ids
end

local function answer(lost, more, recovered, claims, bodies_read, records)
  -- Nor is a dispatcher alive that wrote no number, or one farther ahead than any sweep: the clock was set back.
  local at = tonumber(wake or '') or 0
  local left = at + OVERDUE - now
  local reply = {now, lost, left >= 0 and left <= LONGEST_SWEEP + 2 * OVERDUE and left + 1 or 0, version, more and 1 or 0, last and 0 or 1, recovered and 1 or 0}
  for i, claim in ipairs(claims) do
    local size = #reply
    reply[size + 1], reply[size + 2], reply[size + 3] = claim.member, claim.queue, claim.rank
    reply[size + 4], reply[size + 5] = bodies_read[i], records[i]
  end
  return reply
end

-- An armed exchange that is void (sent again as disarmed, or of a process that has left) had a bell popped for it.
local last_number, lost_size, position = struct.unpack('>I8I4', last or string.rep('\0', 12))
if armed and want > 0 and number <= last_number or armed and not last then
  for base = FIXED + 1, FIXED + 3 * served, 3 do
    if redis.call('EXISTS', KEYS[base], KEYS[base + 2]) > 0 then push_notification(KEYS[base + 1]); push_notification(notify) end
  end
  if not last then return answer('', true, false, {}) end
end
if last then
  if number < last_number then return redis.error_reply('STALEEXCHANGE ' .. last_number) end
  if number == last_number then
    local held = {}
    for i = position + lost_size, #last - 25, 26 do
      local member, rank, queue = struct.unpack('>c14I8I4', last, i)
      if redis.call('ZSCORE', leases, member .. token) then held[#held + 1] = {member = member, rank = rank, queue = queue} end
    end
    return answer(string.sub(last, position, position + lost_size - 1), true, false, held, read(jobs, held), read(attempts, held))
  end
end

-- Read before the first write: a key of another type (written by hand) refuses the step, or would end it half-done.
redis.call('HLEN', claim_records); redis.call('ZCARD', workers); redis.call('ZCARD', queues)
-- Where nothing is handed in these are read only, and that before anything is taken.
if #acknowledged > 0 or #ARGV > 14 then redis.call('HLEN', jobs); redis.call('HLEN', attempts) end
local pauses = redis.call('HLEN', paused) > 0
if description ~= '' then redis.call('HLEN', worker_names) end
if tonumber(ARGV[12]) > 0 then redis.call('HLEN', dead_bodies); redis.call('ZCARD', dead_letters); redis.call('GET', dead_bytes) end
local results, outcome_keys = {}, FIXED + 3 * served + tonumber(ARGV[14])
for base = outcome_keys, #KEYS - 3, 3 do check_scheduled(shard, KEYS[base + 1]); check_ready(shard, KEYS[base + 2]) end

-- Look first: which outcomes still hold their lease, and what is there to take.
local settled, dead, retries, at = {}, {}, {}, 15
for i = 1, #acknowledged, 30 do settled[#settled + 1] = string.sub(acknowledged, i, i + 29) end
for _ = 1, tonumber(ARGV[12]) do
  dead[ARGV[at]], settled[#settled + 1], at = ARGV[at + 1], ARGV[at], at + 2
end
for _ = 1, tonumber(ARGV[13]) do
  retries[ARGV[at]] = {queue = tonumber(ARGV[at + 1]), due = math.min(now + tonumber(ARGV[at + 2]), LATEST), record = ARGV[at + 3], rank = tonumber(ARGV[at + 4])}
  settled[#settled + 1], at = ARGV[at], at + 5
end
for key = FIXED + 3 * served + 1, outcome_keys do
  results[ARGV[at]] = {key = KEYS[key], ending = ARGV[at + 1], ttl = ARGV[at + 2]}
  settled[#settled + 1], at = ARGV[at], at + 3
end
while at <= #ARGV do
  -- A release is a retry that counts nothing.
  retries[ARGV[at]] = {queue = tonumber(ARGV[at + 1]), rank = tonumber(ARGV[at + 2])}
  settled[#settled + 1], at = ARGV[at], at + 3
end
local alive, lost, seen, noted = {}, '', {}, false
if #settled > 0 then
  local ends = redis.call('ZMSCORE', leases, unpack(settled))
  for i, lease in ipairs(settled) do
    if not ends[i] then lost = lost .. lease elseif not seen[lease] then alive[#alive + 1] = lease end
    seen[lease], noted = true, noted or has(lease, NOTED)
  end
end
if noted then redis.call('HLEN', job_extras); redis.call('HLEN', unique_keys) end

-- The fence. Also the first write, one that frees: with its memory full, Redis refuses a script that begins by growing.
redis.call('SREM', unconfirmed, '', unpack(alive))
redis.call('ZREM', leases, '', unpack(alive))
local ended, done = {}, {}
for i, lease in ipairs(alive) do
  local member = string.sub(lease, 1, 14)
  local id = string.sub(member, 1, 12)
  ended[i] = id
  if dead[lease] then
    dead_letter(member, dead[lease], now, jobs, attempts, job_extras, unique_keys, dead_letters, dead_bodies, dead_bytes)
  elseif retries[lease] then
    local retry = retries[lease]
    local base = outcome_keys + 3 * (retry.queue - 1)
    if retry.record then redis.call('HSET', attempts, id, retry.record) end
    if retry.rank then
      put_ready(shard, now, KEYS[base + 2], KEYS[base + 3], {retry.rank, member})
    else
      put_scheduled(shard, KEYS[base + 1], {retry.due, member})
    end
  else
    local result = results[lease]
    if result then keep_result(result.key, redis.call('HGET', attempts, id) or '', result.ending, redis.call('HGET', jobs, id) or '', result.ttl) end
    let_go(job_extras, unique_keys, member)
    done[#done + 1] = id
  end
end
if #ended > 0 then redis.call('HDEL', claim_records, unpack(ended)) end
if #done > 0 then redis.call('HDEL', jobs, unpack(done)); redis.call('HDEL', attempts, unpack(done)) end

-- Of a paused queue not even a bell is rung: its work would keep the worker awake.
local unpaused, aside_keys = {}, {}
for queue = 1, want > 0 and served or 0 do
  if not (pauses and redis.call('HEXISTS', paused, KEYS[FIXED + 3 * queue - 2]) == 1) then
    unpaused[#unpaused + 1], aside_keys[#aside_keys + 1] = queue, KEYS[FIXED + 3 * queue]
  end
end

local function precedes(a, b)
  if strict and a.queue ~= b.queue then return a.queue < b.queue end
  return a.rank < b.rank or (a.rank == b.rank and a.order < b.order)
end

-- The count + 1 best of all ready (part 1 of a queue's keys) or recovered jobs (part 3), and the queues not looked at.
-- The best of each queue first: the k-th best queue can give at most count + 2 - k of the count + 1 best jobs.
local function best(part, count)
  local found, sources, left = {}, {}, {}
  for _, queue in ipairs(unpaused) do
    local place = KEYS[FIXED + 3 * queue - 3 + part]
    -- The best of an only queue are the best there are: read at once.
    local heads = lowest(place, served == 1 and count or 0)
    if heads[1] then sources[#sources + 1] = {queue = queue, rank = tonumber(heads[2]), order = queue, place = place, heads = served == 1 and heads} end
  end
  if #sources > 1 then table.sort(sources, precedes) end
  for k, source in ipairs(sources) do
    local most = strict and count - #found or count + 1 - k
    local heads = most < 0 and {} or source.heads or lowest(source.place, most)
    if most < 0 then left[#left + 1] = source.queue end
    for i = 1, #heads, 2 do
      if #heads[i] == 14 then
        found[#found + 1] = {member = heads[i], rank = tonumber(heads[i + 1]), queue = source.queue, order = source.queue * 1000 + i - part, place = source.place}
      else
        -- Written by hand; behind it there may be sound ones.
        redis.call('ZREM', source.place, heads[i])
        left[#left + 1] = source.queue
      end
    end
  end
  if #sources > 1 then table.sort(found, precedes) end
  return found, left
end

-- A large body or a suspect is taken only as the first and then alone: it would block Redis, or blame its neighbours.
-- A suspect that this worker may not run is set aside, once: no later claim meets it before there is a process for it.
local back = may_recover and best(3, 0)[1]
local claims, records, moved, look, found, left, aside = {}, {}, 0, want
repeat
  found, left = best(1, look)
  aside = {}
  if back then table.insert(found, back); table.sort(found, precedes) end
  local known, full, rest = read(attempts, {unpack(found, 1, math.min(look, #found))}), false, {}
  for i, entry in ipairs(found) do
    local suspect = entry == back or is_suspect(known[i])
    if suspect and not may_recover then
      aside[#aside + 1] = entry
    else
      local alone = suspect or has(entry.member, LARGE)
      full = full or #claims == want or i > look or (alone and #claims > 0)
      if not full then
        claims[#claims + 1], records[#records + 1], full = entry, known[i], alone
      elseif entry ~= back then
        rest[#rest + 1] = entry
      end
    end
  end
  found = rest
  if #aside > 0 then redis.call('HLEN', jobs) end
  for _, entry in ipairs(aside) do
    local place = KEYS[FIXED + 3 * entry.queue]
    -- Of another type: written by hand, it holds nothing of ours.
    if type(redis.pcall('ZCARD', place)) == 'table' then redis.call('DEL', place) end
    redis.call('ZREM', entry.place, entry.member)
    put_ready(shard, now, place, KEYS[FIXED + 3 * entry.queue - 1], {entry.rank, entry.member})
  end
  moved, look = moved + #aside, math.max(want, LOOK)
until #claims > 0 or #aside == 0 or moved >= MOST_ASIDE
-- Before anything is taken: where it cannot be read, nothing is.
local bodies_read = read(jobs, claims)
local taken, leased, runs, kept = {}, {}, {}, {}
for i, claim in ipairs(claims) do
  taken[claim.place] = taken[claim.place] or {}
  table.insert(taken[claim.place], claim.member)
  leased[2 * i - 1], leased[2 * i] = now + lease_us, claim.member .. token
  runs[2 * i - 1] = string.sub(claim.member, 1, 12)
  runs[2 * i] = token .. struct.pack('>I8I8B', now, claim.rank, 0)
  kept[i] = struct.pack('>c14I8I4', claim.member, claim.rank, claim.queue)
end
for place, members in pairs(taken) do
  redis.call('ZREM', place, unpack(members))
  -- What is claimed keeps its queue remembered, as its heartbeats do.
  redis.call('ZADD', queues, 'XX', now, queue_of(place))
end
if #claims > 0 then
  redis.call('ZADD', leases, unpack(leased))
  redis.call('HSET', claim_records, unpack(runs))
  for i = 2, armed and #leased or 0, 2 do redis.call('SADD', unconfirmed, leased[i]) end
end
-- Recovered jobs left behind: of interest where there is a process, so whoever took one tells the next worker. Who took
-- none, for want of a process, starts one; did it ring too, it would wake itself again and again.
local recovered = 0
for from = 1, #aside_keys, SLICE do
  recovered = recovered + redis.call('EXISTS', unpack(aside_keys, from, math.min(from + SLICE - 1, #aside_keys)))
end
if back and recovered > 0 then push_notification(KEYS[FIXED + 3 * back.queue - 1]); push_notification(notify) end
for _, entry in ipairs(found) do left[#left + 1] = entry.queue end
local rung = {}
for _, queue in ipairs(left) do
  if not rung[queue] then rung[queue] = true; push_notification(KEYS[FIXED + 3 * queue - 1]) end
end
if #left > 0 then push_notification(notify) end
redis.call('HSET', exchanges, worker, struct.pack('>I8I4', number, #lost) .. lost .. table.concat(kept))
redis.call('ZADD', workers, now, worker)
if description ~= '' then redis.call('HSET', worker_names, worker, description) end
return answer(lost, #left > 0 or moved >= MOST_ASIDE, recovered > 0 and not (may_recover and not back), claims, bodies_read, records)
