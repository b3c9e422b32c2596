-- Pause_tenant: no worker claims jobs of this tenant from this fair queue from now on; running ones continue.
-- KEYS: tenant_jobs, turns, tenants, ready; ready is that of the queue.
-- ARGV: now, digest of the tenant, who pauses it, the tenant's name: its jobs have it too, but it may have none.
-- Returns: 1 = paused, 0 = it was paused already. The earlier name stays.
-- Cost: O(log n) a priority of its jobs.
local now, digest, by, name = now_us(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]

local tenant = queue_hash(ready) .. digest
-- Type checks, then freeing first (see the prelude).
check_tenants()
redis.call('ZREM', turns, '')
-- Not HSET: users of other roles have that, and must not pause a tenant.
-- No text in UTF-8 has a byte 255. Older releases show the tenant's name as part of the person's.
local record = string.format('%.0f ', now) .. by .. '\255' .. name
if redis.call('HSETNX', tenants, tenant, record) == 0 then return 0 end
for _, flow in ipairs(flows_of(tenant)) do
  local state, tag = read_flow(flow)
  if state == ACTIVE then end_turns(flow, tag) end
end
return 1
