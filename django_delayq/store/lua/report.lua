-- Report: a dispatcher or worker reports that it is alive, its status and its metrics; or it deregisters.
-- KEYS: metrics, process_reports, quiet_workers, workers, dispatchers, worker_names, exchanges.
-- ARGV: now, its code (8 bytes), worker or dispatcher, its status ('' = deregister), then per dimension: its name, the
--   row to add to the current minute. A row is text, `figure count figure count …`.
-- Returns: 1 = it should take no more jobs.
-- Cost: O(1), and about 30 µs a dimension. Not idempotent: a repeated report counts twice, which statistics can bear.
local now, code, kind, status = now_us(ARGV[1]), ARGV[2], ARGV[3], ARGV[4]

local ROWS_AT, MOST_DIMENSIONS, MINUTES, STALE = 5, 1000, 60, 120
local minute = math.floor(now / 60000000)

-- A series has a line per minute, newest first: `minute row`.
local function added(series, row)
  local newest, line, rest = string.match(series, '^(%d+) ([^\n]*)\n()')
  if tonumber(newest) == minute then
    local sums, cells = {}, {}
    for figure, count in string.gmatch(line .. ' ' .. row, '(%w+) (%d+)') do sums[figure] = (sums[figure] or 0) + count end
    -- Not `..`, which writes numbers from 10^14 on with an exponent.
    for figure, sum in pairs(sums) do cells[#cells + 1] = string.format('%s %.0f', figure, sum) end
    return minute .. ' ' .. table.concat(cells, ' ') .. '\n' .. string.sub(series, rest)
  end
  local kept = 0
  for _ = 2, newest and MINUTES or 0 do kept = string.find(series, '\n', kept + 1, true) or #series end
  return minute .. ' ' .. row .. '\n' .. string.sub(series, 1, kept)
end

-- Read before the first write: a key of another type (edited manually) must fail the script before it changed anything.
check_hashes(process_reports, quiet_workers, worker_names, exchanges)
redis.call('ZCARD', dispatchers)
local known = redis.call('HLEN', metrics)
-- The first write must free memory: when the memory is full, Redis refuses a script whose first write allocates.
redis.call('ZREM', workers, '')

for at = ROWS_AT, #ARGV, 2 do
  local series = redis.call('HGET', metrics, ARGV[at])
  known = known + (series and 0 or 1)
  -- Beyond the bound, a new queue or task counts for all jobs only.
  if series or known <= MOST_DIMENSIONS then redis.call('HSET', metrics, ARGV[at], added(series or '', ARGV[at + 1])) end
end

-- One random series per report: this removes unused names without a walk over all of them.
local random = redis.call('HRANDFIELD', metrics)
local newest = random and tonumber(string.match(redis.call('HGET', metrics, random), '^%d+')) or 0
if random and math.abs(newest - minute) > STALE then redis.call('HDEL', metrics, random) end

if status == '' then
  redis.call('ZREM', workers, code); redis.call('ZREM', dispatchers, code)
  for _, key in ipairs({process_reports, quiet_workers, worker_names, exchanges}) do redis.call('HDEL', key, code) end
  return 0
end
redis.call('ZADD', kind == 'worker' and workers or dispatchers, now, code)
redis.call('HSET', process_reports, code, status)
return redis.call('HEXISTS', quiet_workers, code)
