-- Choice: which jobs of a fair queue a worker claims next. A part of `settle_and_claim` alone.

-- Jobs looked at in each part of a place.
local PART = 64
-- Most tags of idle flows that one claim drops, beside two for each job: each claim adds at most one.
local DROPPED = 100

-- Up to three parts of a place: its first jobs, its last ones, and some that begin at another job in each call. So every
-- job is found sooner or later, whatever stands before it. A part has the member and the rank of each job in turn.
local function parts_of(now, place)
  local parts = {lowest(place, PART - 1)}
  local count = redis.call('ZCARD', place)
  for _, from in ipairs(count > PART and {-PART, now % count} or {}) do
    parts[#parts + 1] = redis.call('ZRANGE', place, from, from + PART - 1, 'WITHSCORES')
  end
  return parts
end

-- The extras records of these jobs (member, rank …): one for each, false if there is none.
local function extras_of(entries)
  local ids = {}
  for i = 1, #entries, 2 do ids[#ids + 1] = string.sub(entries[i], 1, 12) end
  return #ids > 0 and redis.call('HMGET', job_extras, unpack(ids)) or ids
end

-- Those of the given jobs (member, rank …) of a fair queue whose tenants are not paused.
local function unpaused_jobs(place, entries)
  if #entries == 0 then return entries end
  local hash, names, found = queue_hash(place), {}, {}
  for i, record in ipairs(extras_of(entries)) do names[i] = hash .. (tenant_of_extras(record) or NO_TENANT) end
  for i, pause in ipairs(redis.call('HMGET', tenants, unpack(names))) do
    if not pause then found[#found + 1], found[#found + 2] = entries[2 * i - 1], entries[2 * i] end
  end
  return found
end

-- The first job of a place of a fair queue that is not of a paused tenant: member, rank; nothing if none was found.
-- `head` = the first job.
local function first_unpaused(now, place, head)
  local found = unpaused_jobs(place, head)
  for _, entries in ipairs(head[1] and not found[1] and parts_of(now, place) or {}) do
    found = found[1] and found or unpaused_jobs(place, entries)
  end
  return found
end

-- Some ready jobs of a fair queue have no turn: an earlier release put them there, or a process whose settings do not call
-- the queue fair, or what was stored was edited. They get one now. `is_sure`: some have none, although there are as many
-- entries as jobs.
local function give_turns(now, place, is_sure)
  local hash = queue_hash(place)
  local with_turn = redis.call('ZLEXCOUNT', tenant_jobs, '[' .. TURN .. hash, '(' .. TURN .. hash .. HIGHEST)
  if not is_sure and redis.call('ZCARD', place) <= with_turn then return end
  for _, entries in ipairs(parts_of(now, place)) do
    local right, other = {}, {}
    for i, record in ipairs(extras_of(entries)) do
      local member, rank = entries[2 * i - 1], entries[2 * i]
      if #member == 14 then
        local digest, weight = tenant_of_extras(record)
        local tenant, at = digest and hash .. digest, #right + 1
        right[at] = late_entry(place, member, rank, tenant)
        if tenant and weight > 0 then right[at] = ready_entry(TURN, member, rank, tenant, weight) end
        other[at] = tenant and ready_entry(NO_TURN, member, rank, tenant, 0) or ''
      else
        redis.call('ZREM', place, member)
      end
    end
    local known = #right > 0 and redis.call('ZMSCORE', tenant_jobs, unpack(right)) or {}
    for i, entry in ipairs(right) do
      -- The turn of the flow may be lost, too.
      if is_sure or not known[i] then
        redis.call('ZREM', tenant_jobs, other[i])
        redis.call('ZADD', tenant_jobs, 0, entry)
        begin_turns(string.sub(entry, 2, 16))
      end
    end
  end
end

-- Drop tags of idle flows, up to the end of a range. They bind nobody any more.
local function drop_idle(from, to, most)
  local passed, flows = redis.call('ZRANGE', turns, '[' .. IDLE .. from, '(' .. IDLE .. to, 'BYLEX', 'LIMIT', 0, most), {}
  if #passed == 0 then return end
  for i, entry in ipairs(passed) do
    flows[i] = flow_of_turn(entry)
  end
  redis.call('ZREM', turns, unpack(passed))
  redis.call('HDEL', tenants, unpack(flows))
end

-- A fair queue has no ready jobs.
local function drop_all_idle(place)
  local hash = queue_hash(place)
  drop_idle(hash, hash .. HIGHEST, 10 * DROPPED)
end

-- Stale entries that this exchange may still drop: Redis serves nobody else meanwhile. The next exchange drops more.
local stale_left = 512

-- Returns whether it was dropped.
local function drop_stale(key, entry)
  if stale_left == 0 then return false end
  stale_left = stale_left - 1
  redis.call('ZREM', key, entry)
  return true
end

-- The active flows of a fair queue in the order of their turns, up to `most` from the start of a range; and whether some
-- may be missing. The record of a flow decides: an entry that disagrees is dropped. A record that was lost is written
-- again.
local function active_flows(place, from, most)
  local flows, is_cut, to = {}, false, '(' .. ACTIVE .. queue_hash(place) .. HIGHEST
  repeat
    local read, names, missing = {}, {}, most - #flows
    local entries = redis.call('ZRANGE', turns, from, to, 'BYLEX', 'LIMIT', 0, missing)
    for _, entry in ipairs(entries) do
      from = '(' .. entry
      if #entry == 23 then
        local flow = flow_of_turn(entry)
        read[#read + 1] = {
          flow = flow, priority = string.byte(flow, 15), tag = struct.unpack('>I7', entry, 9), entry = entry,
          entries = {}, at = 1, read = 0,
        }
        names[#names + 1], names[#names + 2] = flow, string.sub(flow, 1, 14)
      elseif not drop_stale(turns, entry) then
        return flows, true
      end
    end
    local found = #names > 0 and redis.call('HMGET', tenants, unpack(names)) or {}
    for i, flow in ipairs(read) do
      local record, pause = found[2 * i - 1], found[2 * i]
      local right = ACTIVE .. struct.pack('>I7', flow.tag)
      if not pause and not read_record(record) then
        redis.call('HSET', tenants, flow.flow, right)
        record = right
      end
      if not pause and record == right then
        flows[#flows + 1] = flow
      elseif not drop_stale(turns, flow.entry) then
        return flows, true
      elseif not pause and jobs_of_flow(flow.flow, 0, 1)[1] then
        -- Its turn may be before those that were read.
        begin_turns(flow.flow)
        is_cut = true
      end
    end
  until #flows == most or #entries < missing
  return flows, is_cut
end

-- place -> what has_late_turns() returned
local late_turns = {}

-- Whether ready jobs of a place that have no tenant have turns. If its queue is not fair for this worker, it claims them
-- without their turns.
local function has_late_turns(place)
  if late_turns[place] == nil then
    local first = TURN .. queue_hash(place) .. NO_TENANT
    late_turns[place] = redis.call('ZLEXCOUNT', tenant_jobs, '[' .. first, '(' .. first .. HIGHEST) > 0
  end
  return late_turns[place]
end

-- The next jobs of a fair queue, up to `most`, by the tags of their flows; and whether some may be missing.
local function by_turn(place, most)
  local found, seen = {}, {}
  local flows, is_cut = active_flows(place, '[' .. ACTIVE .. queue_hash(place), most)
  local last_read = flows[#flows]
  while #found < most and flows[1] do
    local first = table.remove(flows, 1)
    local back = first
    if first.at > #first.entries and not first.is_all then
      -- Most flows have one turn in a claim; a second job tells that they stay active.
      local count = first.read == 0 and 2 or most - #found + 1
      first.entries, first.at, first.read = jobs_of_flow(first.flow, first.read, count), 1, first.read + count
      first.is_all = #first.entries < count
    end
    local entry = first.entries[first.at]
    first.at = first.at + 1
    if entry then
      local member = string.sub(entry, 23, 34) .. string.sub(entry, 16, 16) .. string.sub(entry, 35, 35)
      local rank = #entry == 36 and not seen[member] and redis.call('ZSCORE', place, member)
      if rank and time_of(rank) == string.sub(entry, 17, 22) then
        local has_more = first.entries[first.at] ~= nil
        seen[member], found[#found + 1] = true, {
          member = member, rank = tonumber(rank), flow = first.flow, entry = entry,
          has_more = has_more, is_known = has_more or first.is_all,
        }
        first.tag, first.is_served = first.tag + cost_of(string.byte(entry, 36)), true
      elseif drop_stale(tenant_jobs, entry) then
        -- A worker of an earlier release took the job from there, and perhaps it is back with another rank.
        first.read = first.read - 1
      else
        return found, true
      end
    elseif first.is_served then
      back = nil
    elseif drop_stale(turns, first.entry) then
      end_turns_if_empty(first.flow)
      -- Only the first flows were read: the one behind them takes its place.
      local next_flows, next_is_cut = active_flows(place, '(' .. last_read.entry, 1)
      back, is_cut = next_flows[1], is_cut or next_is_cut
      last_read = back or last_read
    else
      return found, true
    end
    if back then
      local at = 1
      while flows[at] and (flows[at].priority < back.priority
        or flows[at].priority == back.priority and flows[at].tag <= back.tag) do at = at + 1 end
      table.insert(flows, at, back)
    end
  end
  return found, is_cut
end

-- The same for a queue that has a job of a tenant that is not paused.
local function next_by_turn(now, place, most)
  local found, is_cut = by_turn(place, most)
  if not found[1] and not is_cut then
    -- Stale entries of paused tenants, which nothing drops, were counted as jobs that have a turn.
    give_turns(now, place, true)
    found, is_cut = by_turn(place, most)
  end
  return found, is_cut
end

-- After jobs with turns were claimed, at least one: their flows pay, and the virtual times of their queues move on. What each
-- flow does is done for all of them in one call: otherwise a job of a tenant of its own would cost twice as much.
-- `is_sure`: no job left a flow since by_turn().
local function charge(claims, is_sure)
  local names, last, tags, times, old, new, fields, entries, gone = {}, {}, {}, {}, {}, {}, {}, {}, {}
  for i, claim in ipairs(claims) do
    if not last[claim.flow] then names[#names + 1] = claim.flow end
    last[claim.flow], entries[i] = claim, claim.entry
  end
  redis.call('ZREM', tenant_jobs, unpack(entries))
  -- Not the tags of by_turn(): the jobs that were set aside pay nothing.
  for i, record in ipairs(redis.call('HMGET', tenants, unpack(names))) do
    local _, tag = read_record(record)
    tags[names[i]], old[i] = tag, turn_entry(ACTIVE, names[i], tag)
  end
  for _, claim in ipairs(claims) do
    local flow, clock = claim.flow, clock_of(claim.flow)
    times[clock] = math.max(times[clock] or virtual_time(flow), tags[flow])
    tags[flow] = tags[flow] + cost_of(string.byte(claim.entry, 36))
  end
  for flow, tag in pairs(tags) do
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
