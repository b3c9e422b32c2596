-- Resume_schedule: jobs of a recurring schedule are planted again, from the next occurrence on. Its failures in a row are
--   counted from 0. Safe to repeat.
-- KEYS: schedules, next_planting, next_promotion, notify_dispatcher.
-- ARGV: now, id of the schedule.
-- Returns: 1 = resumed, 0 = it was not paused, -1 = there is no such schedule.
-- Cost: O(log n).
local now, schedule = now_us(ARGV[1]), read_schedule(ARGV[2])

if not schedule then return -1 end
if schedule.flags % 2 == 0 then return 0 end
-- Type checks (see the prelude).
check_schedules()
promotion_at = redis.call('GET', next_promotion)
schedule.flags, schedule.failures, schedule.occurrence = schedule.flags - IS_PAUSED, 0, now
start_version(now, schedule)
return 1
