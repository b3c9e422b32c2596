-- Pause: no worker claims jobs of this queue from now on; running ones continue. Jobs still become ready. A pause with
--   an end is ended by promote.
-- KEYS: workers, paused, pause_ends, ready, next_promotion, notify_dispatcher; ready is that of the queue.
-- ARGV: now, who pauses it, when the pause ends (µs since the epoch, '' = when it is resumed).
-- Returns: 1 = paused, or its pause has another end now; 0 = it was paused so already. The earlier name stays.
-- Cost: O(log n).
local now, by, given = now_us(ARGV[1]), ARGV[2], ARGV[3]

local found, ends, queue = redis.call('HGET', paused, ready), due_time(given, now), queue_of(ready)
-- No name in UTF-8 has a byte 255. Older releases read no end: they show it as part of the name.
local ending = ends and string.format('\255%.0f', ends) or ''
local record = (found and string.match(found, '^[^\255]*') or string.format('%.0f ', now) .. by) .. ending
-- Type checks, then freeing first (see the prelude).
redis.call('ZCARD', workers); redis.call('ZCARD', pause_ends)
local promotion = redis.call('GET', next_promotion)
redis.call('ZREM', workers, '')
if found == record then return 0 end
-- Not HSET alone: users of other roles have that, and must not pause a queue.
if redis.call('HSETNX', paused, ready, record) == 0 then redis.call('HSET', paused, ready, record) end
if not ends then
  redis.call('ZREM', pause_ends, queue)
  return 1
end
redis.call('ZADD', pause_ends, ends, queue)
if ends < (tonumber(promotion or '') or math.huge) then push_notification(notify_dispatcher) end
return 1
