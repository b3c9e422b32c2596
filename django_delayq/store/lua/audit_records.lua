-- Audit_records: records by id against the places of their jobs; repairs what no step could have left behind.
-- KEYS: records, leases, claim_records, jobs, attempts, job_extras, unique_keys, dead_letters, dead_bodies, queues,
--   queues_version, next_due, notify, next_promotion, notify_dispatcher, dead_bytes; `records` is bodies, attempts,
--   extras, running, holders or dead_bodies; then schedule, ready, bell and recovered of each queue that the bodies
--   name.
-- ARGV: now, noun of the records, head start (ms), 1 = repair, attempts record of a dead letter made here, then per record
--   (≤ 500): its field, head of the body as the caller read it, member that head makes,
--   number of its queue (0 = there is no body, or it cannot be read).
-- Returns: per record a word: OK (or changed since it was read); MALFORMED, MISSING (its job is not there) and TWICE (its
--   job is dead) are dropped; LOST (in no place) becomes ready, or dead again; LAPSED (in no place, but `claim_records`) gets a
--   lease that has ended, for the dispatcher to judge; UNREADABLE (without a queue it can be in no place) becomes a dead
--   letter; UNLISTED names its queue where promotions or workers look; UNHELD holds its key again, or notes it to be let go.
-- Cost: O(log n) a record.
local now, noun, head_start, repair, epitaph = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1', ARGV[5]

local shard = {queues = queues, queues_version = queues_version, next_due = next_due, notify = notify, next_promotion = next_promotion, notify_dispatcher = notify_dispatcher}

local function is_placed(member, known, queue)
  local base = FIXED + 4 * (queue - 1)
  return known and redis.call('ZSCORE', leases, member .. string.sub(known, 1, 16))
    or waiting_place(member, KEYS[base + 1], KEYS[base + 2], KEYS[base + 4])
end

-- Whether promotions and workers find it where it waits; one that runs is told by its worker.
local function is_listed(member, queue)
  local base = FIXED + 4 * (queue - 1)
  local scheduled = KEYS[base + 1]
  local place, due = waiting_place(member, scheduled, KEYS[base + 2], KEYS[base + 4])
  if place ~= scheduled then return not place or redis.call('ZSCORE', queues, queue_of(place)) end
  local indexed = redis.call('ZSCORE', next_due, queue_of(scheduled))
  return indexed and tonumber(indexed) <= tonumber(due)
end

local judge = {}
function judge.jobs(id, head, member, queue, body)
  if redis.call('ZSCORE', dead_letters, id) then return 'TWICE' end
  -- One that runs is told by its worker.
  if queue == 0 then return redis.call('HEXISTS', claim_records, id) == 1 and 'OK' or 'UNREADABLE' end
  if string.sub(body, 1, #head) ~= head then return 'OK' end
  local known = redis.call('HGET', claim_records, id)
  if not is_placed(member, known, queue) then return known and 'LAPSED' or 'LOST' end
  return is_listed(member, queue) and 'OK' or 'UNLISTED'
end
function judge.attempts(id)
  return redis.call('HEXISTS', jobs, id) == 1 and 'OK' or 'MISSING'
end
function judge.job_extras(id, head, member, queue, extra)
  if redis.call('HEXISTS', jobs, id) == 0 or (queue > 0 and not has(member, NOTED)) then return 'MISSING' end
  return (queue == 0 or redis.call('HEXISTS', unique_keys, string.sub(extra, 2, 17)) == 1) and 'OK' or 'UNHELD'
end
function judge.claim_records(id, head, member, queue, known)
  if redis.call('HEXISTS', jobs, id) == 0 then return 'MISSING' end
  if queue == 0 or redis.call('ZSCORE', leases, member .. string.sub(known, 1, 16)) then return 'OK' end
  -- In no place at all: told of its body.
  return is_placed(member, known, queue) and 'MISSING' or 'OK'
end
function judge.unique_keys(digest, head, member, queue, holder)
  if #holder ~= 14 then return 'MALFORMED' end
  local id = string.sub(holder, 1, 12)
  local extra = redis.call('HEXISTS', jobs, id) == 1 and redis.call('HGET', job_extras, id)
  if extra and string.sub(extra, 2, 17) ~= digest then return 'MISSING' end
  if extra and (queue == 0 or holder == member) then return 'OK' end
  return queue > 0 and has(member, NOTED) and 'UNHELD' or 'MISSING'
end
function judge.dead_bodies(id)
  if redis.call('HEXISTS', jobs, id) == 1 and not redis.call('ZSCORE', dead_letters, id) then return 'MISSING' end
  return redis.call('ZSCORE', dead_letters, id) and 'OK' or 'LOST'
end

local words = {}
for at = 6, #ARGV, 4 do
  local field, member, queue = ARGV[at], ARGV[at + 2], tonumber(ARGV[at + 3])
  local value, base = redis.call('HGET', records, field), FIXED + 4 * (queue - 1)
  local word = 'OK'
  if value then
    local sound = #field == (noun == 'unique_keys' and 16 or 12)
    word = sound and judge[noun](field, ARGV[at + 1], member, queue, value) or 'MALFORMED'
  end
  if repair and word ~= 'OK' then
    -- A write that frees comes first: with its memory full, Redis refuses a script whose first write grows.
    redis.call('ZREM', leases, '')
    if word == 'LOST' and noun == 'jobs' then
      put_ready(shard, now, KEYS[base + 2], KEYS[base + 3], {rank_of(member, now, head_start), member})
    elseif word == 'LOST' then
      redis.call('ZADD', dead_letters, now, field)
    elseif word == 'LAPSED' then
      redis.call('ZADD', leases, now, member .. string.sub(redis.call('HGET', claim_records, field), 1, 16))
      push_notification(notify_dispatcher)
    elseif word == 'UNREADABLE' then
      dead_letter(field .. '\0\0', epitaph, now, jobs, attempts, job_extras, unique_keys, dead_letters, dead_bodies, dead_bytes)
    elseif word == 'UNHELD' and noun == 'unique_keys' then
      -- Its key is held, but would not be let go at the job's end.
      redis.call('HSET', job_extras, string.sub(value, 1, 12), '\1' .. field)
      redis.call('HSET', unique_keys, field, member)
    elseif word == 'UNHELD' then
      redis.call('HSET', unique_keys, string.sub(value, 2, 17), member)
    elseif word == 'UNLISTED' then
      index_due(next_due, KEYS[base + 1])
      push_notification(notify_dispatcher)
      if waiting_place(member, KEYS[base + 1], KEYS[base + 2], KEYS[base + 4]) ~= KEYS[base + 1] then
        remember(shard, now, KEYS[base + 2])
        push_notification(KEYS[base + 3]); push_notification(notify)
      end
    else
      redis.call('HDEL', records, field)
      if noun == 'dead_bodies' then add_dead_bytes(dead_bytes, -#value) end
    end
  end
  words[#words + 1] = word
end
return words
