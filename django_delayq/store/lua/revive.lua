-- Revive: a dead letter of another shard becomes a waiting job of this one, to which its key, tenant or limit belongs. It
--   keeps its id and its history. Safe to repeat: it comes once, even if it has ended since.
-- KEYS: jobs, attempts, job_extras, unique_keys, queues, queues_version, next_due, notify, next_promotion,
--   notify_dispatcher, tenant_jobs, turns, tenants, shards, lingering, arrivals, scheduled, ready, queue_notify.
-- ARGV: now, head start (ms), number of the layout, '' or since which layout it belongs to another shard (8) and its
--   routing value, member, due time ('+n' = n µs from now, n = µs since the epoch), body, attempts record, extras record,
--   time of death that the caller saw (µs).
-- Returns: REQUEUED and its due time (µs); or 0 with HELD (another job holds its key), GO_ON (it belongs to another
--   shard, and nothing of its value is left here), or GONE (it came before, and has ended).
-- Errors: LAYOUT <text>: the shard knows another layout.
-- Replicas: a producer's call waits for those of WAIT_REPLICAS.
-- Cost: O(log n).
local now, head_start, is_refused, left = now_us(ARGV[1]), tonumber(ARGV[2]), other_layout(ARGV[3]), ARGV[4]
if is_refused then return is_refused end

local member, due, body, record, extra = ARGV[5], math.max(now, due_time(ARGV[6], now)), ARGV[7], ARGV[8], ARGV[9]
local id = string.sub(member, 1, 12)
-- Type checks (see the prelude).
check_hashes(jobs, attempts, job_extras, unique_keys, lingering); check_zsets(arrivals); check_tenants()
check_scheduled(scheduled); check_ready(ready)
if redis.call('HEXISTS', jobs, id) == 1 then return {'REQUEUED', due} end
-- A slow caller must not bring back what another one has brought.
if redis.call('ZSCORE', arrivals, id .. ARGV[10]) then return {'GONE', 0} end
local key, until_start = key_of_extras(extra)
local is_held = key and redis.call('HEXISTS', unique_keys, key) == 1
if is_held and not until_start then return {'HELD', 0} end
if left ~= '' and not lingers(left) then return {'GO_ON', 0} end

redis.call('HSET', jobs, id, body)
keep_record(arrivals, now, id .. ARGV[10])
-- Without a history, no record is the same.
if #record > 3 then redis.call('HSET', attempts, id, record) end
redis.call('HSET', job_extras, id, extra)
if key and not is_held then redis.call('HSET', unique_keys, key, member) end
if left ~= '' then keep_lingering(left) end
if due > now then
  put_scheduled(scheduled, {due, member})
else
  put_ready(now, ready, queue_notify, {rank_of(member, now, head_start), member})
end
return {'REQUEUED', due}
