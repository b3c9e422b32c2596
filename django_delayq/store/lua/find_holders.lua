-- Find_holders: which jobs hold unique keys, and in which queues they may wait. Reads only.
-- KEYS: unique_keys, jobs, job_extras, claim_records.
-- ARGV: now, then digests of unique keys (16 bytes each, 1 to 250).
-- Returns: now (µs), then per key: the holder's member and the first 260 bytes of its body, which name its queue; '' and
--   '' if no job holds the key.
-- Cost: O(1) a key.
local now = now_us(ARGV[1])
local reply = {now}
for at = 2, #ARGV do
  local holder = holder_of(ARGV[at])
  local body = holder ~= '' and redis.call('HGET', jobs, string.sub(holder, 1, 12)) or ''
  reply[#reply + 1], reply[#reply + 2] = holder, string.sub(body, 1, 260)
end
return reply
