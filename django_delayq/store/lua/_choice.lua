-- Choice: which jobs of a fair queue a worker claims next. A part of `settle_and_claim` alone.

-- Ready jobs looked at from each end of a fair queue for some without a turn.
local ENDS = 64
-- Most tags of idle flows that one claim drops, beside two for each job: each claim adds at most one.
local DROPPED = 100

local function is_paused(member, place)
  local tenant = tenant_of(member, place)
  return tenant and redis.call('HEXISTS', tenants, tenant) == 1
end

local function has_turn(member, place, rank)
  local tenant, weight = tenant_of(member, place)
  if not tenant or weight == 0 then return false end
  return redis.call('ZSCORE', tenant_jobs, job_entry(place, member, rank, tenant, weight)) ~= false
end

-- Ready jobs of a fair queue that have no turn: an earlier release put them there, or a process whose settings do not
-- call the queue fair. They are sought among those of the lowest and the highest ranks.
local function without_turn(place)
  local found, seen = {}, {}
  for _, from in ipairs({0, -ENDS}) do
    local entries = redis.call('ZRANGE', place, from, from + ENDS - 1, 'WITHSCORES')
    for i = 1, #entries, 2 do
      local member, rank = entries[i], tonumber(entries[i + 1])
      if #member == 14 and not (seen[member] or has_turn(member, place, rank) or is_paused(member, place)) then
        seen[member], found[#found + 1] = true, {member = member, rank = rank}
      end
    end
  end
  return found
end

-- Drop tags of idle flows, up to the end of a range. They bind nobody any more.
local function drop_idle(from, to, most)
  local passed, flows = redis.call('ZRANGE', turns, '[' .. IDLE .. from, '(' .. IDLE .. to, 'BYLEX', 'LIMIT', 0, most), {}
  if #passed == 0 then return end
  for i, entry in ipairs(passed) do
    flows[i] = string.sub(entry, 2, 7) .. string.sub(entry, 16) .. string.sub(entry, 8, 8)
  end
  redis.call('ZREM', turns, unpack(passed))
  redis.call('HDEL', tenants, unpack(flows))
end

-- A fair queue has no ready jobs.
local function drop_all_idle(place)
  local hash = queue_hash(place)
  drop_idle(hash, hash .. HIGHEST, DROPPED)
end

-- The next jobs of a fair queue, up to `most`: those without a turn, then by the tags of their flows.
local function by_turn(place, most)
  local hash = queue_hash(place)
  local with_turn = redis.call('ZLEXCOUNT', tenant_jobs, '[' .. TURN .. hash, '(' .. TURN .. hash .. HIGHEST)
  local found = redis.call('ZCARD', place) > with_turn and without_turn(place) or {}
  local from, to, flows = '[' .. ACTIVE .. hash, '(' .. ACTIVE .. hash .. HIGHEST, {}
  for _, entry in ipairs(redis.call('ZRANGE', turns, from, to, 'BYLEX', 'LIMIT', 0, most)) do
    local priority = string.sub(entry, 8, 8)
    flows[#flows + 1] = {
      flow = hash .. string.sub(entry, 16) .. priority, priority = string.byte(priority), entry = entry,
      tag = struct.unpack('>I7', entry, 9), jobs = {}, at = 1, read = 0,
    }
  end
  while #found < most and flows[1] do
    local first = table.remove(flows, 1)
    if first.at > #first.jobs and not first.is_all then
      -- Most flows have one turn in a claim; a second job tells that they stay active.
      local count = first.read == 0 and 2 or most - #found + 1
      first.jobs, first.at, first.read = jobs_of_flow(first.flow, first.read, count), 1, first.read + count
      first.is_all = #first.jobs < count
    end
    local entry = first.jobs[first.at]
    first.at = first.at + 1
    if entry then
      local member = string.sub(entry, 23, 34) .. string.sub(entry, 16, 16) .. string.sub(entry, 35, 35)
      local rank = redis.call('ZSCORE', place, member)
      if rank then
        local has_more = first.jobs[first.at] ~= nil
        found[#found + 1] = {
          member = member, rank = tonumber(rank), flow = first.flow, tag = first.tag, entry = entry,
          has_more = has_more, is_known = has_more or first.is_all,
        }
        first.tag, first.is_served = first.tag + cost_of(string.byte(entry, 36)), true
      else
        -- A worker of an earlier release claimed it.
        redis.call('ZREM', tenant_jobs, entry)
        first.read = first.read - 1
      end
      local at = 1
      while flows[at] and (flows[at].priority < first.priority
        or flows[at].priority == first.priority and flows[at].tag <= first.tag) do at = at + 1 end
      table.insert(flows, at, first)
    elseif not first.is_served then
      redis.call('ZREM', turns, first.entry)
      end_turns_if_empty(first.flow)
    end
  end
  return found
end

-- After jobs with turns were claimed: their flows pay, and the virtual times of their queues move on. What each flow does
-- is done for all of them in one call: otherwise a job of a tenant of its own would cost twice as much.
-- `is_sure`: no job left a flow since by_turn().
local function charge(claims, is_sure)
  if #claims == 0 then return end
  local times, flows, last, old, new, fields, entries, gone = {}, {}, {}, {}, {}, {}, {}, {}
  for i, claim in ipairs(claims) do
    local clock = clock_of(claim.flow)
    times[clock] = math.max(times[clock] or virtual_time(claim.flow), claim.tag)
    if not flows[claim.flow] then old[#old + 1] = turn_entry(ACTIVE, claim.flow, claim.tag) end
    flows[claim.flow] = claim.tag + cost_of(string.byte(claim.entry, 36))
    last[claim.flow] = claim
    entries[i] = claim.entry
  end
  redis.call('ZREM', tenant_jobs, unpack(entries))
  for flow, tag in pairs(flows) do
    local is_active = last[flow].has_more
    if not (is_sure and last[flow].is_known) then is_active = jobs_of_flow(flow, 0, 1)[1] end
    if is_active or tag > times[clock_of(flow)] then
      local state = is_active and ACTIVE or IDLE
      new[#new + 1], new[#new + 2] = 0, turn_entry(state, flow, tag)
      fields[#fields + 1], fields[#fields + 2] = flow, state .. struct.pack('>I7', tag)
    else
      gone[#gone + 1] = flow
    end
  end
  redis.call('ZREM', turns, unpack(old))
  if #gone > 0 then redis.call('HDEL', tenants, unpack(gone)) end
  for clock, time in pairs(times) do fields[#fields + 1], fields[#fields + 2] = clock, struct.pack('>I7', time) end
  if #new > 0 then redis.call('ZADD', turns, unpack(new)) end
  redis.call('HSET', tenants, unpack(fields))
  for clock, time in pairs(times) do
    drop_idle(clock, clock .. struct.pack('>I7', time) .. HIGHEST, DROPPED + 2 * #claims)
  end
end
