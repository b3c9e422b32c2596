-- Resume_task: workers begin jobs of this task again; the dispatcher lets in those that wait.
-- KEYS: paused_tasks, limit_jobs, next_let_in, waiting_for, next_promotion, notify_dispatcher.
-- ARGV: now, digest of the task.
-- Returns: 1 = resumed, 0 = it was not paused.
-- Cost: O(log n).
local now, id = now_us(ARGV[1]), ARGV[2]

-- Type checks (see the prelude).
check_limits()
local resumed = redis.call('HDEL', paused_tasks, id)
schedule_let_in(id, 0)
return resumed
