-- Back_off: nobody begins under a limit for some time. The longest time of several calls counts.
-- KEYS: limit_times, shards, lingering.
-- ARGV: now, id of the limit, for how long (µs, at most a day), number of the layout and since when the limit belongs to
--   another shard, as in `take_slot`.
-- Returns: until when (µs); GO_ON: see `take_slot`.
-- Errors: LAYOUT <text>: the shard knows another layout.
-- Cost: O(log n).
local now, id, length = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3])

local is_refused, left = other_layout(ARGV[4]), ARGV[5]
if is_refused then return is_refused end
if left ~= '' and not lingers(left) then return 'GO_ON' end
redis.call('HLEN', lingering)
redis.call('ZADD', limit_times, 'GT', now + math.min(length, LONGEST_BACK_OFF), BACK_OFF .. id)
if left ~= '' then keep_lingering(left) end
return redis.call('ZSCORE', limit_times, BACK_OFF .. id)
