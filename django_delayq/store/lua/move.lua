-- Move: a job that waits changes its queue and keeps its due time or rank.
-- KEYS: scheduled, ready, recovered, to_scheduled, to_ready, to_recovered, to_notify, claim_records, jobs, queues,
--   queues_version, next_due, notify, next_promotion, notify_dispatcher; schedule, ready and recovered are those of its
--   queue, the others named to_… those of the new one.
-- ARGV: now, member, the body the caller read, the body to write.
-- Returns: MOVED, LATE, GONE, or ELSEWHERE (in another queue, or its body is another by now: read again).
-- Cost: O(log n).
local now, member, old_body, new_body = now_us(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]

local shard = {queues = queues, queues_version = queues_version, next_due = next_due, notify = notify, next_promotion = next_promotion, notify_dispatcher = notify_dispatcher}

local id = string.sub(member, 1, 12)
local place, score = waiting_place(member, scheduled, ready, recovered)
local body = redis.call('HGET', jobs, id)
if not place then
  if redis.call('HEXISTS', claim_records, id) == 1 then return 'LATE' end
  return body and 'ELSEWHERE' or 'GONE'
end
if body ~= old_body then return 'ELSEWHERE' end
-- Read before the first write: a key of another type (written by hand) refuses the step, or would end it half-done.
check_scheduled(shard, to_scheduled); check_ready(shard, to_ready); redis.call('ZCARD', to_recovered)
redis.call('ZREM', place, member)
redis.call('HSET', jobs, id, new_body)
if place == scheduled then
  index_due(next_due, scheduled)
  put_scheduled(shard, to_scheduled, {tonumber(score), member})
else
  put_ready(shard, now, place == ready and to_ready or to_recovered, to_notify, {tonumber(score), member})
end
return 'MOVED'
