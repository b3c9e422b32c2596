-- Audit_records: records by id are compared with the places of their jobs, and repaired if no script could have left
--   them as they are.
-- KEYS: records, leases, claim_records, jobs, attempts, job_extras, unique_keys, dead_letters, dead_bodies, queues,
--   queues_version, next_due, notify, next_promotion, notify_dispatcher, dead_bytes, tenant_jobs, turns, tenants,
--   error_groups, groups_of_dead, dead_by_group; `records` is `jobs`, `attempts`, `job_extras`, `claim_records`,
--   `unique_keys` or `dead_bodies`; then scheduled, ready, notify, recovered and parked of each queue that the bodies name.
-- ARGV: now, noun of the records, head start (ms), 1 = repair, attempts record for a dead letter made here, then per
--   record (≤ 500): its field, the head of the body as the caller read it, the member that this head makes, the number
--   of its queue (0 = no body, or an unreadable one).
-- Returns: per record a word. OK: correct, or changed since the caller read it. MALFORMED, MISSING (its job is gone)
--   and DUPLICATE (its job is dead) are deleted. ORPHANED (in no place) becomes ready, or a dead letter again. NO_LEASE
--   (in no place, but with a claim record) gets a lease that has ended, for the dispatcher to judge. UNREADABLE
--   (without a queue it can be in no place) becomes a dead letter. QUEUE_NOT_LISTED: its queue is written where
--   promotions or workers read it. KEY_NOT_HELD: the job holds its key again, or the record that releases the key is
--   written. TENANT_NOT_LISTED: the job of a tenant is written into `tenant_jobs`.
-- Cost: O(log n) a record.
local now, noun, head_start, repair = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4] == '1'
local unreadable_history = ARGV[5]

local function is_placed(member, claim, queue)
  local base = FIXED + 5 * (queue - 1)
  return claim and redis.call('ZSCORE', leases, member .. string.sub(claim, 1, 16))
    or waiting_place(member, KEYS[base + 1], KEYS[base + 2], KEYS[base + 4], KEYS[base + 5])
end

local function place_of(member, queue)
  local base = FIXED + 5 * (queue - 1)
  return waiting_place(member, KEYS[base + 1], KEYS[base + 2], KEYS[base + 4], KEYS[base + 5])
end

-- Whether promotions and workers find a waiting job; the worker of a running one lists its queue.
local function is_listed(member, queue)
  local scheduled = KEYS[FIXED + 5 * (queue - 1) + 1]
  local place, due = place_of(member, queue)
  if place ~= scheduled then return not place or redis.call('ZSCORE', queues, queue_of(place)) end
  local indexed = redis.call('ZSCORE', next_due, queue_of(scheduled))
  return indexed and tonumber(indexed) <= tonumber(due)
end

