-- Resume_tenant: workers claim jobs of this tenant again, from now on.
-- KEYS: tenant_jobs, turns, tenants, ready, recovered, queue_notify, notify; ready, recovered and queue_notify are those
--   of the queue.
-- ARGV: now, digest of the tenant.
-- Returns: 1 = resumed, 0 = it was not paused.
-- Cost: O(log n) a priority of its jobs.
local now, digest = now_us(ARGV[1]), ARGV[2]

local tenant = queue_hash(ready) .. digest
-- Type checks (see the prelude).
check_tenants()
local waiting = redis.call('ZCARD', ready) + redis.call('ZCARD', recovered)
if redis.call('HDEL', tenants, tenant) == 0 then return 0 end
for _, flow in ipairs(flows_of(tenant)) do begin_turns(flow) end
if waiting > 0 then notify_workers(queue_notify) end
return 1
