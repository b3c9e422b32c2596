-- Quiet: a worker stops or resumes claiming jobs; it reads this with its next report.
-- KEYS: workers, quiet_workers.
-- ARGV: now, the worker's code (8 bytes), who asks ('' = it may claim again).
-- Returns: 1 = changed, 0 = there is no such worker, or it is in that state already.
-- Cost: O(log n).
local now, code, by = now_us(ARGV[1]), ARGV[2], ARGV[3]

local known = redis.call('ZSCORE', workers, code)
-- Type checks, then freeing first (see the prelude).
redis.call('HLEN', quiet_workers)
redis.call('ZREM', workers, '')
if by == '' then return redis.call('HDEL', quiet_workers, code) end
return known and redis.call('HSETNX', quiet_workers, code, by) or 0
