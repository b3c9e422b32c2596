-- Find_limits: what limits are used for at the moment. Reads only.
-- KEYS: limit_rules, limit_jobs, limit_times, next_let_in, paused_tasks.
-- ARGV: now, then per limit: its id (12 bytes), or the digest of its name (4 bytes) for all of its values together.
-- Returns: now (µs), then per limit: jobs that run, jobs that are parked, µs from when on a job of cost 1 may begin
--   ('' = when a slot is given back, or unknown because values differ), until when a task backs off (µs; 0 = none does).
-- Cost: O(log n) a limit.
local now = now_us(ARGV[1])

local function count(kind, id)
  return redis.call('ZLEXCOUNT', limit_jobs, '[' .. kind .. id, '(' .. kind .. id .. HIGHEST)
end

local reply = {now}
for i = 2, #ARGV do
  local id, opens, back_off = ARGV[i], '', 0
  if #id == 12 then
    local state = limit_state(now, id)
    local moment = opens_at(state, 1)
    -- As the dispatcher is woken: a clock that is read in whole microseconds never shows a part of one.
    opens = moment < math.huge and string.format('%.0f', math.ceil(math.max(now, moment))) or ''
    back_off = state.back_off > now and state.back_off or 0
  end
  local size = #reply
  reply[size + 1], reply[size + 2], reply[size + 3], reply[size + 4] = count(SLOT, id), count(PARKED, id), opens, back_off
end
return reply
