-- Set_schedules: recurring schedules are stored, or replaced if they differ from what is stored. A paused schedule stays
--   paused. Nothing is changed if one of them is declared in code. Safe to repeat.
-- KEYS: schedules, next_planting, jobs, next_promotion, notify_dispatcher.
-- ARGV: now, then per schedule (1 to 250): its id, what becomes of a job while another one runs, after how many failures
--   in a row it pauses (0 = never), its definition.
-- Returns: per schedule the id of the waiting job that the caller cancels ('' = there is none), or a number = which of them
--   is declared in code.
-- Replicas: a producer's call waits for those of WAIT_REPLICAS.
-- Cost: O(log n) a schedule.
local now = now_us(ARGV[1])

-- Type checks (see the prelude).
check_schedules(); check_hashes(jobs)
for at = 2, #ARGV, 4 do
  if is_declared(read_schedule(ARGV[at])) then return (at + 2) / 4 end
end
promotion_at = redis.call('GET', next_promotion)
local to_cancel = {}
for at = 2, #ARGV, 4 do
  to_cancel[#to_cancel + 1] =
    set_schedule(now, ARGV[at], 0, tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3])
end
return to_cancel
