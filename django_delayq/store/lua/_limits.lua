-- Limits: how many jobs may begin within a time, and how many may run at once. A part of the prelude.
--
-- A rate is kept by the generic cell rate algorithm (ITU-T I.371). Each limit stores its theoretical arrival time. A claim
-- moves it on by cost * interval. A job may begin if that time is then at most burst * interval ahead of now. Only the
-- moments of claims count, so no job begins too early.
--
-- A limit's id is the hash of its name (4) and the digest of its value (8), or for a paused task PAUSED_TASK and the digest
-- of its name. `limit_jobs` has these entries, all of score 0, so that they are sorted by their bytes:
--   PARKED, id, queue (6), tenant (8), rank (8), member, cost (2), name of the queue: a job that waits for the limit;
--   LET_IN, id, queue (6), tenant (8), member, cost (2): a job that waited for it, and is ready again but not claimed yet;
--   SLOT, id, lease (30): a job that runs.
-- The tenant of a job whose queue is not fair is NO_GROUP. The slots of a limit are counted by their entries, and each entry
-- names the lease that ends it, so that a slot whose lease has ended is found.
-- `next_let_in` has each limit that has parked jobs, and when the dispatcher has to look at it: when the next job may
-- begin, or else soon.
local PARKED, LET_IN, SLOT, PAUSED_TASK, NO_GROUP = '\0', '\1', '\2', 'task', string.rep('\0', 8)
-- Before the id of a limit in `limit_times`: until when nobody begins, because a task backed off.
local BACK_OFF, LONGEST_BACK_OFF = '\1', 86400000000
-- After how long (µs) the dispatcher looks at a limit at which a job was just parked, even if nothing opens it.
local LOOK_AGAIN = 2000000
-- id -> what this script knows of the limit
local limit_states = {}

