-- Set_schedules: recurring schedules are stored, or replaced if they differ from what is stored. A job of an earlier
--   version that has not begun does not begin any more; if its time has come, the new version has that occurrence again. A
--   paused schedule stays paused. Safe to repeat.
-- KEYS: schedules, next_planting, jobs, next_promotion, notify_dispatcher.
-- ARGV: now, then per schedule (1 to 250): its id, 1 = declared in code, what becomes of a job while another one runs,
--   after how many failures in a row it pauses (0 = never), its definition.
-- Returns: per schedule the id of the waiting job that the caller cancels ('' = there is none).
-- Cost: O(log n) a schedule.
local now = now_us(ARGV[1])

local function new_schedule(id)
  return {
    id = id, flags = 0, failures = 0, version = 0, planted = NO_JOB, last_start = 0, last_end = 0, running = NO_JOB,
    outcomes = '',
  }
end

local function is_as(stored, flags, overlap, pause_after, definition)
  return stored and stored.flags % 4 - stored.flags % 2 == flags and stored.overlap == overlap
    and stored.pause_after == pause_after and stored.definition == definition
end

-- Type checks (see the prelude).
check_schedules(); check_hashes(jobs)
promotion_at = redis.call('GET', next_promotion)
local to_cancel = {}
for at = 2, #ARGV, 5 do
  local id, flags, definition = ARGV[at], IS_DECLARED * tonumber(ARGV[at + 1]), ARGV[at + 4]
  local overlap, pause_after = tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3])
  local schedule = read_schedule(id)
  to_cancel[#to_cancel + 1] = ''
  if not is_as(schedule, flags, overlap, pause_after, definition) then
    schedule = schedule or new_schedule(id)
    if schedule.planted ~= NO_JOB and redis.call('HEXISTS', jobs, schedule.planted) == 1 then
      to_cancel[#to_cancel] = schedule.planted
      schedule.occurrence = schedule.occurrence <= now and schedule.occurrence - 1 or now
    else
      schedule.occurrence = now
    end
    schedule.flags = schedule.flags % 2 + flags
    schedule.overlap, schedule.pause_after, schedule.definition = overlap, pause_after, definition
    start_version(now, schedule)
  end
end
return to_cancel
