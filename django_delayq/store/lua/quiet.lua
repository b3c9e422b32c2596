-- Quiet: a worker shall take no more jobs, or take them again; it learns so with its next report.
-- KEYS: workers, quiet_workers.
-- ARGV: now, its code (8 bytes), who asks ('' = let it take jobs again).
-- Returns: 1 = it is asked now, 0 = there is no such worker, or it was asked so already.
-- Cost: O(log n).
local now, code, by = now_us(ARGV[1]), ARGV[2], ARGV[3]

local known = redis.call('ZSCORE', workers, code)
redis.call('HLEN', quiet_workers)
-- A write that frees comes first: with its memory full, Redis refuses a script whose first write grows.
redis.call('ZREM', workers, '')
if by == '' then return redis.call('HDEL', quiet_workers, code) end
return known and redis.call('HSETNX', quiet_workers, code, by) or 0
