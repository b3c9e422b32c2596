-- Audit_places: entries of one place are compared with the jobs that they name, and repaired if no script could have
--   left them as they are.
-- KEYS: records, leases, claim_records, jobs, dead_letters, dead_bodies, queues, queues_version, next_due, notify,
--   next_promotion, notify_dispatcher, unconfirmed, job_extras, tenant_jobs, turns, tenants, limit_jobs, next_let_in,
--   waiting_for; `records` is any scheduled, ready, recovered or parked set, `leases` or `dead_letters`; then scheduled,
--   ready, notify, recovered and parked of each queue that the bodies of the entries name.
-- ARGV: now, noun of the place, head start (ms), 1 = repair, then per entry (≤ 500): the entry, the head of its body as
--   the caller read it, the member that this head makes, the number of its queue (0 = no body, or an unreadable one).
-- Returns: per entry a word. OK: correct, or changed since the caller read it. MALFORMED, MISSING (it has no body) and
--   DUPLICATE (the job is also in a later state) are removed. MISPLACED moves to where its body belongs. NO_RECORD is a
--   lease without a claim record, which is written.
-- Cost: O(log n) an entry.
local now, noun, head_start, repair = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'

local SIZE = {scheduled = 14, ready = 14, recovered = 14, parked = 14, ['leases'] = 30, ['dead_letters'] = 12}
-- Which of a queue's keys such a place is.
local OFFSET = {scheduled = 1, ready = 2, recovered = 4, parked = 5}

-- The lease that the claim record of a job names, if `leases` holds it.
local function lease_of(member)
  local record = redis.call('HGET', claim_records, string.sub(member, 1, 12))
  local lease = record and string.sub(member, 1, 14) .. string.sub(record, 1, 16)
  return lease and redis.call('ZSCORE', leases, lease) and lease
end

local function judge(entry, head, member, queue)
  local id = string.sub(entry, 1, 12)
  if #entry ~= SIZE[noun] then return 'MALFORMED' end
  if noun == 'dead_letters' then return redis.call('HEXISTS', dead_bodies, id) == 1 and 'OK' or 'MISSING' end
  if redis.call('ZSCORE', dead_letters, id) then return 'DUPLICATE' end
  local body = redis.call('HGET', jobs, id)
  if not body then return 'MISSING' end
  local lease, same = lease_of(entry), queue > 0 and string.sub(body, 1, #head) == head
  if noun == 'leases' and same and string.sub(entry, 1, 14) ~= member then return 'MISPLACED' end
  if noun == 'leases' then return lease == entry and 'OK' or lease and 'DUPLICATE' or 'NO_RECORD' end
  if lease then return 'DUPLICATE' end
  if not same then return 'OK' end
  local base = FIXED + 5 * (queue - 1)
  local own, later = KEYS[base + OFFSET[noun]], {}
  if noun == 'scheduled' then
    later = {KEYS[base + 2], KEYS[base + 4], KEYS[base + 5]}
  elseif noun == 'ready' then
    later = {KEYS[base + 4], KEYS[base + 5]}
  elseif noun == 'recovered' then
    later = {KEYS[base + 5]}
  end
  if waiting_place(member, unpack(later)) then return 'DUPLICATE' end
  -- No limit lets it in.
  if noun == 'parked' and redis.call('HEXISTS', waiting_for, id) == 0 then return 'MISPLACED' end
  return entry == member and records == own and 'OK' or 'MISPLACED'
end

-- Freeing first (see the prelude).
if repair then redis.call('ZREM', records, '') end
local words = {}
for at = 5, #ARGV, 4 do
  local entry, member, queue = ARGV[at], ARGV[at + 2], tonumber(ARGV[at + 3])
  local score, base = redis.call('ZSCORE', records, entry), FIXED + 5 * (queue - 1)
  local word = score and judge(entry, ARGV[at + 1], member, queue) or 'OK'
  if repair and word == 'NO_RECORD' then
    local rank = rank_of(entry, now, head_start)
    local record = string.sub(entry, 15) .. struct.pack('>I8I8B', now, rank, 0)
    redis.call('HSET', claim_records, string.sub(entry, 1, 12), record)
  elseif repair and word ~= 'OK' then
    if OFFSET[noun] then leave(records, entry, score) else redis.call('ZREM', records, entry) end
    if noun == 'leases' then redis.call('SREM', unconfirmed, entry) end
    if word == 'MISPLACED' and noun == 'leases' then
      -- It stays the only lease until its end; a worker that holds it under the other member is refused.
      redis.call('ZADD', records, score, member .. string.sub(entry, 15))
    elseif word == 'MISPLACED' and noun == 'scheduled' then
      put_scheduled(KEYS[base + 1], {tonumber(score), member})
    elseif word == 'MISPLACED' then
      -- A parked job becomes ready: a claim parks it again.
      put_ready(now, KEYS[base + (noun == 'recovered' and 4 or 2)], KEYS[base + 3], {tonumber(score), member})
    end
  end
  words[#words + 1] = word
end
return words
