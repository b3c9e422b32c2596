-- Stop: a running job is asked to stop: its worker is notified, and no worker runs the job again. Safe to repeat: the
--   last call decides until when its code may run.
-- KEYS: claim_records, worker_notify; worker_notify is the notification of the worker that holds the claim.
-- ARGV: now, id, token of the claim as the caller read it, µs from now until its code must have ended.
-- Returns: 1 = it was asked, 0 = this claim is no more.
-- Cost: O(1).
local now, id, token, grace = now_us(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])

local record = redis.call('HGET', claim_records, id)
local stop_by, _, progress_at = read_claim(record, token)
if not progress_at then return 0 end
local flags, rest = string.byte(record, 33), string.sub(record, stop_by and 42 or 34)
-- Freeing first (see the prelude).
redis.call('HDEL', claim_records, '')
local stopping = struct.pack('>BI8', flags - flags % 2 + 1, now + grace)
redis.call('HSET', claim_records, id, string.sub(record, 1, 32) .. stopping .. rest)
push_notification(worker_notify)
-- A worker that has died, or is of a release before this script, never reads it. A lost one costs a third of a lease.
expire(worker_notify, 60000)
return 1
