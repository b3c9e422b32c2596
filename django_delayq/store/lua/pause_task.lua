-- Pause_task: no worker begins jobs of this task from now on; running ones continue.
-- KEYS: paused_tasks.
-- ARGV: now, digest of the task, who pauses it, the task's name.
-- Returns: 1 = paused, 0 = it was paused already. The earlier name stays.
-- Cost: O(1).
local now = now_us(ARGV[1])

-- HSETNX, because other ACL roles may call HSET, and must not be able to pause a task.
return redis.call('HSETNX', paused_tasks, ARGV[2], string.format('%.0f ', now) .. ARGV[3] .. '\255' .. ARGV[4])
