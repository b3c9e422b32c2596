-- Candidates: the jobs that a worker may claim next, over all of its queues, and what keeps one of them from beginning. A
-- part of `settle_and_claim` alone.
--
-- `request` has what the worker asks for: want (most claims), strict (whether the queues are served in their order), fair
-- (1 or 0 for each served queue: whether it is fair), most_fair (most claims of fair queues), and queues (the numbers of
-- those that are not paused).

-- Jobs read at once after some were set aside; keys of one EXISTS (Lua passes some thousand arguments at most).
local READ_AHEAD, EXISTS_KEYS = 64, 1000

local function is_fair(request, queue)
  return string.byte(request.fair, queue) == 49
end

local function goes_before(request, a, b)
  if request.strict and a.queue ~= b.queue then return a.queue < b.queue end
  local first, second = a.sorted_by or a.rank, b.sorted_by or b.rank
  return first < second or (first == second and a.order < b.order)
end

-- The ranks of the first jobs of a fair queue: the n-th of its turns has the place of the n-th rank among other queues.
local function ranks_of(place, most)
  local entries = lowest(place, most)
  local jobs = unpaused_jobs(place, entries)
  if #jobs < #entries then jobs = unpaused_jobs(place, lowest(place, math.max(most, READ_AHEAD))) end
  local ranks = {}
  for i = 2, #jobs, 2 do ranks[i / 2] = tonumber(jobs[i]) end
  return ranks
end

-- The count + 1 best of all ready jobs, and the queues not read. The best job of each queue is read first: the k-th best
-- queue holds at most count + 2 - k of the count + 1 best jobs. `beside` = whether other jobs are put among them.
local function best_ready(now, request, count, beside)
  local found, sources, left, fair_left = {}, {}, {}, request.most_fair
  local function is_before(a, b) return goes_before(request, a, b) end
  for _, queue in ipairs(request.queues) do
    local place, by_turns = KEYS[FIXED + 4 * queue - 3], is_fair(request, queue)
    -- The only queue's best jobs are the best of all: they are read at once.
    local heads = lowest(place, #request.queues == 1 and not by_turns and count or 0)
    if by_turns and heads[1] then
      give_turns(now, place)
      heads = first_unpaused(now, place, heads)
      if not heads[1] then
        local jobs, is_cut = by_turn(place, 1)
        if jobs[1] then heads = {jobs[1].member, jobs[1].rank} end
        if is_cut then left[#left + 1] = queue end
      end
    elseif by_turns then
      drop_all_idle(place)
    end
    if heads[1] then
      sources[#sources + 1] = {
        queue = queue, rank = tonumber(heads[2]), order = queue, place = place, by_turns = by_turns, heads = heads,
      }
    end
  end
  if #sources > 1 then table.sort(sources, is_before) end
  for number, source in ipairs(sources) do
    local queue, place = source.queue, source.place
    local most = request.strict and count - #found or count + 1 - number
    if most < 0 then
      left[#left + 1] = queue
    elseif source.by_turns then
      local ranks, last_rank = (beside or #sources > 1) and ranks_of(place, most) or {}, -math.huge
      -- After jobs were set aside more are looked at, as in other queues: those behind them may have crashed too.
      local jobs, is_cut = next_by_turn(now, place, (count > request.want and most or math.min(most, fair_left)) + 1)
      if is_cut then left[#left + 1] = queue end
      for i, job in ipairs(jobs) do
        job.queue, job.place, job.order = queue, place, queue * 1000 + i
        -- The jobs of a queue keep the order of its turns, also where fewer ranks are known.
        last_rank = math.max(last_rank, ranks[i] or job.rank)
        job.sorted_by, found[#found + 1], fair_left = last_rank, job, math.max(0, fair_left - 1)
      end
    else
      local heads = #request.queues == 1 and source.heads or lowest(place, most)
      for i = 1, #heads, 2 do
        if #heads[i] == 14 then
          found[#found + 1] = {
            member = heads[i], rank = tonumber(heads[i + 1]), order = queue * 1000 + i, queue = queue, place = place,
          }
        else
          -- An entry that was edited manually; correct ones may follow it.
          redis.call('ZREM', place, heads[i])
          left[#left + 1] = queue
        end
      end
    end
  end
  if #sources > 1 then table.sort(found, is_before) end
  return found, left
end

-- The first recovered job that a worker may claim; nothing if there is none.
local function next_recovered(now, request)
  local first
  for _, queue in ipairs(request.queues) do
    local place = KEYS[FIXED + 4 * queue - 1]
    local head = lowest(place, 0)
    if is_fair(request, queue) then head = first_unpaused(now, place, head) end
    if head[1] and #head[1] == 14 then
      local entry = {member = head[1], rank = tonumber(head[2]), order = queue * 1000, queue = queue, place = place}
      if not first or goes_before(request, entry, first) then first = entry end
    elseif head[1] then
      -- An entry that was edited manually.
      redis.call('ZREM', place, head[1])
    end
  end
  return first
end

local function any_recovered(request)
  local keys = {}
  for i, queue in ipairs(request.queues) do keys[i] = KEYS[FIXED + 4 * queue - 1] end
  for from = 1, #keys, EXISTS_KEYS do
    if redis.call('EXISTS', unpack(keys, from, math.min(from + EXISTS_KEYS - 1, #keys))) > 0 then return true end
  end
  return false
end

-- A job enters `parked` because of a limit.
local function park(parked, member, rank, id)
  local record = read_extras(member)
  local cost = cost_of_limit(limits_of_extras(record), id)
  redis.call('ZADD', parked, rank, member)
  redis.call('HSET', waiting_for, string.sub(member, 1, 12), id)
  redis.call('ZADD', limit_jobs, 0, parked_entry(id, parked, group_of_extras(record), member, rank, cost))
  if record then add_tenant_job(parked, member, rank) end
end

-- The limit that keeps a job from beginning, and from when on it may begin under that limit; nothing if it may begin now.
local function closed_limit(now, place, member, rank, record)
  local limits, group = limits_of_extras(record), group_of_extras(record)
  for _, limit in ipairs(limits) do
    local state = limit_state(now, limit.id)
    local moment = opens_at(state, limit.cost)
    correct_times(limit.id, state)
    if moment > now then return limit.id, moment end
    -- Those that wait already go first, except before a job that was one of them. No two jobs have the same order:
    -- otherwise each of two jobs with several limits could wait for the other one.
    local from = PARKED .. limit.id .. queue_hash(place) .. group
    local own = from .. struct.pack('>I8', math.max(0, tonumber(rank))) .. member
    if redis.call('ZRANGE', limit_jobs, '[' .. from, '(' .. own, 'BYLEX', 'LIMIT', 0, 1)[1]
      and not redis.call('ZSCORE', limit_jobs, let_in_entry(limit.id, place, group, member, limit.cost)) then
      return limit.id, 0
    end
  end
end
