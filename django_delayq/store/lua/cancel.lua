-- Cancel: a job that waits is removed with all that belongs to it; it never ran and never will.
-- KEYS: the named ones; schedule and ready are those of the queue the caller read in the job's body, results the job's.
-- ARGV: now, member, ending to keep as its result ('' = it keeps none), for how long (ms).
-- Returns: CANCELLED, LATE (it is running), GONE (no such job waits), ELSEWHERE (it waits in another queue: read again).
-- Cost: O(log n).
local schedule, ready, running, bodies, attempts, extras, holders, results, next_due = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local now, member, ending, ttl = now_us(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]

local id = string.sub(member, 1, 12)
-- Read before the first write: a key of another type (written by hand) refuses the step, or would end it half-done.
redis.call('HLEN', bodies); redis.call('HLEN', attempts); redis.call('HLEN', extras); redis.call('HLEN', holders)
redis.call('ZCARD', ready); redis.call('ZCARD', next_due)
if redis.call('ZREM', schedule, member) + redis.call('ZREM', ready, member) > 0 then
  index_due(next_due, schedule)
  if ending ~= '' then
    keep_result(results, redis.call('HGET', attempts, id) or '', ending, redis.call('HGET', bodies, id) or '', ttl)
  end
  take_extra(extras, holders, member)
  redis.call('HDEL', bodies, id)
  redis.call('HDEL', attempts, id)
  return 'CANCELLED'
end
if redis.call('HEXISTS', running, id) == 1 then return 'LATE' end
return redis.call('HEXISTS', bodies, id) == 1 and 'ELSEWHERE' or 'GONE'
