-- Delete_schedules: recurring schedules are deleted. Their waiting jobs do not begin any more; running ones go on. Safe to
--   repeat.
-- KEYS: schedules, next_planting.
-- ARGV: now, ids of the schedules (1 to 250).
-- Returns: per schedule the id of the waiting job that the caller cancels ('' = there may be none), or 0 = there was no
--   such schedule.
-- Cost: O(log n) a schedule.
local now = now_us(ARGV[1])

-- Type checks (see the prelude).
check_schedules()
local to_cancel = {}
for at = 2, #ARGV do
  local schedule = read_schedule(ARGV[at])
  local existed = redis.call('HDEL', schedules, ARGV[at])
  redis.call('ZREM', next_planting, ARGV[at])
  to_cancel[at - 1] = schedule and (schedule.planted ~= NO_JOB and schedule.planted or '') or existed == 1 and '' or 0
end
return to_cancel
