-- Hand_over_schedule: a recurring schedule leaves this shard for another one, unless a job of it runs. Its waiting job does
--   not begin any more, and its occurrence is planted again there. Safe to repeat: the record stays in `leaving_schedules`
--   until the other shard has it.
-- KEYS: schedules, next_planting, jobs, leaving_schedules.
-- ARGV: now, id of the schedule, its version, its last occurrence (µs) and the id of its waiting job that the caller read.
-- Returns: HANDED_OVER, the record that the other shard stores, and the id of the waiting job that the caller cancels ('' =
--   there is none); or RUNNING, CHANGED (it differs from what the caller read) or GONE.
-- Replicas: a producer's call waits for those of WAIT_REPLICAS.
-- Cost: O(log n).
local now, id = now_us(ARGV[1]), ARGV[2]

local version, occurrence, planted = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local schedule, record = read_schedule(id), redis.call('HGET', leaving_schedules, id)
if record then return {'HANDED_OVER', record, ''} end
if not schedule then return {'GONE'} end
if running_job(schedule) then return {'RUNNING'} end
if schedule.version ~= version or schedule.occurrence ~= occurrence or schedule.planted ~= planted then
  return {'CHANGED'}
end
-- Type checks (see the prelude).
check_schedules()
local waiting = schedule.planted
if waiting == NO_JOB or redis.call('HEXISTS', jobs, waiting) == 0 then waiting = '' end
if waiting ~= '' and schedule.flags % 2 == 0 then schedule.occurrence = schedule.occurrence - 1 end
schedule.planted, schedule.running = NO_JOB, NO_JOB
change_schedule_version(now, schedule)
record = pack_schedule(schedule)
redis.call('HSET', leaving_schedules, id, record)
delete_schedule(id)
return {'HANDED_OVER', record, waiting}
