-- Audit_bytes: the sum of all dead bodies is what the caller counted, unless it changed since it was read.
-- KEYS: dead_bytes.
-- ARGV: now, the sum as it was read ('' = none), the sum of what was counted.
-- Returns: 1 = written, 0 = it changed meanwhile.
-- Cost: O(1).
local now, seen, counted = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3])

if (redis.call('GET', dead_bytes) or '') ~= seen then return 0 end
add_dead_bytes(dead_bytes, counted - sum_of(dead_bytes))
return 1
