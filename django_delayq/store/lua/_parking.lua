-- Parking: which job a limit keeps from beginning, and how it waits for the limit. A part of `settle_and_claim` alone.

-- A job enters `parked` because of a limit.
local function park(parked, member, rank, id)
  local record = read_extras(member)
  local cost = cost_of_limit(limits_of_extras(record), id)
  redis.call('ZADD', parked, rank, member)
  redis.call('HSET', waiting_for, string.sub(member, 1, 12), id)
  redis.call('ZADD', limit_jobs, 0, parked_entry(id, parked, group_of_extras(record), member, rank, cost))
  if record then add_tenant_job(parked, member, rank) end
end

-- Whether jobs with a lower rank wait for a limit. No two jobs have the same order: otherwise each of two jobs with several
-- limits could wait for the other one.
local function is_behind_others(id, place, group, member, rank)
  local from = PARKED .. id .. queue_hash(place) .. group
  local own = from .. struct.pack('>I8', math.max(0, tonumber(rank))) .. member
  return redis.call('ZRANGE', limit_jobs, '[' .. from, '(' .. own, 'BYLEX', 'LIMIT', 0, 1)[1] ~= nil
end

-- The limit that keeps a job from beginning, and from when on it may begin under that limit; nothing if it may begin now.
local function closed_limit(now, place, member, rank, record)
  local limits, group = limits_of_extras(record), group_of_extras(record)
  for _, limit in ipairs(limits) do
    local state = limit_state(now, limit.id)
    local moment = opens_at(state, limit.cost)
    correct_times(limit.id, state)
    if moment > now then return limit.id, moment end
    -- Those that wait already go first, except before a job that was one of them.
    if is_behind_others(limit.id, place, group, member, rank)
      and not redis.call('ZSCORE', limit_jobs, let_in_entry(limit.id, place, group, member, limit.cost)) then
      return limit.id, 0
    end
  end
end

-- The paused tasks: name -> id. Read at its first use.
local paused_names

local function read_paused_names()
  if paused_names then return end
  paused_names = {}
  local found = redis.call('HGETALL', paused_tasks)
  for i = 1, #found, 2 do paused_names[string.match(found[i + 1], '\255(.*)$') or ''] = found[i] end
end

-- The id of the task of a job if that task is paused; nothing if it is not, or if the body is damaged.
local function paused_task_of(member)
  read_paused_names()
  local body = next(paused_names) and redis.call('HGET', jobs, string.sub(member, 1, 12))
  -- The head of a body: see encode() of job/body/codec.py.
  local from = body and #body > 4 and 5 + string.byte(body, 4)
  if from and #body > from then
    local size = struct.unpack('>I2', body, from)
    return paused_names[string.sub(body, from + 2, from + 1 + size)]
  end
end

-- How long (µs) the code of a job may still run when the next one of its schedule stops it.
local STOP_GRACE = 10000000
-- Schedule -> id of its job that this exchange claims; and whether it parks one.
local begun_schedules, parked_schedules = {}, {}

-- A running job is asked to end, as `stop` does; the next heartbeat of its worker tells it.
local function ask_to_stop(now, id)
  local record = redis.call('HGET', claim_records, id)
  local stop_by, _, progress_at = read_claim(record, string.sub(record or '', 1, 16))
  if not progress_at or stop_by then return end
  local stopping = struct.pack('>BI8', string.byte(record, 33) + 1, now + STOP_GRACE)
  redis.call('HSET', claim_records, id, string.sub(record, 1, 32) .. stopping .. string.sub(record, 34))
end

-- Why a job of a schedule does not begin: DROP = never, PARK = another one runs, or goes first; nothing if it begins. One
-- that has begun before goes on, whatever has become of its schedule, unless another one waits in its place.
local function held_by_schedule(now, entry, record)
  local id, version, has_begun = schedule_of_extras(record)
  if not id then return end
  local schedule, limit = read_schedule(id), SCHEDULE_LIMIT .. id
  local function waits() return parked_schedules[id] or first_parked(limit, '') ~= nil end
  if schedule and schedule.running == string.sub(entry.member, 1, 12) then
    return schedule.overlap == STOPS and waits() and 'DROP' or nil
  end
  if has_begun then return end
  if version ~= (schedule and schedule.version) and version > 0 then return 'DROP' end
  if not schedule or schedule.overlap > STOPS then return end
  local running = begun_schedules[id] or running_job(schedule)
  if running then
    -- Also if one waits already: the running one may have begun together with that.
    if schedule.overlap == STOPS then ask_to_stop(now, running) end
    if schedule.overlap == SKIPS or schedule.overlap ~= ALL_WAIT and waits() then return 'DROP' end
  elseif not is_behind_others(limit, entry.place, group_of_extras(record), entry.member, entry.rank) then
    return
  end
  parked_schedules[id] = true
  return 'PARK'
end

-- Whether a job with limits is claimed: it may begin, so that its limits count it, or it is to be dropped. A job of a paused
-- task waits, and takes no slot meanwhile: another job would be dropped because of it.
local function passes_limits(now, entry)
  entry.waits_for, entry.opens = paused_task_of(entry.member), math.huge
  if entry.waits_for then return false end
  local record = read_extras(entry.member)
  entry.record = record
  local schedule, held = schedule_of_extras(record), held_by_schedule(now, entry, record)
  if held then
    entry.waits_for = SCHEDULE_LIMIT .. schedule
    return held == 'DROP'
  end
  local limits, drops = limits_of_extras(record)
  entry.waits_for, entry.opens = closed_limit(now, entry.place, entry.member, entry.rank, record)
  if not entry.waits_for then count_in_limits(now, limits) end
  if schedule and not entry.waits_for then begun_schedules[schedule] = string.sub(entry.member, 1, 12) end
  return drops or not entry.waits_for
end
