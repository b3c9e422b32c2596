-- Reschedule: a job that waits gets another due time; one that is due at once goes to `ready`.
-- KEYS: the named ones; schedule, ready and its bell are those of the queue the caller read in the job's body.
-- ARGV: now, member, due ('+n' = n µs from now, n = µs since the epoch), head start (ms).
-- Returns: RESCHEDULED and the new due time (µs); LATE, GONE or ELSEWHERE (as cancel) and 0.
-- Cost: O(log n).
local schedule, ready, queue_bell, running, bodies, queues, queues_version, next_due, bell, wake_at, alarm = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9], KEYS[10], KEYS[11]
local now, member, due, head_start = now_us(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])

local shard = {queues = queues, queues_version = queues_version, next_due = next_due, bell = bell, wake_at = wake_at, alarm = alarm}
local id = string.sub(member, 1, 12)
check_scheduled(shard, schedule); check_ready(shard, ready)
if redis.call('ZREM', schedule, member) + redis.call('ZREM', ready, member) == 0 then
  if redis.call('HEXISTS', running, id) == 1 then return {'LATE', 0} end
  return {redis.call('HEXISTS', bodies, id) == 1 and 'ELSEWHERE' or 'GONE', 0}
end
if string.byte(due) == 43 then due = now + tonumber(string.sub(due, 2)) else due = math.max(now, tonumber(due)) end
if due > now then
  put_scheduled(shard, schedule, {due, member}, due)
else
  index_due(next_due, schedule)
  put_ready(shard, now, ready, queue_bell, {rank_of(member, now, head_start), member})
end
return {'RESCHEDULED', due}
