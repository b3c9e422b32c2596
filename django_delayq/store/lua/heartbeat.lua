-- Heartbeat: push the end of every lease a worker still holds.
-- KEYS: the named ones. ARGV: now, worker (8 bytes), lease (µs), the leases (30 bytes each, joined, ≤ 500).
-- Returns: the leases that are lost (joined).
-- Cost: O(k log n).
local leases, workers = KEYS[1], KEYS[2]
local now, worker, lease_us, held = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4]

local named, ends, lost = {}, {}, ''
for i = 1, #held, 30 do named[#named + 1] = string.sub(held, i, i + 29) end
-- Read before the first write: a key of another type (written by hand) refuses the step, or would end it half-done.
redis.call('ZCARD', workers)
-- A write that frees comes first: with its memory full, Redis refuses a ZADD as the first, and every lease would lapse.
redis.call('ZREM', leases, '')
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
return lost
