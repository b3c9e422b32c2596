-- Schedules: the records of recurring schedules. A part of the prelude.
--
-- A record in `schedules` has these fields: flags (1), what becomes of a job while another one runs (1), after how many
-- failures in a row it pauses (1, 0 = never), failures in a row (1), version (4), the last occurrence that has a job, or
-- else the moment after which the next one is (5), the id of that job until it begins or ends (12), when a job began last
-- and when one ended last (5 each), number of outcomes (1), the id of the running job (12; only with flag 8), the outcomes,
-- the latest first (3 each: what became of a job, how long it ran), and the definition, which only Python reads.
-- Times are whole seconds: all occurrences are, so none lies between a moment and its second. A record is kept for each of
-- maybe a million schedules, of which few run.
-- A job names its schedule and the version for which it was planted. After a change no job of an earlier version begins.
-- Version 0: it is a job of `run_now()`, so only a running job keeps it from beginning.

-- Before the id of a schedule in place of a limit's id: the jobs that wait until its running job has ended.
local SCHEDULE_LIMIT = 'plan'
local SCHEDULE_HEAD, SCHEDULE_HEAD_SIZE, NO_JOB = '>BBBBI4I5c12I5I5B', 36, string.rep('\0', 12)
-- Flags of a record. The last one is known here alone.
local IS_PAUSED, IS_DECLARED, IS_UNREADABLE, HAS_RUNNING = 1, 2, 4, 8
-- What becomes of a job while another one runs, as in overlap_number() of store/schedules/schedules.py.
local SKIPS, WAITS, ALL_WAIT, STOPS = 0, 1, 2, 3
-- Outcomes, as in RunOutcome of recurring/run.py.
local RUN_DONE, RUN_FAILED, RUN_CANCELLED, RUN_EXPIRED = '\1', '\2', '\3', '\4'
local KEPT_OUTCOMES = 20
-- How many versions there are; 0 is none of them.
local VERSIONS = 4294967295

-- The id of the schedule of a job, the version for which it was planted, and whether it has begun; nothing for other jobs.
local function schedule_of_extras(record)
  if not record or #record < 13 or string.byte(record) % 128 < 64 then return end
  return string.sub(record, 2, 9), struct.unpack('>I4', record, 10), string.byte(record) >= 128
end

-- The extras record of a job that is of its schedule no more; empty if nothing else is in it.
local function without_schedule(record)
  if not schedule_of_extras(record) then return record end
  local flags = string.byte(record) % 64
  return flags > 0 and string.char(flags) .. string.sub(record, 14) or ''
end

-- id -> schedule that this script has read: others change the same table, so none has an old copy.
local known_schedules = {}

-- The record of a schedule; nothing if there is none, or if it is damaged.
local function read_schedule(id)
  if known_schedules[id] then return known_schedules[id] end
  local stored = redis.call('HGET', schedules, id)
  if not stored or #stored < SCHEDULE_HEAD_SIZE then return end
  local schedule, count, at = {id = id, running = NO_JOB}
  schedule.flags, schedule.overlap, schedule.pause_after, schedule.failures, schedule.version, schedule.occurrence,
    schedule.planted, schedule.last_start, schedule.last_end, count, at = struct.unpack(SCHEDULE_HEAD, stored)
  schedule.occurrence = schedule.occurrence * 1000000
  if schedule.flags >= HAS_RUNNING then
    schedule.flags, schedule.running, at = schedule.flags - HAS_RUNNING, string.sub(stored, at, at + 11), at + 12
  end
  schedule.outcomes = string.sub(stored, at, at + 3 * count - 1)
  schedule.definition = string.sub(stored, at + 3 * count)
  known_schedules[id] = schedule
  return schedule
end

local function pack_schedule(schedule)
  local has_running = schedule.running ~= NO_JOB
  local head = struct.pack(
    SCHEDULE_HEAD, schedule.flags + (has_running and HAS_RUNNING or 0), schedule.overlap, schedule.pause_after,
    schedule.failures, schedule.version, math.floor(schedule.occurrence / 1000000), schedule.planted, schedule.last_start,
    schedule.last_end, #schedule.outcomes / 3
  )
  local running = has_running and schedule.running or ''
  return head .. running .. schedule.outcomes .. schedule.definition
end

local function store_schedule(schedule)
  redis.call('HSET', schedules, schedule.id, pack_schedule(schedule))
end

-- The id of the job of a schedule that has begun and not ended, also while it waits for its retry; nothing if there is none.
local function running_job(schedule)
  if schedule.running == NO_JOB or redis.call('HEXISTS', jobs, schedule.running) == 0 then return end
  return schedule.running
