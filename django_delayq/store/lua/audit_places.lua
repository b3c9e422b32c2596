-- Audit_places: entries of one place against the jobs they stand for; repairs what no step could have left behind.
-- KEYS: place, leases, claim_records, jobs, dead_letters, dead_bodies, queues, queues_version, next_due, notify,
--   next_promotion, notify_dispatcher, unconfirmed; `place` is a schedule, a ready or recovered set, leases or
--   dead_letters; then schedule, ready, bell and recovered of each queue that the entries' bodies name.
-- ARGV: now, noun of the place, head start (ms), 1 = repair, then per entry (≤ 500): entry, head of its body as the caller
--   read it, member that head makes, number of its queue (0 = there is no body, or it cannot be read).
-- Returns: per entry a word: OK (or changed since it was read); MALFORMED, MISSING (no body) and TWICE (also in a later
--   state) are dropped from here; MISPLACED is put where its body says; UNKNOWN is a lease, written into `claim_records`.
-- Cost: O(log n) an entry.
local now, noun, head_start, repair = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'

local shard = {queues = queues, queues_version = queues_version, next_due = next_due, notify = notify, next_promotion = next_promotion, notify_dispatcher = notify_dispatcher}
local SIZE = {scheduled = 14, ready = 14, recovered = 14, leases = 30, dead_letters = 12}
-- Of the keys of a queue, the one that is such a place.
local OFFSET = {scheduled = 1, ready = 2, recovered = 4}

-- The lease that `claim_records` tells of, where it is one.
local function lease_of(member)
  local known = redis.call('HGET', claim_records, string.sub(member, 1, 12))
  local lease = known and string.sub(member, 1, 14) .. string.sub(known, 1, 16)
  return lease and redis.call('ZSCORE', leases, lease) and lease
end

local function judge(entry, head, member, queue)
  local id = string.sub(entry, 1, 12)
  if #entry ~= SIZE[noun] then return 'MALFORMED' end
  if noun == 'dead_letters' then return redis.call('HEXISTS', dead_bodies, id) == 1 and 'OK' or 'MISSING' end
  if redis.call('ZSCORE', dead_letters, id) then return 'TWICE' end
  local body = redis.call('HGET', jobs, id)
  if not body then return 'MISSING' end
  local lease, same = lease_of(entry), queue > 0 and string.sub(body, 1, #head) == head
  if noun == 'leases' and same and string.sub(entry, 1, 14) ~= member then return 'MISPLACED' end
  if noun == 'leases' then return lease == entry and 'OK' or lease and 'TWICE' or 'UNKNOWN' end
  if lease then return 'TWICE' end
  if not same then return 'OK' end
  local base = FIXED + 4 * (queue - 1)
  local own, later = KEYS[base + OFFSET[noun]], {}
  if noun == 'scheduled' then later = {KEYS[base + 2], KEYS[base + 4]} elseif noun == 'ready' then later = {KEYS[base + 4]} end
  if waiting_place(member, unpack(later)) then return 'TWICE' end
  return entry == member and place == own and 'OK' or 'MISPLACED'
end

-- A write that frees comes first: with its memory full, Redis refuses a script whose first write grows.
if repair then redis.call('ZREM', place, '') end
local words = {}
for at = 5, #ARGV, 4 do
  local entry, member, queue = ARGV[at], ARGV[at + 2], tonumber(ARGV[at + 3])
  local score, base = redis.call('ZSCORE', place, entry), FIXED + 4 * (queue - 1)
  local word = score and judge(entry, ARGV[at + 1], member, queue) or 'OK'
  if repair and word == 'UNKNOWN' then
    local rank = rank_of(entry, now, head_start)
    redis.call('HSET', claim_records, string.sub(entry, 1, 12), string.sub(entry, 15) .. struct.pack('>I8I8B', now, rank, 0))
  elseif repair and word ~= 'OK' then
    redis.call('ZREM', place, entry)
    if noun == 'leases' then redis.call('SREM', unconfirmed, entry) end
    if noun == 'scheduled' then index_due(next_due, place) end
    if word == 'MISPLACED' and noun == 'leases' then
      -- It stays the only lease until its end; whoever holds it under the other member is refused.
      redis.call('ZADD', place, score, member .. string.sub(entry, 15))
    elseif word == 'MISPLACED' and noun == 'scheduled' then
      put_scheduled(shard, KEYS[base + 1], {tonumber(score), member})
    elseif word == 'MISPLACED' then
      put_ready(shard, now, KEYS[base + OFFSET[noun]], KEYS[base + 3], {tonumber(score), member})
    end
  end
  words[#words + 1] = word
end
return words
