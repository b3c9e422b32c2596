-- Report: a dispatcher or worker says that it lives and what it does, and hands in what it added up; or takes its leave.
-- KEYS: metrics, process_reports, quiet_workers, workers, dispatchers, worker_names, exchanges.
-- ARGV: now, its code (8 bytes), worker or dispatcher, what it says of itself ('' = it leaves), numbers in a row,
--   minutes in a ring, then per scope: name, row (numbers of 4 bytes) to add to the minute under way.
-- Returns: 1 = it was asked to take no more jobs.
-- Cost: O(1), and about 20 µs a scope. Repeated after a lost answer it counts twice: figures, not promises.
local now, code, kind, said, width, minutes = now_us(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])

local SCOPES_AT, MOST_SCOPES, KEPT = 7, 1000, 120
local ROW = '>' .. string.rep('I4', width)
local SLOT = 4 * (width + 1)

-- Read before the first write: a key of another type (written by hand) refuses the step, or would end it half-done.
redis.call('HLEN', process_reports); redis.call('HLEN', quiet_workers); redis.call('HLEN', worker_names); redis.call('HLEN', exchanges)
redis.call('ZCARD', dispatchers)
local known = redis.call('HLEN', metrics)
-- A write that frees comes first: with its memory full, Redis refuses a script whose first write grows.
redis.call('ZREM', workers, '')

local minute = math.floor(now / 60000000)
local empty = string.rep('\0', SLOT * minutes)
for at = SCOPES_AT, #ARGV, 2 do
  local scope, row = ARGV[at], ARGV[at + 1]
  local hour = redis.call('HGET', metrics, scope)
  known = known + (hour and 0 or 1)
  -- Beyond the bound a new name counts among all jobs only.
  if hour or known <= MOST_SCOPES then
    if not hour or #hour ~= #empty then hour = empty end
    local from = minute % minutes * SLOT
    if struct.unpack('>I4', hour, from + 1) == minute then
      local sums, more = {struct.unpack(ROW, hour, from + 5)}, {struct.unpack(ROW, row)}
      for i = 1, width do sums[i] = math.min(sums[i] + more[i], 4294967295) end
      row = struct.pack(ROW, unpack(sums, 1, width))
    end
    hour = string.sub(hour, 1, from) .. struct.pack('>I4', minute) .. row .. string.sub(hour, from + SLOT + 1)
    redis.call('HSET', metrics, scope, hour)
  end
end

-- One at random each time: so names that nobody counts for any more go, without a walk.
local stale = redis.call('HRANDFIELD', metrics)
if stale then
  local hour, latest = redis.call('HGET', metrics, stale), 0
  for from = 1, #hour == #empty and #hour or 0, SLOT do latest = math.max(latest, (struct.unpack('>I4', hour, from))) end
  if latest < minute - KEPT or latest > minute + KEPT then redis.call('HDEL', metrics, stale) end
end

if said == '' then
  redis.call('ZREM', workers, code); redis.call('ZREM', dispatchers, code)
  for _, key in ipairs({process_reports, quiet_workers, worker_names, exchanges}) do redis.call('HDEL', key, code) end
  return 0
end
redis.call('ZADD', kind == 'worker' and workers or dispatchers, now, code)
redis.call('HSET', process_reports, code, said)
return redis.call('HEXISTS', quiet_workers, code)