end

-- A job of a schedule begins, or begins again.
local function begin_run(now, member, record)
  local id, _, has_begun = schedule_of_extras(record)
  if not id then return end
  local job_id, schedule = string.sub(member, 1, 12), read_schedule(id)
  if not has_begun then
    redis.call('HSET', job_extras, job_id, string.char(string.byte(record) + 128) .. string.sub(record, 2))
  end
  if not schedule then return end
  schedule.running, schedule.last_start = job_id, math.floor(now / 1000000)
  if schedule.planted == job_id then schedule.planted = NO_JOB end
  store_schedule(schedule)
end

-- After each change, so that waiting jobs of the schedule are of an earlier version. A time (ms), so that it also differs
-- after the schedule was deleted and made again, unless that takes less than a millisecond; it goes on from the last one if
-- that is not over.
local function change_schedule_version(now, schedule)
  local version = math.floor(now / 1000) % VERSIONS + 1
  local ahead = (version - schedule.version) % VERSIONS
  local is_later = schedule.version == 0 or ahead > 0 and ahead < VERSIONS / 2
  schedule.version = is_later and version or schedule.version % VERSIONS + 1
end

-- No job of a paused schedule is planted, and none that waits begins.
local function pause_schedule_now(now, schedule)
  change_schedule_version(now, schedule)
  schedule.flags = schedule.flags + (schedule.flags % 2 == 0 and IS_PAUSED or 0)
  redis.call('ZREM', next_planting, schedule.id)
end

-- A dispatcher plants the next job of a schedule at this moment; nil = never.
local function plan(schedule, moment)
  if not moment then
    redis.call('ZREM', next_planting, schedule.id)
  else
    redis.call('ZADD', next_planting, moment, schedule.id)
    if moment < (tonumber(promotion_at or '') or math.huge) then push_notification(notify_dispatcher) end
  end
end

-- A schedule that was set or resumed: waiting jobs are of an earlier version from now on.
local function start_version(now, schedule)
  change_schedule_version(now, schedule)
  schedule.planted = NO_JOB
  store_schedule(schedule)
  if schedule.flags % 2 == 0 then plan(schedule, now) end
end

local function is_declared(schedule)
  return schedule and schedule.flags % 4 - schedule.flags % 2 == IS_DECLARED
end

-- Stores a schedule, or replaces one that differs; `declared` = 1: it is declared in code. A job of an earlier version that
-- has not begun does not begin any more; if its time has come, the new version has that occurrence again. Returns the id of
-- the waiting job that the caller cancels ('' = there is none).
local function set_schedule(now, id, declared, overlap, pause_after, definition)
  local schedule, flags = read_schedule(id), declared * IS_DECLARED
  local is_equal = schedule and schedule.flags % 4 - schedule.flags % 2 == flags and schedule.overlap == overlap
    and schedule.pause_after == pause_after and schedule.definition == definition
  if is_equal then return '' end
  schedule = schedule or {
    id = id, flags = 0, failures = 0, version = 0, planted = NO_JOB, last_start = 0, last_end = 0, running = NO_JOB,
    outcomes = '',
  }
  local waiting = schedule.planted
  if waiting == NO_JOB or redis.call('HEXISTS', jobs, waiting) == 0 then
    waiting, schedule.occurrence = '', now
  else
    schedule.occurrence = schedule.occurrence <= now and schedule.occurrence - 1 or now
  end
  schedule.flags = schedule.flags % 2 + flags
  schedule.overlap, schedule.pause_after, schedule.definition = overlap, pause_after, definition
  start_version(now, schedule)
  return waiting
end

-- Deletes a schedule. Returns the id of the waiting job that the caller cancels ('' = there may be none), or 0 = there was
-- no such schedule.
local function delete_schedule(id)
  local schedule = read_schedule(id)
  local existed = redis.call('HDEL', schedules, id)
  known_schedules[id] = nil
  redis.call('ZREM', next_planting, id)
  return schedule and (schedule.planted ~= NO_JOB and schedule.planted or '') or existed == 1 and '' or 0
end

-- How long a job ran as two bytes: 5 bits of exponent, 11 bits of milliseconds.
local function pack_duration(us)
  local ms, exponent = math.max(0, math.floor(us / 1000)), 0
  while ms >= 2048 do ms, exponent = math.floor(ms / 2), exponent + 1 end
  return struct.pack('>I2', exponent * 2048 + ms)
end

-- The type checks of what is stored of schedules.
local function check_schedules()
  redis.call('HLEN', schedules); redis.call('ZCARD', next_planting)
end
