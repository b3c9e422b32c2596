-- Replace: each job of a batch (1 to 250) has a unique key. If no job holds the key, the job is stored as `enqueue` stores
--   it. If a waiting job holds the key, that job gets the body, the options and the time of the new one. It keeps its id,
--   and its turn if both are ready; its attempts count from 1 again. If the holder runs, nothing happens to it. Either all
--   of this is done, or nothing. A repeated call stores no second job, but replaces again.
-- KEYS: jobs, attempts, job_extras, unique_keys, claim_records, dead_bodies, enqueued, queues, queues_version, next_due,
--   notify, next_promotion, notify_dispatcher, withdrawn, tenant_jobs, turns, tenants, limit_jobs, next_let_in, waiting_for, shards,
--   lingering; then scheduled, ready, notify, recovered and parked of each queue of the new jobs and of the holders.
-- ARGV: now, head start (ms), number of the layout ('' = it does not matter), then per job: number of its queue, member,
--   due time ('' = at once, '+n' = n µs from now, n = µs since the epoch), body (signed for the id of the holder if there
--   is one), extras record, the holder's member that the caller read ('' = none), number of the holder's queue (0 =
--   none), if its calls are debounced the longest time from the first of them to the due time (µs; '' = they are not),
--   most jobs of its tenant that may wait in the queue ('' = any number), '' or, if it belongs to another shard by now,
--   since which layout (8) and its routing value. No two have the same key.
-- Returns: now (µs), then per job STORED, REPLACED, KEPT (the holder runs), or GO_ON: it was not stored, since it belongs
--   to another shard, and nothing of its value is left here. Now and ELSEWHERE alone: a key has another holder, or a
--   holder another queue, than the caller read; nothing was done, read the holders again.
-- Errors: LAYOUT, TENANTFULL: see `enqueue`; nothing was stored.
-- Replicas: a producer's call waits for those of WAIT_REPLICAS.
-- Cost: O(log n) a job.
local now, head_start, is_refused = now_us(ARGV[1]), tonumber(ARGV[2]), other_layout(ARGV[3])
if is_refused then return is_refused end

-- Bit of a member's last byte, as in Flag of job/job.py.
local EXPIRES = 32

-- What becomes of a job; if it replaces its holder, also the holder's member, place and score there.
local function judge(own_id, key, expected, base, left)
  local holder = holder_of(key)
  local id = string.sub(holder, 1, 12)
  if id ~= own_id then
    if redis.call('ZSCORE', withdrawn, own_id) then return 'STORED' end
    -- A repeated call: this job has given its key up, or is dead. Its arguments are not the last ones any more.
    if redis.call('HEXISTS', jobs, own_id) == 1 or redis.call('HEXISTS', dead_bodies, own_id) == 1 then return 'STORED' end
  end
  -- Its flags and its priority may have changed.
  if id ~= string.sub(expected, 1, 12) then return 'ELSEWHERE' end
  if holder == '' then return left ~= '' and not lingers(left) and 'GO_ON' or 'NEW', holder end
  local place, score = waiting_place(holder, KEYS[base + 1], KEYS[base + 2], KEYS[base + 4], KEYS[base + 5])
  if place then return 'REPLACED', holder, place, score end
  return redis.call('HEXISTS', claim_records, id) == 1 and 'KEPT' or 'ELSEWHERE'
end

-- Type checks (see the prelude).
check_hashes(attempts, job_extras, lingering); check_tenants(); check_limits()
for base = FIXED, #KEYS - 5, 5 do
  check_scheduled(KEYS[base + 1]); check_ready(KEYS[base + 2]); check_zsets(KEYS[base + 4], KEYS[base + 5])
end
local batch, reply, waiting = {}, {now}, {}
for at = 4, #ARGV, 10 do
  local base, member, due, body = FIXED + 5 * (tonumber(ARGV[at]) - 1), ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
  local extra, expected, holder_base = ARGV[at + 4], ARGV[at + 5], FIXED + 5 * (tonumber(ARGV[at + 6]) - 1)
  local own_id, key = string.sub(member, 1, 12), key_of_extras(extra)
  local word, holder, place, score = judge(own_id, key, expected, holder_base, ARGV[at + 9])
  if word == 'ELSEWHERE' then return {now, word} end
  -- The holder is of the same tenant, since the digest of a key names it.
  if (word == 'NEW' or word == 'REPLACED' and holder_base ~= base) and ARGV[at + 8] ~= '' then
    local tenant = queue_hash(KEYS[base + 1]) .. tenant_of_extras(extra)
    refuse_if_full(waiting, (at - 4) / 10, tenant, tonumber(ARGV[at + 8]))
  end
  if word == 'NEW' or word == 'REPLACED' then
    local id = holder == '' and own_id or string.sub(holder, 1, 12)
    batch[#batch + 1] = {
      base = base, id = id, member = id .. string.sub(member, 13, 14), due = due, body = body, extra = extra, key = key,
      holder = holder, place = place, score = score, max_wait = tonumber(ARGV[at + 7]), left = ARGV[at + 9],
    }
  end
  reply[#reply + 1] = word == 'NEW' and 'STORED' or word
end
if waiting[1] then return tenant_full(waiting) end

for _, job in ipairs(batch) do
  local due = due_time(job.due, now)
  if job.max_wait then
    local _, _, first_call = key_of_extras(job.place and redis.call('HGET', job_extras, job.id))
    if not first_call or first_call == 0 then first_call = now end
    job.extra = with_first_call(job.extra, first_call)
    due = math.min(due or now, first_call + job.max_wait)
  end
  -- The first write needs memory: if the memory is full, Redis refuses the whole batch.
  redis.call('HSET', jobs, job.id, job.body)
  if job.place then
    leave(job.place, job.holder, job.score)
    redis.call('HDEL', attempts, job.id)
  else
    count_enqueued(names_of(job.body), 1)
  end
  redis.call('HSET', job_extras, job.id, job.extra)
  redis.call('HSET', unique_keys, job.key, job.member)
  if job.left ~= '' then keep_lingering(job.left) end
  if due and due > now then
    put_scheduled(KEYS[job.base + 1], {due, job.member})
  else
    local rank = rank_of(job.member, now, head_start)
    -- Otherwise a job that is replaced again and again would never begin. Another priority is another turn, and an
    -- expiry counts from the time in the rank.
    local keeps_turn = string.byte(job.holder, 13) == string.byte(job.member, 13) and not has(job.member, EXPIRES)
    if job.place and not is_scheduled(job.place) and keeps_turn then rank = math.min(rank, tonumber(job.score)) end
    put_ready(now, KEYS[job.base + 2], KEYS[job.base + 3], {rank, job.member})
  end
end
return reply
