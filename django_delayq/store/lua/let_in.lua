-- Let_in: parked jobs become ready again, as many as may begin now under each of the given limits. The claim takes the
--   slot, so a queue that nobody serves holds up no other. In a fair queue the tenants take turns.
-- KEYS: limit_rules, limit_jobs, limit_times, next_let_in, waiting_for, paused_tasks, limit_turns, job_extras, queues,
--   queues_version, notify, next_promotion, notify_dispatcher, tenant_jobs, turns, tenants, leases, outside_slots,
--   schedules, jobs; then
--   parked, ready, notify and recovered of each queue that `promote` named.
-- ARGV: now, after how long to look at a limit again (µs) if parked jobs remain, then the ids of the limits.
-- Returns: number of jobs that became ready. The caller promotes again, which says when the next job may begin.
-- Cost: O(log n) a job, at most 100 of each limit and queue; and for up to 100 slots of a limit that has no free one.
local now, again = now_us(ARGV[1]), tonumber(ARGV[2])

-- BATCH: most jobs let in, and paused tenants skipped, for each limit and queue. QUEUES: most queues looked at for a limit.
local BATCH, QUEUES = 100, 250
local bases, moved = {}, 0

-- Whether the tenant of a job is not paused.
local function is_served(hash, group)
  return group == NO_GROUP or redis.call('HEXISTS', tenants, hash .. group) == 0
end

-- Jobs that were let in and are not claimed yet count, so that not all parked jobs become ready while no worker is free:
-- their number, and their cost. One that a worker without a free process passed over, or of a tenant that is paused by now,
-- holds up nobody.
local function count_let_in(id, base, hash)
  local first, number, cost = LET_IN .. id .. hash, 0, 0
  for _, entry in ipairs(entries_of(first, BATCH)) do
    local group, member = string.sub(entry, 20, 27), string.sub(entry, 28, 41)
    if redis.call('ZSCORE', KEYS[base + 2], member) then
      if is_served(hash, group) then number, cost = number + 1, cost + struct.unpack('>I2', entry, 42) end
    elseif not redis.call('ZSCORE', KEYS[base + 4], member) then
      redis.call('ZREM', limit_jobs, entry)
    end
  end
  return number, cost
end

-- The tenant whose job was let in last, by the hash of its fair queue; and that as it is stored.
local function read_turns(id)
  local stored, groups = redis.call('HGET', limit_turns, id) or '', {}
  for i = 1, #stored - 13, 14 do groups[string.sub(stored, i, i + 5)] = string.sub(stored, i + 6, i + 13) end
  return groups, stored
end

local function is_schedule_limit(id)
  return string.sub(id, 1, 4) == SCHEDULE_LIMIT
end

-- One job of a schedule begins when none runs, unless they may overlap by now.
local function state_of_schedule(id)
  local schedule = read_schedule(id)
  local slots = schedule and schedule.overlap <= STOPS and running_job(schedule) and 1 or 0
  return {interval = 0, burst = 1, most = 1, time = now, slots = slots, back_off = 0}
end

-- The entry and fields of the first job of the next tenant that is not paused: `after` the tenant whose job was let in
-- last, then from the first one. A queue that is not fair has one group.
local function next_parked(id, hash, after)
  for _, start in ipairs(after and {after .. HIGHEST, ''} or {''}) do
    local from = start
    for _ = 1, BATCH do
      local entry = entries_of(PARKED .. id .. hash, 1, from)[1]
      if not entry then break end
      local parked = read_parked(entry)
      if not parked then
        redis.call('ZREM', limit_jobs, entry)
      elseif is_served(hash, parked.group) then
        return entry, parked
      else
        from = parked.group .. HIGHEST
      end
    end
  end
end

local function let_in(base, entry, id, job)
  local parked, ready, member = KEYS[base + 1], KEYS[base + 2], job.member
  local rank = redis.call('ZSCORE', parked, member)
  if not rank or redis.call('HGET', waiting_for, string.sub(member, 1, 12)) ~= id then
    -- An entry that was edited manually.
    redis.call('ZREM', limit_jobs, entry)
    return false
  end
  unpark(parked, member, rank)
  redis.call('ZREM', limit_jobs, entry)
  if has(member, HAS_EXTRAS) then remove_tenant_job(parked, member, rank) end
  if has(member, LIMITED) and not is_paused_task(id) and not is_schedule_limit(id) then
    redis.call('ZADD', limit_jobs, 0, let_in_entry(id, ready, job.group, member, job.cost))
  end
  put_ready(now, ready, KEYS[base + 3], {tonumber(rank), member})
  return true
end

-- Returns when the next job of the queue may begin: huge if that is known only when another job ends. `groups` are those
-- of read_turns().
local function let_in_queue(id, base, hash, groups)
  local actual = limit_state(now, id)
  correct_times(id, actual)
  local number, cost = count_let_in(id, base, hash)
  local state = {
    interval = actual.interval, burst = actual.burst, most = actual.most, back_off = actual.back_off,
    time = actual.time + cost * actual.interval, slots = actual.slots + number,
  }
  local count = 0
  while count < BATCH do
    local entry, job = next_parked(id, hash, groups[hash])
    if not entry then return math.huge end
    local moment = opens_at(state, job.cost)
    -- If only jobs that were let in and are not claimed yet keep this one back, their claims say when to look again.
    if moment > now then return (count > 0 or opens_at(actual, job.cost) > now) and moment or math.huge end
    count = count + 1
    if let_in(base, entry, id, job) then
      count_in_limit(state, job.cost)
      moved = moved + 1
      if job.group ~= NO_GROUP then groups[hash] = job.group end
    end
  end
  return 0
end

-- Type checks (see the prelude).
check_limit_states(); check_tenants()
check_hashes(limit_turns, job_extras, schedules, jobs); check_zsets(leases, outside_slots)
for base = FIXED, #KEYS - 4, 4 do
  redis.call('ZCARD', KEYS[base + 1]); check_ready(KEYS[base + 2]); redis.call('ZCARD', KEYS[base + 4])
  bases[queue_of(KEYS[base + 2])] = base
end
-- Freeing first (see the prelude).
redis.call('ZREM', next_let_in, '')
for i = 3, #ARGV do
  local id, opens, kept = ARGV[i], math.huge, ''
  local groups, stored = read_turns(id)
  if is_schedule_limit(id) then limit_states[id] = state_of_schedule(string.sub(id, 5)) end
  local state = limit_state(now, id)
  if state.slots >= state.most then free_ended_slots(id, state) end
  for _, parked in ipairs(parked_queues(id, QUEUES)) do
    local hash, base = parked.hash, bases[parked.queue]
    if base then opens = math.min(opens, let_in_queue(id, base, hash, groups)) end
    if groups[hash] and first_parked(id, hash) then kept = kept .. hash .. groups[hash] end
  end
  if kept == '' then
    redis.call('HDEL', limit_turns, id)
  elseif kept ~= stored then
    redis.call('HSET', limit_turns, id, kept)
  end
  if first_parked(id, '') then
    redis.call('ZADD', next_let_in, math.ceil(math.min(opens, now + again)), id)
  else
    redis.call('ZREM', next_let_in, id)
  end
end
return moved
