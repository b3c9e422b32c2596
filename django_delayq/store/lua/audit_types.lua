-- Audit_types: each key has the type that the catalogue gives it, or does not exist.
-- KEYS: queues; then further keys.
-- ARGV: now, 1 = repair (a key of another type holds none of our data: it is deleted), the type of every key in order.
-- Returns: per key its type if it is another one, else ''.
-- Cost: O(1) a key.
local now, repair = now_us(ARGV[1]), ARGV[2] == '1'

local found = {}
for i, key in ipairs(KEYS) do
  local kind = redis.call('TYPE', key).ok
  local wrong = kind ~= 'none' and kind ~= ARGV[2 + i]
  if wrong and repair then redis.call('DEL', key) end
  found[i] = wrong and kind or ''
end
return found
