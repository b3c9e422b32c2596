-- Turns: the jobs of each tenant, and the order in which a fair queue serves its tenants. A part of the prelude.
--
-- A fair queue shares its workers by start-time fair queueing (Goyal, Vin and Cheng, 1996). A flow is the ready jobs of
-- one tenant and one priority in one queue. Its tag is the moment, on a clock that runs with the service of the queue, at
-- which its next job begins; the flow with the lowest tag is served next, and its tag moves on by SERVICE / weight. A
-- flow that was empty begins at the queue's virtual time, the highest tag that was served: it gets no credit for the time
-- in which it had no jobs, and needs no job of another flow to end first.
--
-- The names of tenants are bytes: the hash of the queue (6), the digest of the name (8). A flow adds the priority (1). All
-- jobs without a tenant are of one: NO_TENANT.
-- `tenant_jobs` has an entry for each waiting job of a tenant, all of score 0, so that they are sorted by their bytes:
--   TURN, tenant, priority, time of the rank (6), id, flags, weight: a ready job of a fair queue;
--   NO_TURN, the same, weight 0: any other ready job of a tenant;
--   NOT_READY, tenant, member: a scheduled or recovered job.
-- `turns` has an entry for each flow, all of score 0: ACTIVE or IDLE, queue, priority, tag (7), digest. An active flow has
--   jobs. The tag of an idle one is ahead of the virtual time.
-- `tenants` maps a flow to ACTIVE or IDLE and its tag; queue and priority to the virtual time; and a tenant to who paused
--   it, byte 255, and its name. A flow of a paused tenant is not active, so nobody serves it.
-- These are an index: the `ready` sets decide on what is there. A claim drops entries that disagree with them (a worker of
-- an earlier release writes none), and gives turns to ready jobs that have none.
local TURN, NO_TURN, NOT_READY, ACTIVE, IDLE = '\0', '\1', '\2', '\0', '\1'
-- What tenant_digest() of store/digests.py returns for no tenant.
local NO_TENANT = '\228\166\160\87\116\121\178\180'
-- What a job of weight 1 costs: divisible by all weights up to 10. Tags are exact up to 2^53, which is 10^12 jobs.
local SERVICE = 5040
-- Higher than the rest of any entry that it is compared with.
local HIGHEST = string.rep('\255', 9)
-- encoded name -> hash
local queue_hashes = {}

local function queue_hash(key)
  local queue = queue_of(key)
  if not queue_hashes[queue] then
    local hex = redis.sha1hex(queue)
    queue_hashes[queue] =
      struct.pack('>I2I4', tonumber(string.sub(hex, 1, 4), 16), tonumber(string.sub(hex, 5, 12), 16))
  end
  return queue_hashes[queue]
end

-- Whether a place is a `ready` set: the others have no turns.
local function is_ready(place)
  return string.find(place, ':ready:[^:]*$') ~= nil
end

-- The tenant of a job in a queue, and its weight there (0 = the queue is not fair); nothing if the job has none. A job
-- without a tenant is of NO_TENANT only in a fair queue; it keeps that record if it moves to another queue.
local function tenant_of(member, place)
  local record = has(member, HAS_EXTRAS) and redis.call('HGET', job_extras, string.sub(member, 1, 12))
  local digest, weight = tenant_of_extras(record)
  if not digest or weight == 0 and digest == NO_TENANT then return end
  return queue_hash(place) .. digest, is_ready(place) and weight or 0
end

local function flow_of(tenant, member)
  return tenant .. string.sub(member, 13, 13)
end

-- The time of a rank, packed.
local function time_of(rank)
  local time = tonumber(rank) % PRIORITY_STEP
  -- A score that was edited manually may be infinite.
  return struct.pack('>I6', time == time and time or 0)
end

local function ready_entry(kind, member, rank, tenant, weight)
  local id, flags = string.sub(member, 1, 12), string.sub(member, 14)
  return kind .. flow_of(tenant, member) .. time_of(rank) .. id .. flags .. string.char(weight)
