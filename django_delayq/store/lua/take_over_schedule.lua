-- Take_over_schedule: a recurring schedule that another shard has handed over is stored here, unless it is here already.
--   Its next job is planted at once, unless it is paused. Safe to repeat.
-- KEYS: schedules, next_planting, next_promotion, notify_dispatcher.
-- ARGV: now, id of the schedule, its record.
-- Returns: 1 = stored, 0 = it was here already.
-- Cost: O(log n).
local now, id, record = now_us(ARGV[1]), ARGV[2], ARGV[3]

-- Type checks (see the prelude).
check_schedules()
promotion_at = redis.call('GET', next_promotion)
if redis.call('HEXISTS', schedules, id) == 1 then return 0 end
redis.call('HSET', schedules, id, record)
local schedule = read_schedule(id)
if schedule and schedule.flags % 2 == 0 then plan(schedule, now) end
return 1
