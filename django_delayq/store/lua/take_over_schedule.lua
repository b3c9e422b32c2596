-- Take_over_schedule: a recurring schedule that another shard has handed over is stored here, unless it is here already, or
--   has been deleted since it came. Its next job is planted at once, unless it is paused. Safe to repeat.
-- KEYS: schedules, next_planting, next_promotion, notify_dispatcher, arrivals.
-- ARGV: now, id of the schedule, its version, its record.
-- Returns: 1 = stored, 0 = it has come before.
-- Replicas: a producer's call waits for those of WAIT_REPLICAS.
-- Cost: O(log n).
local now, id, version = now_us(ARGV[1]), ARGV[2], ARGV[3]

-- Type checks (see the prelude).
check_schedules(); check_zsets(arrivals)
promotion_at = redis.call('GET', next_promotion)
if redis.call('HEXISTS', schedules, id) == 1 or redis.call('ZSCORE', arrivals, id .. version) then return 0 end
redis.call('HSET', schedules, id, ARGV[4])
keep_record(arrivals, now, id .. version)
local schedule = read_schedule(id)
if schedule and schedule.flags % 2 == 0 then plan(schedule, now) end
return 1