end

local function job_entry(place, member, score, tenant, weight)
  if not is_ready(place) then return NOT_READY .. tenant .. member end
  return ready_entry(weight > 0 and TURN or NO_TURN, member, score, tenant, weight)
end

-- The entry of a ready job that got its turn from a claim: its extras record, if it has one, names no weight.
local function late_entry(ready, member, score, tenant)
  return ready_entry(TURN, member, score, tenant or queue_hash(ready) .. NO_TENANT, 1)
end

-- All flows of a tenant that have jobs with a turn.
local function flows_of(tenant)
  local flows, from = {}, ''
  repeat
    local last = '(' .. TURN .. tenant .. HIGHEST
    local entry = redis.call('ZRANGE', tenant_jobs, '[' .. TURN .. tenant .. from, last, 'BYLEX', 'LIMIT', 0, 1)[1]
    if entry then
      flows[#flows + 1] = string.sub(entry, 2, 16)
      from = string.char(string.byte(entry, 16) + 1)
    end
  until not entry
  return flows
end

-- How many jobs of a tenant wait in a queue.
local function count_tenant_jobs(tenant)
  local count = 0
  for _, kind in ipairs({TURN, NO_TURN, NOT_READY}) do
    count = count + redis.call('ZLEXCOUNT', tenant_jobs, '[' .. kind .. tenant, '(' .. kind .. tenant .. HIGHEST)
  end
  return count
end

-- A worker of an earlier release claimed some jobs of a tenant: most entries of such jobs that are dropped at once.
local MOST_STALE = 100

local function drop_stale_entries(tenant)
  for _, kind in ipairs({TURN, NO_TURN, NOT_READY}) do
    local from, to, id_at = '[' .. kind .. tenant, '(' .. kind .. tenant .. HIGHEST, kind == NOT_READY and 16 or 23
    for _, entry in ipairs(redis.call('ZRANGE', tenant_jobs, from, to, 'BYLEX', 'LIMIT', 0, MOST_STALE)) do
      if redis.call('HEXISTS', jobs, string.sub(entry, id_at, id_at + 11)) == 0 then
        redis.call('ZREM', tenant_jobs, entry)
      end
    end
  end
end

-- One more job of a tenant is to wait in a queue, where `most` may. Returns whether it is refused. `counts` = what earlier
-- calls of the same script counted; `number` = the job's number in its batch.
local function refuse_if_full(counts, number, tenant, most)
  local count = counts[tenant] or {stored = count_tenant_jobs(tenant), added = 0, most = most, refused = {}}
  counts[tenant] = count
  if not count.refused[1] and count.stored + count.added >= most then
    drop_stale_entries(tenant)
    count.stored = count_tenant_jobs(tenant)
  end
  if count.stored + count.added < most then
    count.added = count.added + 1
    return false
  end
  if not count.refused[1] then counts[#counts + 1] = count end
  table.insert(count.refused, number)
  return true
end

-- The error that names all jobs that were refused, at least one. For each full tenant: the numbers of its jobs, how many
-- wait, how many may.
local function tenant_full(counts)
  local words = {'TENANTFULL'}
  for _, count in ipairs(counts) do
    local size = #words
    words[size + 1], words[size + 2], words[size + 3] = table.concat(count.refused, ','), count.stored, count.most
  end
  return redis.error_reply(table.concat(words, ' '))
end

-- The jobs of a flow in the order of their ranks: `count` entries after the first `skipped`.
local function jobs_of_flow(flow, skipped, count)
  local first, last = '[' .. TURN .. flow, '(' .. TURN .. flow .. HIGHEST
  return redis.call('ZRANGE', tenant_jobs, first, last, 'BYLEX', 'LIMIT', skipped, count)
end

local function read_record(record)
  if record and #record == 8 then return string.sub(record, 1, 1), (struct.unpack('>I7', record, 2)) end
end

local function read_flow(flow)
  return read_record(redis.call('HGET', tenants, flow))
end

-- The name of the virtual time of a flow.
local function clock_of(flow)
  return string.sub(flow, 1, 6) .. string.sub(flow, 15)
end

local function virtual_time(flow)
  local found = redis.call('HGET', tenants, clock_of(flow))
  return found and #found == 7 and struct.unpack('>I7', found) or 0
end

local function turn_entry(state, flow, tag)
  return state .. clock_of(flow) .. struct.pack('>I7', tag) .. string.sub(flow, 7, 14)
end

-- The flow of an entry of `turns`.
local function flow_of_turn(entry)
  return string.sub(entry, 2, 7) .. string.sub(entry, 16, 23) .. string.sub(entry, 8, 8)
end

local function remove_turn(flow)
  local state, tag = read_flow(flow)
  if not state then return end
  redis.call('ZREM', turns, turn_entry(state, flow, tag))
  redis.call('HDEL', tenants, flow)
end

local function put_turn(state, flow, tag)
  remove_turn(flow)
  redis.call('HSET', tenants, flow, state .. struct.pack('>I7', tag))
  redis.call('ZADD', turns, 0, turn_entry(state, flow, tag))
end

-- The flow has jobs: it gets a turn, unless it has one or its tenant is paused.
local function begin_turns(flow)
  local state, tag = read_flow(flow)
  if state == ACTIVE and redis.call('ZSCORE', turns, turn_entry(state, flow, tag)) then return end
  if redis.call('HEXISTS', tenants, string.sub(flow, 1, 14)) == 1 then return end
  put_turn(ACTIVE, flow, math.max(virtual_time(flow), tag or 0))
end

-- The flow is not served: its tag is kept while it is ahead, so that a tenant gains nothing by sending job after job.
local function end_turns(flow, tag)
  if tag > virtual_time(flow) then put_turn(IDLE, flow, tag) else remove_turn(flow) end
end

local function end_turns_if_empty(flow)
  local state, tag = read_flow(flow)
  if state == ACTIVE and not jobs_of_flow(flow, 0, 1)[1] then end_turns(flow, tag) end
end

local function cost_of(weight)
  return math.floor(SERVICE / math.max(1, weight) + 0.5)
end

-- After a job of a tenant entered a waiting place.
local function add_tenant_job(place, member, score)
  local tenant, weight = tenant_of(member, place)
  if not tenant then return end
  redis.call('ZADD', tenant_jobs, 0, job_entry(place, member, score, tenant, weight))
  if weight > 0 then begin_turns(flow_of(tenant, member)) end
end

-- After it left that place. Its extras record must still be there.
local function remove_tenant_job(place, member, score)
  local tenant, weight = tenant_of(member, place)
  local removed = tenant and redis.call('ZREM', tenant_jobs, job_entry(place, member, score, tenant, weight)) or 0
  if removed == 1 and weight > 0 then
    end_turns_if_empty(flow_of(tenant, member))
  elseif removed == 0 and is_ready(place) then
    local entry = late_entry(place, member, score, tenant)
    if redis.call('ZREM', tenant_jobs, entry) == 1 then end_turns_if_empty(string.sub(entry, 2, 16)) end
  end
end

-- After a claimed job that has paid (see read_claim()) became ready without having run to its end: its flow gets back what
-- the claim cost, also while its tenant is paused. A job without a weight has paid for a late turn.
local function refund_turn(ready, member)
  if not is_ready(ready) then return end
  local tenant, weight = tenant_of(member, ready)
  local flow = flow_of(tenant or queue_hash(ready) .. NO_TENANT, member)
  local state, tag = read_flow(flow)
  if not state then return end
  tag = math.max(0, tag - cost_of(weight or 0))
  if state == ACTIVE then put_turn(ACTIVE, flow, tag) else end_turns(flow, tag) end
end
