-- Snapshot: what a dashboard's head shows of one shard, as of one moment. Reads only.
-- KEYS: leases, jobs, dead_letters, queues, next_due, paused, workers, dispatchers, process_reports, quiet_workers,
--   metrics; then schedule, ready and recovered of each queue the caller knows.
-- ARGV: now, 1 = also what the server says of itself, then the scopes whose counters are asked for.
-- Returns: now (µs), claimed jobs, dead letters, those of the last hour, newest death ('' = none), names of queues,
--   encoded; then, flat: paused; workers and dispatchers with their scores; reports; quieted; a ring per scope (false
--   = none); INFO ('' = not asked for, or not allowed); then per queue: waiting in schedule, ready (recovered ones
--   too), overdue, due time of the oldest overdue ('' = none) and of the first that is not due yet, the front of its
--   body (false = none), member and rank of the first ready one.
-- Cost: O(log n) a queue, O(1) a process and scope.
local now, asked = now_us(ARGV[1]), ARGV[2] == '1'

-- The front of a body holds the names of its queue and task, in 1,030 bytes at most.
local HOUR, PROCESSES, FRONT, SLICE = 3600000000, 1000, 1030, 1000
local newest = redis.call('ZRANGE', dead_letters, -1, -1, 'WITHSCORES')
local rings = {}
-- In slices: Lua takes no more than some thousand arguments at once.
for from = 3, #ARGV, SLICE do
  local found = redis.call('HMGET', metrics, unpack(ARGV, from, math.min(from + SLICE - 1, #ARGV)))
  for i = 1, math.min(SLICE, #ARGV - from + 1) do rings[#rings + 1] = found[i] or false end
end
local info = asked and redis.pcall('INFO') or ''
local reply = {
  now, redis.call('ZCARD', leases), redis.call('ZCARD', dead_letters), redis.call('ZCOUNT', dead_letters, now - HOUR, '+inf'),
  newest[2] or '', redis.call('ZUNION', 2, queues, next_due), redis.call('HGETALL', paused),
  redis.call('ZRANGE', workers, -PROCESSES, -1, 'WITHSCORES'), redis.call('ZRANGE', dispatchers, -PROCESSES, -1, 'WITHSCORES'),
  redis.call('HGETALL', process_reports), redis.call('HKEYS', quiet_workers), rings, type(info) == 'string' and info or '',
}
for base = FIXED, #KEYS - 3, 3 do
  local scheduled, ready, recovered, size = KEYS[base + 1], KEYS[base + 2], KEYS[base + 3], #reply
  local oldest, first, back = lowest(scheduled, 0), lowest(ready, 0), lowest(recovered, 0)
  local number = (first[1] and redis.call('ZCARD', ready) or 0) + (back[1] and redis.call('ZCARD', recovered) or 0)
  if back[1] and not (first[1] and tonumber(first[2]) <= tonumber(back[2])) then first = back end
  local waiting = oldest[1] and redis.call('ZCARD', scheduled) or 0
  local overdue = waiting > 0 and redis.call('ZCOUNT', scheduled, '-inf', now) or 0
  local following = overdue < waiting and redis.call('ZRANGE', scheduled, overdue, overdue, 'WITHSCORES') or {}
  reply[size + 1], reply[size + 2], reply[size + 3] = waiting, number, overdue
  reply[size + 4], reply[size + 5] = overdue > 0 and oldest[2] or '', following[2] or ''
  local body = following[1] and redis.call('HGET', jobs, string.sub(following[1], 1, 12))
  reply[size + 6] = body and string.sub(body, 1, FRONT) or false
  reply[size + 7], reply[size + 8] = first[1] or '', first[2] or ''
end
return reply
