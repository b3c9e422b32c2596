-- Back_off: nobody begins under a limit for some time. The longest time of several calls counts.
-- KEYS: limit_times.
-- ARGV: now, id of the limit, for how long (µs, at most a day).
-- Returns: until when (µs).
-- Cost: O(log n).
local now, id, length = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3])

redis.call('ZADD', limit_times, 'GT', now + math.min(length, LONGEST_BACK_OFF), BACK_OFF .. id)
return redis.call('ZSCORE', limit_times, BACK_OFF .. id)
