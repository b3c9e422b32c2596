-- Set_limits: the rules of the limits are those of the caller's settings from now on. Others are forgotten.
-- KEYS: limit_rules.
-- ARGV: now, then per limit: digest of its name (4 bytes), its rule (see limit_state() in _limits.lua).
-- Returns: 1 = they were others before, 0 = they were the same.
-- Cost: O(n).
local now = now_us(ARGV[1])

local stored, changed, known = redis.call('HGETALL', limit_rules), 0, {}
for i = 2, #ARGV, 2 do known[ARGV[i]] = ARGV[i + 1] end
for i = 1, #stored, 2 do
  if not known[stored[i]] then redis.call('HDEL', limit_rules, stored[i]); changed = 1 end
  if known[stored[i]] == stored[i + 1] then known[stored[i]] = nil end
end
for digest, rule in pairs(known) do redis.call('HSET', limit_rules, digest, rule); changed = 1 end
return changed
