-- Audit_throttles: both entries of each window of throttled calls are checked, and deleted if no script could have left
--   them as they are. A window that is over is one that no promotion has removed yet.
-- KEYS: throttles, throttle_ends.
-- ARGV: now, 1 = repair, then per window (≤ 500) the digest of its key.
-- Returns: per window a word. OK: correct, or gone since the caller read it. MALFORMED ones are deleted.
-- Cost: O(log n) a window.
local now, repair = now_us(ARGV[1]), ARGV[2] == '1'

local words = {}
for i = 3, #ARGV do
  local key = ARGV[i]
  local first, ends = redis.call('HGET', throttles, key), redis.call('ZSCORE', throttle_ends, key)
  local is_sound = #key == 16 and first and #first == 12 and ends and tonumber(ends) <= LATEST
  words[#words + 1] = (is_sound or not first and not ends) and 'OK' or 'MALFORMED'
  if repair and words[#words] ~= 'OK' then
    redis.call('ZREM', throttle_ends, key)
    redis.call('HDEL', throttles, key)
  end
end
return words
