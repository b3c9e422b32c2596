-- Heartbeat: every lease that a worker still holds gets a later end, the queues of its jobs stay listed, and the
--   progress of its jobs is stored. The worker learns which jobs it must stop.
-- KEYS: leases, workers, queues, unconfirmed, claim_records, quiet_workers.
-- ARGV: now, worker (8 bytes), lease (µs), the leases (30 bytes each, joined, ≤ 500), number of queues, then the names
--   of the queues of their jobs, encoded, then per progress: one of these leases, JSON.
-- Returns: the leases that the worker lost (30 bytes each, joined), 1 = the worker should take no more jobs, then per
--   job to stop: its lease, µs until its code must have ended (≤ 0: at once).
-- Cost: O(k log n).
local now, worker, lease_us, joined, names = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])

local held, ids, ends, lost, reply = {}, {}, {}, '', {}
for i = 1, #joined, 30 do
  held[#held + 1], ids[#ids + 1] = string.sub(joined, i, i + 29), string.sub(joined, i, i + 11)
end
-- Type checks (see the prelude).
redis.call('ZCARD', workers); redis.call('ZCARD', queues)
-- A key of another type (edited manually) must not cost a worker its leases.
local quiet, records, alive = redis.pcall('HEXISTS', quiet_workers, worker) == 1 and 1 or 0, {}, {}
if #held > 0 then records = redis.call('HMGET', claim_records, unpack(ids)) end
-- Freeing first (see the prelude): otherwise every lease would expire while the memory is full. A worker that renews a
-- lease has received its claim, so the claim is confirmed.
redis.call('SREM', unconfirmed, '', unpack(held))
if #held > 0 then
  for i, score in ipairs(redis.call('ZMSCORE', leases, unpack(held))) do
    local lease, record = held[i], records[i]
    if score then
      local stop_by, _, progress_at = read_claim(record, string.sub(lease, 15))
      ends[#ends + 1], ends[#ends + 2] = now + lease_us, lease
      if stop_by then reply[#reply + 1], reply[#reply + 2] = lease, stop_by - now end
      -- What is stored before the progress; a record of another token, or a damaged one, gets none.
      alive[lease] = progress_at and string.sub(record, 1, progress_at - 1)
    else
      lost = lost .. lease
    end
  end
  if #ends > 0 then redis.call('ZADD', leases, 'XX', unpack(ends)) end
end
redis.call('ZADD', workers, now, worker)
for at = 6, 5 + names do redis.call('ZADD', queues, 'XX', now, ARGV[at]) end
for at = 6 + names, #ARGV, 2 do
  local record = alive[ARGV[at]]
  if record then redis.call('HSET', claim_records, string.sub(ARGV[at], 1, 12), record .. ARGV[at + 1]) end
end
return {lost, quiet, unpack(reply)}
