-- Delete_schedules: recurring schedules are deleted. Their waiting jobs do not begin any more; running ones go on. Nothing
--   is changed if one of them is declared in code. Safe to repeat.
-- KEYS: schedules, next_planting.
-- ARGV: now, ids of the schedules (1 to 250).
-- Returns: per schedule the id of the waiting job that the caller cancels ('' = there may be none), or 0 = there was no
--   such schedule; or a number = which of them is declared in code.
-- Replicas: a producer's call waits for those of WAIT_REPLICAS.
-- Cost: O(log n) a schedule.
local now = now_us(ARGV[1])

-- Type checks (see the prelude).
check_schedules()
for at = 2, #ARGV do
  if is_declared(read_schedule(ARGV[at])) then return at - 1 end
end
local to_cancel = {}
for at = 2, #ARGV do to_cancel[at - 1] = delete_schedule(ARGV[at]) end
return to_cancel
