-- Find_limits: what limits are used for at the moment. Reads only.
-- KEYS: limit_rules, limit_jobs, limit_times, open_limits, paused_tasks.
-- ARGV: now, then per limit: its id (12 bytes), or the digest of its name (4 bytes) for all of its values together.
-- Returns: now (µs), then per limit: its rule ('' = none is stored), jobs that run, jobs that are parked, µs from when on a
--   job of cost 1 may begin ('' = when a slot is given back, or unknown because values differ), until when a task
--   backed off (µs; 0 = none did).
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
    opens, back_off = moment < math.huge and math.max(now, moment) or '', state.back_off
  end
  local rule = redis.call('HGET', limit_rules, string.sub(id, 1, 4)) or ''
  local size = #reply
  reply[size + 1], reply[size + 2], reply[size + 3] = rule, count(SLOT, id), count(PARKED, id)
  reply[size + 4], reply[size + 5] = opens ~= '' and string.format('%.0f', opens) or '', back_off
end
return reply
