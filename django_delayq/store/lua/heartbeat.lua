-- Heartbeat: push the end of every lease a worker still holds, and keep their queues remembered.
-- KEYS: leases, workers, queues, unconfirmed.
-- ARGV: now, worker (8 bytes), lease (µs), the leases (30 bytes each, joined, ≤ 500), then names of their queues,
--   encoded.
-- Returns: the leases that are lost (joined).
-- Cost: O(k log n).
local now, worker, lease_us, held = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4]

local named, ends, lost = {}, {}, ''
for i = 1, #held, 30 do named[#named + 1] = string.sub(held, i, i + 29) end
-- Read before the first write: a key of another type (written by hand) refuses the step, or would end it half-done.
redis.call('ZCARD', workers); redis.call('ZCARD', queues)
-- A write that frees comes first: with its memory full, Redis refuses a ZADD as the first, and every lease would lapse.
-- A worker that renews a lease has the claim, whatever became of its mark.
redis.call('SREM', unconfirmed, '', unpack(named))
if #named > 0 then
  for i, score in ipairs(redis.call('ZMSCORE', leases, unpack(named))) do
    if score then
      ends[#ends + 1], ends[#ends + 2] = now + lease_us, named[i]
    else
      lost = lost .. named[i]
    end
  end
  if #ends > 0 then redis.call('ZADD', leases, 'XX', unpack(ends)) end
end
redis.call('ZADD', workers, now, worker)
for at = 5, #ARGV do redis.call('ZADD', queues, 'XX', now, ARGV[at]) end
return lost
