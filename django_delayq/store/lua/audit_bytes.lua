-- Audit_bytes: `dead_bytes` gets the sum that the caller counted, unless it changed since the caller read it.
-- KEYS: dead_bytes.
-- ARGV: now, the sum as the caller read it ('' = none), the sum that it counted.
-- Returns: 1 = written, 0 = it changed meanwhile.
-- Cost: O(1).
local now, seen, counted = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3])

if (redis.call('GET', dead_bytes) or '') ~= seen then return 0 end
add_dead_bytes(counted - sum_of_dead_bytes())
return 1