-- The limits of a packed list: id and cost of each.
local function unpack_limits(packed)
  local limits = {}
  for i = 1, #packed - 13, 14 do
    limits[#limits + 1] = {id = string.sub(packed, i, i + 11), cost = struct.unpack('>I2', packed, i + 12)}
  end
  return limits
end

local function pack_limit(limit)
  return limit.id .. struct.pack('>I2', limit.cost)
end

-- The limits of a job: id and cost of each; and whether the job is dropped, and not parked, if it may not begin.
local function limits_of_extras(record)
  if not record or math.floor((string.byte(record) or 0) / 32) % 2 == 0 then return {}, false end
  local has_tenant = tenant_of_extras(record) ~= nil
  local at = #record - (has_tenant and 9 or 0)
  local last = string.byte(record, at) or 0
  local from = at - 14 * (last % 128)
  return from > 1 and unpack_limits(string.sub(record, from, at - 1)) or {}, last >= 128
end

-- Jobs of one group are let in by their ranks: those of a queue, or in a fair queue those of a tenant.
local function group_of_extras(record)
  local digest, weight = tenant_of_extras(record)
  return weight and weight > 0 and digest or NO_GROUP
end

local function read_extras(member)
  return has(member, HAS_EXTRAS) and redis.call('HGET', job_extras, string.sub(member, 1, 12)) or nil
end

local function is_paused_task(id)
  return string.sub(id, 1, 4) == PAUSED_TASK
end

-- The limit as it is now: interval (µs) and burst of its rate, most jobs that run, its time, number of slots taken, and
-- until when nobody begins.
local function limit_state(now, id)
  local state = limit_states[id]
  if state then return state end
  state = {interval = 0, burst = 1, most = math.huge, time = now, slots = 0, back_off = 0}
  limit_states[id] = state
  if is_paused_task(id) then
    if redis.call('HEXISTS', paused_tasks, id) == 1 then state.most = 0 end
    return state
  end
  local rule = redis.call('HGET', limit_rules, string.sub(id, 1, 4))
  if rule and #rule >= 16 then
    local interval, burst, most = struct.unpack('>dI4I4', rule)
    state.interval, state.burst, state.most = interval, burst, most > 0 and most or math.huge
  end
  local times = redis.call('ZMSCORE', limit_times, id, BACK_OFF .. id)
  -- A later time has one of four reasons: the clock was set back, the burst was larger, a person started a job in spite of
  -- the limit, or a job costs more than the burst.
  local stored, farthest = tonumber(times[1] or 0), now + state.burst * state.interval
  state.time, state.is_too_far = math.max(now, math.min(stored, farthest)), stored > farthest
  local back_off = tonumber(times[2] or 0)
  state.back_off, state.backs_off_too_far = math.min(back_off, now + LONGEST_BACK_OFF), back_off > now + LONGEST_BACK_OFF
  if state.most < math.huge then
    local first = SLOT .. id
    state.slots = redis.call('ZLEXCOUNT', limit_jobs, '[' .. first, '(' .. first .. HIGHEST)
  end
  return state
end

-- The earliest moment at which a job of this cost may begin; huge if it needs a slot that another job has. A job that costs
-- more than the burst was enqueued under an older rule, and needs the whole burst.
local function opens_at(state, cost)
  if state.slots >= state.most then return math.huge end
  return math.max(state.back_off, state.time + (cost - math.max(state.burst, cost)) * state.interval)
end

local function count_in_limit(state, cost)
  state.time, state.slots = state.time + cost * state.interval, state.slots + 1
end

-- A job that begins is counted by the states of its limits; store_slots() stores that.
local function count_in_limits(now, limits)
  for _, limit in ipairs(limits) do count_in_limit(limit_state(now, limit.id), limit.cost) end
end

local function let_in_entry(id, place, group, member, cost)
  return LET_IN .. id .. queue_hash(place) .. group .. member .. struct.pack('>I2', cost)
end

local function parked_entry(id, place, group, member, rank, cost)
  local place_and_rank = queue_hash(place) .. group .. struct.pack('>I8', math.max(0, rank))
  return PARKED .. id .. place_and_rank .. member .. struct.pack('>I2', cost) .. queue_of(place)
end

-- The fields of an entry of a parked job; nothing if it was edited manually.
local function read_parked(entry)
  if #entry < 52 then return end
  local hash, group, _, member, cost = struct.unpack('>c6c8c8c14I2', entry, 14)
  return {hash = hash, group = group, member = member, cost = cost, queue = string.sub(entry, 52)}
end

-- The first entries that begin with `prefix`, and go on with `after` or more.
local function entries_of(prefix, count, after)
  local low, high = '[' .. prefix .. (after or ''), '(' .. prefix .. HIGHEST
  return redis.call('ZRANGE', limit_jobs, low, high, 'BYLEX', 'LIMIT', 0, count)
end

-- The first entry of a job that waits for a limit, among those that go on with `within`.
local function first_parked(id, within)
  return entries_of(PARKED .. id .. within, 1)[1]
end

-- The first parked job of each queue that has some under this limit, at most so many queues.
local function parked_queues(id, most)
  local found, after = {}, ''
  while #found < most do
    local entry = entries_of(PARKED .. id, 1, after)[1]
    if not entry then break end
    local parked = read_parked(entry)
    if parked then
      found[#found + 1], after = parked, parked.hash .. HIGHEST
    else
      redis.call('ZREM', limit_jobs, entry)
    end
  end
  return found
end

-- The dispatcher looks at the limit at this moment (0 = now, huge = at none), if jobs wait for it. Call check_limits()
-- before the first write.
local function schedule_let_in(id, moment)
  if moment == math.huge or not first_parked(id, '') then return end
  -- A clock that is read in whole microseconds never shows a part of one.
  local is_earlier = redis.call('ZADD', next_let_in, 'LT', 'CH', math.ceil(moment), id) == 1
  if is_earlier and moment < (tonumber(promotion_at or '') or math.huge) then push_notification(notify_dispatcher) end
end

-- The type checks of how jobs wait for limits (see _prelude.lua).
local function check_limits()
  check_zsets(limit_jobs, next_let_in); check_hashes(waiting_for)
  promotion_at = redis.call('GET', next_promotion)
end

-- The same of scripts that read states of limits.
local function check_limit_states()
  check_limits(); check_zsets(limit_times); check_hashes(limit_rules, paused_tasks)
end

local function cost_of_limit(limits, id)
  for _, limit in ipairs(limits) do
    if limit.id == id then return limit.cost end
  end
  return 1
end

-- A job leaves `parked`, and its extras record is still there.
local function unpark(parked, member, rank)
  local job_id, record = string.sub(member, 1, 12), read_extras(member)
  local id = redis.call('HGET', waiting_for, job_id)
  redis.call('ZREM', parked, member)
  redis.call('HDEL', waiting_for, job_id)
  if id then
    local cost = cost_of_limit(limits_of_extras(record), id)
    redis.call('ZREM', limit_jobs, parked_entry(id, parked, group_of_extras(record), member, tonumber(rank), cost))
  end
end

-- A job that was let in leaves its ready place unclaimed: another one may be let in.
local function forget_let_in(place, member)
  local record = read_extras(member)
  for _, limit in ipairs(limits_of_extras(record)) do
    local entry = let_in_entry(limit.id, place, group_of_extras(record), member, limit.cost)
    if redis.call('ZREM', limit_jobs, entry) == 1 then schedule_let_in(limit.id, 0) end
  end
end

-- A time that was too far ahead comes nearer only if that is stored.
local function correct_times(id, state)
  if state.is_too_far then redis.call('ZADD', limit_times, state.time, id) end
  if state.backs_off_too_far then redis.call('ZADD', limit_times, state.back_off, BACK_OFF .. id) end
end

-- A lease takes a slot of a limit whose state counts it already.
local function store_slot(lease, limit, state)
  redis.call('ZADD', limit_jobs, 0, SLOT .. limit.id .. lease)
  if state.interval > 0 then redis.call('ZADD', limit_times, state.time, limit.id) end
  schedule_let_in(limit.id, opens_at(state, 1))
end

-- A job that is claimed takes what count_in_limits() has counted: a slot of each limit, which `claim_limits` names.
-- `record` = its extras record.
local function store_slots(now, place, lease, record)
  local member, held = string.sub(lease, 1, 14), {}
  begin_run(now, member, record)
  for i, limit in ipairs(limits_of_extras(record)) do
    redis.call('ZREM', limit_jobs, let_in_entry(limit.id, place, group_of_extras(record), member, limit.cost))
    store_slot(lease, limit, limit_state(now, limit.id))
    held[i] = pack_limit(limit)
  end
  redis.call('HSET', claim_limits, string.sub(lease, 1, 12), table.concat(held))
end

local function free_slot(now, lease, id)
  local known = limit_states[id]
  local removed = redis.call('ZREM', limit_jobs, SLOT .. id .. lease)
  local state = limit_state(now, id)
  if known then state.slots = state.slots - removed end
  schedule_let_in(id, opens_at(state, 1))
end

-- Frees slots whose lease has ended, among the 100 oldest of a closed limit. Only scripts of a release without limits leave
-- such slots: during a deploy, a dispatcher of that release may end a lease.
local function free_ended_slots(id, state)
  for _, entry in ipairs(entries_of(SLOT .. id, 100)) do
    local lease = string.sub(entry, 14)
    if not redis.call('ZSCORE', leases, lease) and not redis.call('ZSCORE', outside_slots, id .. lease) then
      redis.call('ZREM', limit_jobs, entry)
      state.slots = state.slots - 1
    end
  end
end

-- A lease has ended: its slots are free. `held` = what `claim_limits` has. A job that was claimed at this moment and did not
-- begin gets back what it cost, but only what has not passed since: of the rest, others may have made use.
local function free_slots(now, lease, held, unbegun_since)
  redis.call('HDEL', claim_limits, string.sub(lease, 1, 12))
  for _, limit in ipairs(unpack_limits(held)) do
    local state = limit_state(now, limit.id)
    if unbegun_since and state.interval > 0 then
      local unused = math.max(0, limit.cost * state.interval - math.max(0, now - unbegun_since))
      state.time = math.max(now, state.time - unused)
      redis.call('ZADD', limit_times, state.time, limit.id)
    end
    free_slot(now, lease, limit.id)
  end
end
