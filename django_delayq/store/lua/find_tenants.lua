-- Find_tenants: the tenants of a queue that have waiting jobs, in the order of their digests; or one tenant. Reads only.
-- KEYS: tenant_jobs, tenants, jobs, ready; ready is that of the queue.
-- ARGV: now, most tenants, the digest after which to go on ('' = the first), digest of the only tenant ('' = all).
-- Returns: per tenant: digest, waiting jobs, time (ms) and flags of the next ready job ('' = none is ready), who paused it
--   and when ('' = nobody), id of one of its jobs ('' = none), and its body (false = none, or it is large).
-- Cost: O(log n) a tenant.
local now, most, after, only = now_us(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]

local hash, rows = queue_hash(ready), {}
-- A hundred larger bodies would block Redis.
local LARGE_BODY = 32768

local function first(kind, from, last)
  local before = kind .. hash
  return redis.call('ZRANGE', tenant_jobs, '[' .. before .. from, '(' .. before .. last, 'BYLEX', 'LIMIT', 0, 1)[1]
end

local function add(digest)
  local entry = first(TURN, digest, digest .. HIGHEST) or first(NO_TURN, digest, digest .. HIGHEST)
  local any = entry or first(NOT_READY, digest, digest .. HIGHEST)
  local at = any and (entry and 23 or 16)
  rows[#rows + 1] = digest
  rows[#rows + 1] = count_tenant_jobs(hash .. digest)
  rows[#rows + 1] = entry and struct.unpack('>I6', entry, 17) or ''
  rows[#rows + 1] = entry and string.byte(entry, 35) or ''
  rows[#rows + 1] = redis.call('HGET', tenants, hash .. digest) or ''
  local id = at and string.sub(any, at, at + 11) or ''
  rows[#rows + 1] = id
  rows[#rows + 1] = redis.call('HSTRLEN', jobs, id) <= LARGE_BODY and redis.call('HGET', jobs, id)
end

if only ~= '' then
  add(only)
  return rows
end
while #rows < 7 * most do
  -- The next digest is the lowest that follows in any kind. Lua's `<` follows the locale of the server, so Redis sorts.
  local found = {}
  for _, kind in ipairs({TURN, NO_TURN, NOT_READY}) do
    local entry = first(kind, after == '' and '' or after .. HIGHEST, HIGHEST)
    if entry then found[#found + 1] = string.sub(entry, 8, 15) end
  end
  -- A digest that comes twice is of an entry that was edited manually.
  if #found == 0 or found[1] == after then break end
  after = found[1]
  for _, digest in ipairs(found) do
    for i = 1, 8 do
      local a, b = string.byte(digest, i), string.byte(after, i)
      if a ~= b then
        if a < b then after = digest end
        break
      end
    end
  end
  add(after)
end
return rows