local judge = {}
function judge.jobs(id, head, member, queue, body)
  if redis.call('ZSCORE', dead_letters, id) then return 'DUPLICATE' end
  -- The worker of a running job reports it as unreadable.
  if queue == 0 then return redis.call('HEXISTS', claim_records, id) == 1 and 'OK' or 'UNREADABLE' end
  if string.sub(body, 1, #head) ~= head then return 'OK' end
  local claim = redis.call('HGET', claim_records, id)
  if not is_placed(member, claim, queue) then return claim and 'NO_LEASE' or 'ORPHANED' end
  return is_listed(member, queue) and 'OK' or 'QUEUE_NOT_LISTED'
end
function judge.attempts(id)
  return redis.call('HEXISTS', jobs, id) == 1 and 'OK' or 'MISSING'
end
function judge.job_extras(id, head, member, queue, extra)
  if redis.call('HEXISTS', jobs, id) == 0 or (queue > 0 and not has(member, HAS_EXTRAS)) then return 'MISSING' end
  local key, until_start = key_of_extras(extra)
  local has_limits = limits_of_extras(extra)[1]
  local is_sound = key or has_limits or tenant_of_extras(extra) or throttle_of_extras(extra) or schedule_of_extras(extra)
  if not is_sound then return 'MALFORMED' end
  if queue == 0 then return 'OK' end
  local place, score = place_of(member, queue)
  local tenant, weight = tenant_of(member, place or '')
  if place and tenant and not redis.call('ZSCORE', tenant_jobs, job_entry(place, member, score, tenant, weight)) then
    local entry = is_ready(place) and late_entry(place, member, score, tenant)
    if not entry or not redis.call('ZSCORE', tenant_jobs, entry) then return 'TENANT_NOT_LISTED' end
  end
  -- A job that gave its key up goes without, if another one held it when this job waited again.
  return (not key or until_start or redis.call('HEXISTS', unique_keys, key) == 1) and 'OK' or 'KEY_NOT_HELD'
end
function judge.claim_records(id, head, member, queue, claim)
  if redis.call('HEXISTS', jobs, id) == 0 then return 'MISSING' end
  if queue == 0 or redis.call('ZSCORE', leases, member .. string.sub(claim, 1, 16)) then return 'OK' end
  -- A job in no place at all is reported for its body.
  return is_placed(member, claim, queue) and 'MISSING' or 'OK'
end
function judge.unique_keys(digest, head, member, queue, holder)
  if #holder ~= 14 then return 'MALFORMED' end
  local id = string.sub(holder, 1, 12)
  local body = redis.call('HGET', jobs, id)
  -- Its member has changed since the caller read the body.
  if body and queue > 0 and string.sub(body, 1, #head) ~= head then return 'OK' end
  local extra = body and redis.call('HGET', job_extras, id)
  if extra and key_of_extras(extra) ~= digest then return 'MISSING' end
  if extra and (queue == 0 or holder == member) then return 'OK' end
  return queue > 0 and has(member, HAS_EXTRAS) and 'KEY_NOT_HELD' or 'MISSING'
end
function judge.dead_bodies(id)
  if redis.call('HEXISTS', jobs, id) == 1 and not redis.call('ZSCORE', dead_letters, id) then return 'MISSING' end
  return redis.call('ZSCORE', dead_letters, id) and 'OK' or 'ORPHANED'
end

local words = {}
for at = 6, #ARGV, 4 do
  local field, member, queue = ARGV[at], ARGV[at + 2], tonumber(ARGV[at + 3])
  local value, base = redis.call('HGET', records, field), FIXED + 5 * (queue - 1)
  local word = 'OK'
  if value then
    local sound = #field == (noun == 'unique_keys' and 16 or 12)
    word = sound and judge[noun](field, ARGV[at + 1], member, queue, value) or 'MALFORMED'
  end
  if repair and word ~= 'OK' then
    -- Freeing first (see the prelude).
    redis.call('ZREM', leases, '')
    if word == 'ORPHANED' and noun == 'jobs' then
      put_ready(now, KEYS[base + 2], KEYS[base + 3], {rank_of(member, now, head_start), member})
    elseif word == 'ORPHANED' then
      redis.call('ZADD', dead_letters, now, field)
      add_to_group_again(now, field, now)
    elseif word == 'NO_LEASE' then
      redis.call('ZADD', leases, now, member .. string.sub(redis.call('HGET', claim_records, field), 1, 16))
      push_notification(notify_dispatcher)
    elseif word == 'UNREADABLE' then
      put_dead_body(now, now, field .. '\0\0', unreadable_history, '', '')
    elseif word == 'KEY_NOT_HELD' and noun == 'unique_keys' then
      -- Its key is held, but the end of the job would not release it.
      local id = string.sub(value, 1, 12)
      if key_of_extras(redis.call('HGET', job_extras, id)) ~= field then
        redis.call('HSET', job_extras, id, '\1' .. field)
      end
      redis.call('HSET', unique_keys, field, member)
    elseif word == 'TENANT_NOT_LISTED' then
      local place, score = place_of(member, queue)
      add_tenant_job(place, member, score)
    elseif word == 'KEY_NOT_HELD' then
      redis.call('HSET', unique_keys, key_of_extras(value), member)
    elseif word == 'QUEUE_NOT_LISTED' then
      index_due(KEYS[base + 1])
      push_notification(notify_dispatcher)
      if place_of(member, queue) ~= KEYS[base + 1] then
        list_queue(now, KEYS[base + 2])
        notify_workers(KEYS[base + 3])
      end
    else
      redis.call('HDEL', records, field)
      if noun == 'dead_bodies' then add_dead_bytes(-#value) end
    end
  end
  words[#words + 1] = word
end
return words
