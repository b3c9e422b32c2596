-- Heartbeat: every lease that a worker still holds gets a later end, and the queues of its jobs stay listed.
-- KEYS: leases, workers, queues, unconfirmed.
-- ARGV: now, worker (8 bytes), lease (µs), the leases (30 bytes each, joined, ≤ 500), then the names of their queues,
--   encoded.
-- Returns: the leases that the worker lost (30 bytes each, joined).
-- Cost: O(k log n).
local now, worker, lease_us, joined = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4]

local held, ends, lost = {}, {}, ''
for i = 1, #joined, 30 do held[#held + 1] = string.sub(joined, i, i + 29) end
-- Type checks (see the prelude).
redis.call('ZCARD', workers); redis.call('ZCARD', queues)
-- Freeing first (see the prelude): otherwise every lease would expire while the memory is full. A worker that renews a
-- lease has received its claim, so the claim is confirmed.
redis.call('SREM', unconfirmed, '', unpack(held))
if #held > 0 then
  for i, score in ipairs(redis.call('ZMSCORE', leases, unpack(held))) do
    if score then
      ends[#ends + 1], ends[#ends + 2] = now + lease_us, held[i]
    else
      lost = lost .. held[i]
    end
  end
  if #ends > 0 then redis.call('ZADD', leases, 'XX', unpack(ends)) end
end
redis.call('ZADD', workers, now, worker)
for at = 5, #ARGV do redis.call('ZADD', queues, 'XX', now, ARGV[at]) end
return lost
