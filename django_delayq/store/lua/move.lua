-- Move: a waiting job changes its queue and keeps its due time or rank.
-- KEYS: scheduled, ready, recovered, to_scheduled, to_ready, to_recovered, to_notify, claim_records, jobs, queues,
--   queues_version, next_due, notify, next_promotion, notify_dispatcher; scheduled, ready and recovered are those of
--   its queue, the keys named to_… are those of the new one.
-- ARGV: now, member, the body that the caller read, the body to write.
-- Returns: MOVED; LATE (it is running), GONE (no such job waits), ELSEWHERE (it waits in another queue, or its body
--   changed: read its body again).
-- Cost: O(log n).
local now, member, old_body, new_body = now_us(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]

local id = string.sub(member, 1, 12)
local place, score = waiting_place(member, scheduled, ready, recovered)
if not place then return why_not_waiting(id) end
if redis.call('HGET', jobs, id) ~= old_body then return 'ELSEWHERE' end
-- Type checks (see the prelude).
check_scheduled(to_scheduled); check_ready(to_ready); redis.call('ZCARD', to_recovered)
redis.call('ZREM', place, member)
redis.call('HSET', jobs, id, new_body)
if place == scheduled then
  index_due(scheduled)
  put_scheduled(to_scheduled, {tonumber(score), member})
else
  put_ready(now, place == ready and to_ready or to_recovered, to_notify, {tonumber(score), member})
end
return 'MOVED'
