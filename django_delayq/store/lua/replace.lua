-- Replace: each job of a batch (1 to 250) has a unique key. If no job holds the key, the job is stored as `enqueue` stores
--   it. If a waiting job holds the key, that job gets the body, the options and the time of the new one, keeps its id, and
--   begins with its first attempt. If the holder runs, nothing happens to it. Either all of this is done, or nothing.
--   Safe to repeat.
-- KEYS: jobs, attempts, job_extras, unique_keys, claim_records, dead_bodies, queues, queues_version, next_due, notify,
--   next_promotion, notify_dispatcher, withdrawn; then scheduled, ready, notify and recovered of each queue of the new
--   jobs and of the holders.
-- ARGV: now, head start (ms), then per job: number of its queue, member, due time ('' = at once, '+n' = n µs from now, n =
--   µs since the epoch), body (signed for the id of the holder if there is one), extras record, the holder's member that
--   the caller read ('' = none), number of the holder's queue (0 = none). No two have the same key.
-- Returns: now (µs), then per job STORED, REPLACED or KEPT (the holder runs). Now and ELSEWHERE alone: a key has another
--   holder, or a holder another queue, than the caller read; nothing was done, read the holders again.
-- Cost: O(log n) a job.
local now, head_start = now_us(ARGV[1]), tonumber(ARGV[2])

-- What becomes of a job, and the place where its holder waits.
local function judge(own_id, key, holder, base)
  if redis.call('ZSCORE', withdrawn, own_id) then return 'STORED' end
  if (redis.call('HGET', unique_keys, key) or '') ~= holder then return 'ELSEWHERE' end
  if holder == '' then
    -- A repeated call: the job runs, has given its key up, or is dead.
    local is_known = redis.call('HEXISTS', jobs, own_id) == 1 or redis.call('HEXISTS', dead_bodies, own_id) == 1
    return is_known and 'STORED' or 'NEW'
  end
  local place = waiting_place(holder, KEYS[base + 1], KEYS[base + 2], KEYS[base + 4])
  if place then return 'REPLACED', place end
  return redis.call('HEXISTS', claim_records, string.sub(holder, 1, 12)) == 1 and 'KEPT' or 'ELSEWHERE'
end

-- Type checks (see the prelude).
check_hashes(attempts, job_extras)
for base = FIXED, #KEYS - 4, 4 do
  check_scheduled(KEYS[base + 1]); check_ready(KEYS[base + 2]); redis.call('ZCARD', KEYS[base + 4])
end
local batch, reply = {}, {now}
for at = 3, #ARGV, 7 do
  local base, member, due, body = FIXED + 4 * (tonumber(ARGV[at]) - 1), ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local extra, holder, holder_base = ARGV[at + 4], ARGV[at + 5], FIXED + 4 * (tonumber(ARGV[at + 6]) - 1)
  local own_id, key = string.sub(member, 1, 12), key_of_extras(extra)
  local word, place = judge(own_id, key, holder, holder_base)
  if word == 'ELSEWHERE' then return {now, word} end
  if word == 'NEW' or word == 'REPLACED' then
    local id = holder == '' and own_id or string.sub(holder, 1, 12)
    batch[#batch + 1] = {
      base = base, id = id, member = id .. string.sub(member, 13, 14), due = due, body = body, extra = extra, key = key,
      holder = holder, place = place, was_scheduled = place == KEYS[holder_base + 1],
    }
  end
  reply[#reply + 1] = word == 'NEW' and 'STORED' or word
end

for _, job in ipairs(batch) do
  if job.place then
    redis.call('ZREM', job.place, job.holder)
    if job.was_scheduled then index_due(job.place) end
    redis.call('HDEL', attempts, job.id)
  end
  redis.call('HSET', jobs, job.id, job.body)
  redis.call('HSET', job_extras, job.id, job.extra)
  redis.call('HSET', unique_keys, job.key, job.member)
  local due = due_time(job.due, now)
  if due and due > now then
    put_scheduled(KEYS[job.base + 1], {due, job.member})
  else
    put_ready(now, KEYS[job.base + 2], KEYS[job.base + 3], {rank_of(job.member, now, head_start), job.member})
  end
end
return reply
