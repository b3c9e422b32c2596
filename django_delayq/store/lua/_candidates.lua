-- Candidates: the jobs that a worker may claim next, over all of its queues. A part of `settle_and_claim` alone.
--
-- `request` has what the worker asks for: want (most claims), strict (whether the queues are served in their order), fair
-- (1 or 0 for each served queue: whether it is fair), most_fair (most claims of fair queues), and numbers (those of the
-- queues that are not paused).

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

local function sort_jobs(request, entries)
  table.sort(entries, function(a, b) return goes_before(request, a, b) end)
end

-- The ranks of the first jobs of a fair queue: the n-th of its turns has the place of the n-th rank among other queues.
local function ranks_of(place, most)
  local entries = lowest(place, most)
  local unpaused = unpaused_jobs(place, entries)
  if #unpaused < #entries then unpaused = unpaused_jobs(place, lowest(place, math.max(most, READ_AHEAD))) end
  local ranks = {}
  for i = 2, #unpaused, 2 do ranks[i / 2] = tonumber(unpaused[i]) end
  return ranks
end

-- The count + 1 best of all ready jobs, and the queues not read. The best job of each queue is read first: the k-th best
-- queue holds at most count + 2 - k of the count + 1 best jobs. `beside` = whether other jobs are put among them.
local function best_ready(now, request, count, beside)
  local found, sources, left, fair_left = {}, {}, {}, request.most_fair
  for _, queue in ipairs(request.numbers) do
    local place, by_turns = KEYS[FIXED + 4 * queue - 3], is_fair(request, queue)
    -- The only queue's best jobs are the best of all: they are read at once.
    local heads = lowest(place, #request.numbers == 1 and not by_turns and count or 0)
    if by_turns and heads[1] then
      give_turns(now, place)
      heads = first_unpaused(now, place, heads)
      if not heads[1] then
        local first, is_cut = by_turn(place, 1)
        if first[1] then heads = {first[1].member, first[1].rank} end
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
  if #sources > 1 then sort_jobs(request, sources) end
  for number, source in ipairs(sources) do
    local queue, place = source.queue, source.place
    local most = request.strict and count - #found or count + 1 - number
    if most < 0 then
      left[#left + 1] = queue
    elseif source.by_turns then
      local ranks, last_rank = (beside or #sources > 1) and ranks_of(place, most) or {}, -math.huge
      -- After jobs were set aside more are looked at, as in other queues: those behind them may have crashed too.
      local next_jobs, is_cut = next_by_turn(now, place, (count > request.want and most or math.min(most, fair_left)) + 1)
      if is_cut then left[#left + 1] = queue end
      for i, job in ipairs(next_jobs) do
        job.queue, job.place, job.order = queue, place, queue * 1000 + i
        -- The jobs of a queue keep the order of its turns, also where fewer ranks are known.
        last_rank = math.max(last_rank, ranks[i] or job.rank)
        job.sorted_by, found[#found + 1], fair_left = last_rank, job, math.max(0, fair_left - 1)
      end
    else
      local heads = #request.numbers == 1 and source.heads or lowest(place, most)
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
  if #sources > 1 then sort_jobs(request, found) end
  return found, left
end

-- The first recovered job that a worker may claim; nothing if there is none.
local function next_recovered(now, request)
  local first
  for _, queue in ipairs(request.numbers) do
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
  for i, queue in ipairs(request.numbers) do keys[i] = KEYS[FIXED + 4 * queue - 1] end
  for from = 1, #keys, EXISTS_KEYS do
    if redis.call('EXISTS', unpack(keys, from, math.min(from + EXISTS_KEYS - 1, #keys))) > 0 then return true end
  end
  return false
end
