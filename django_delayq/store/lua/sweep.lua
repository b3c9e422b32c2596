-- Sweep: an idle worker, whose next request waits behind a blocking pop, looks whether a notification was lost: workers
--   are notified of ready jobs of its queues. Safe to repeat.
-- KEYS: notify, next_promotion, exchanges, queues_version; then ready, notify, recovered and parked of each queue.
-- ARGV: now, worker (8 bytes), number of its request, 1 = it serves all queues, whose workers have a notification of their
--   own.
-- Returns: µs after which no dispatcher promotes any more (0 = none does), version of the queues ('' = none), 1 = the
--   request was run, so its reply was lost.
-- Cost: O(1) a queue.
local now, last = now_us(ARGV[1]), redis.call('HGET', exchanges, ARGV[2])
local promotion, version = redis.call('GET', next_promotion), redis.call('GET', queues_version) or ''

for base = FIXED, #KEYS - 4, 4 do
  if redis.call('EXISTS', KEYS[base + 1], KEYS[base + 3]) > 0 then
    push_notification(ARGV[4] == '1' and notify or KEYS[base + 2])
  end
end
local was_run = last and #last >= 16 and struct.unpack('>I8', last) >= tonumber(ARGV[3])
return {overdue_in(now, promotion), version, was_run and 1 or 0}
