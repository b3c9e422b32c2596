-- Pause_schedule: no job of a recurring schedule is planted, and none that waits begins. A running one goes on. Safe to
--   repeat.
-- KEYS: schedules, next_planting.
-- ARGV: now, id of the schedule.
-- Returns: the id of the waiting job that the caller cancels ('' = there may be none); 0 = it was paused already, -1 =
--   there is no such schedule.
-- Cost: O(log n).
local now, schedule = now_us(ARGV[1]), read_schedule(ARGV[2])

if not schedule then return -1 end
if schedule.flags % 2 == 1 then return 0 end
-- Type checks (see the prelude).
check_schedules()
-- Freeing first (see the prelude).
redis.call('ZREM', next_planting, '')
pause_schedule_now(now, schedule)
store_schedule(schedule)
return schedule.planted ~= NO_JOB and schedule.planted or ''
