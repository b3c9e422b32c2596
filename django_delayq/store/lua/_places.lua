-- Places: how a job enters and leaves a place, and what is kept of one that ended. A part of the prelude.

local function add_tenant_jobs(place, entries)
  for i = 2, #entries, 2 do
    if has(entries[i], HAS_EXTRAS) then add_tenant_job(place, entries[i], entries[i - 1]) end
  end
end

-- Only put_ready(), put_scheduled() and `enqueue_one` put jobs into `ready`, `recovered` and `scheduled`. The extras
-- records of these jobs must be there.
-- `entries` = score, member, score, member … (at most 500 pairs).
local function put_ready(now, ready, queue_notify, entries)
  redis.call('ZADD', ready, unpack(entries))
  add_tenant_jobs(ready, entries)
  list_and_notify(now, ready, queue_notify, listed_recently(now, ready))
end

local function put_scheduled(scheduled, entries)
  redis.call('ZADD', scheduled, unpack(entries))
  add_tenant_jobs(scheduled, entries)
  local first = entries[1]
  for i = 3, #entries, 2 do first = math.min(first, entries[i]) end
  index_and_notify(scheduled, first)
end

-- The first of the given places that holds a job, and its score there; nothing if the job waits in none of them.
local function waiting_place(member, ...)
  for _, place in ipairs({...}) do
    local score = redis.call('ZSCORE', place, member)
    if score then return place, score end
  end
end

local function is_scheduled(place)
  return string.find(place, ':scheduled:[^:]*$') ~= nil
end

local function is_parked(place)
  return string.find(place, ':parked:[^:]*$') ~= nil
end

-- Whether a waiting job still waits as it did when its due time was set: a claim, and another due time, change its score.
local function still_waits(due, place, score, member, head_start)
  return tonumber(score) == (is_scheduled(place) and tonumber(due) or rank_of(member, tonumber(due), head_start))
end

-- Take a job out of `ready` or `recovered` that will be claimed, or enters another place of its queue.
local function leave_ready(place, member, score)
  redis.call('ZREM', place, member)
  -- A ready job without an extras record may have got a turn from a claim.
  if has(member, HAS_EXTRAS) or is_ready(place) then remove_tenant_job(place, member, score) end
end

-- Take a job out of a waiting place; its score there is the one that waiting_place() returns.
local function leave(place, member, score)
  if is_parked(place) then unpark(place, member, score) elseif has(member, LIMITED) then forget_let_in(place, member) end
  leave_ready(place, member, score)
  if is_scheduled(place) then index_due(place) end
end

-- Why a job is in none of the places that the caller looked at: LATE (it is running), ELSEWHERE (it waits in another
-- queue: the caller reads its body again), GONE (it has ended, or is dead).
local function why_not_waiting(id)
  if redis.call('HEXISTS', claim_records, id) == 1 then return 'LATE' end
  return redis.call('HEXISTS', jobs, id) == 1 and 'ELSEWHERE' or 'GONE'
end

-- Only kept results and the notifications of single workers expire: nothing else has no other end.
local function expire(key, ttl)
  redis.call('PEXPIRE', key, ttl)
end

-- The only writer of a kept result; it replaces anything that was stored there. Call it before the body is deleted.
local function keep_result(key, id, ending, ttl)
  local record, body = redis.call('HGET', attempts, id) or '', redis.call('HGET', jobs, id) or ''
  redis.call('DEL', key)
  redis.call('RPUSH', key, struct.pack('>I4I4', #record, #ending) .. record .. ending .. body)
  expire(key, ttl)
end

-- The script that removes a job's body calls this before, so that no key outlives its job, and its schedule has the outcome.
-- Returns the job's extras record.
local function end_job(now, member, outcome)
  local record = delete_extras(member)
  local id, version = schedule_of_extras(record)
  local schedule = id and read_schedule(id)
  if not schedule then return record end
  local job_id = string.sub(member, 1, 12)
  local was_running = schedule.running == job_id
  if not was_running and version > 0 and version ~= schedule.version then return record end
  local claim = redis.call('HGET', claim_records, job_id)
  local took = claim and #claim >= 24 and now - struct.unpack('>I8', claim, 17) or 0
  schedule.outcomes = outcome .. pack_duration(took) .. string.sub(schedule.outcomes, 1, 3 * KEPT_OUTCOMES - 3)
  schedule.last_end = math.floor(now / 1000000)
  if outcome == RUN_DONE then schedule.failures = 0 end
  if outcome == RUN_FAILED then
    schedule.failures = math.min(255, schedule.failures + 1)
    local too_many = schedule.pause_after > 0 and schedule.failures >= schedule.pause_after
    if too_many and schedule.flags % 2 == 0 then pause_schedule_now(now, schedule) end
  end
  if was_running then schedule.running = NO_JOB end
  if schedule.planted == job_id then schedule.planted = NO_JOB end
  store_schedule(schedule)
  if was_running then schedule_let_in(SCHEDULE_LIMIT .. id, now) end
  -- No other one was planted as long as it might run.
  if outcome == RUN_EXPIRED and schedule.flags % 2 == 0 then plan(schedule, now) end
  return record
end
