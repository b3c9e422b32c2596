-- Report: a dispatcher or worker reports that it is alive, its status, its metrics and its endings; or it deregisters.
-- KEYS: metrics, metrics_by_hour, totals, enqueued, process_reports, quiet_workers, workers, dispatchers, worker_names,
--   exchanges, finished, releases.
-- ARGV: now, its code (8 bytes), worker or dispatcher, its status ('' = deregister), its release ('' = deregister), a chunk
--   of endings ('' = none), the number of them, how many endings are kept at least, if that many came (0 = none), and most
--   of their bytes; then per dimension: its name, the row to add to the current minute. A row is text,
--   `figure count figure count …`.
-- Returns: 1 = it should take no more jobs.
-- Cost: O(1), and about 30 µs a dimension. Not idempotent: a repeated report counts twice, which statistics can bear.
local now, code, kind, status, release, chunk = now_us(ARGV[1]), ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local number, most, most_bytes = tonumber(ARGV[7]), tonumber(ARGV[8]), tonumber(ARGV[9])

local ROWS_AT, MOST_DIMENSIONS, MINUTES, STALE, HOURS, MOST_RELEASES = 10, 1000, 60, 120, 168, 50
-- MOST_HOURS: rows of hours, of all dimensions together. LOOKED: how many of them each report checks for their age.
local MOST_HOURS, LOOKED = 60000, 4
-- HEAD: bytes of a chunk beside itself.
local MOST_DROPPED, HEAD = 1000, 24
local minute = math.floor(now / 60000000)

local hour = math.floor(minute / 60)

local function total(row, more)
  local sums, cells = {}, {}
  for figure, count in string.gmatch(row .. ' ' .. more, '(%w+) (%d+)') do sums[figure] = (sums[figure] or 0) + count end
  -- Not `..`, which writes numbers from 10^14 on with an exponent.
  for figure, sum in pairs(sums) do cells[#cells + 1] = string.format('%s %.0f', figure, sum) end
  return table.concat(cells, ' ')
end

local function field_of(an_hour, dimension)
  return string.format('%.0f ', an_hour) .. dimension
end

-- A dimension is in `totals` from its first report on, or its numbers are not exported: a dimension that found no room at the
-- end of its minute would set its counters back. A queue or task that has no series any more makes room for others.
local function keep_place(dimension)
  if redis.call('HEXISTS', totals, dimension) == 1 then return end
  if redis.call('HLEN', totals) >= MOST_DIMENSIONS then
    for _, each in ipairs(redis.call('HRANDFIELD', totals, LOOKED)) do
      if redis.call('HEXISTS', metrics, each) == 0 then redis.call('HDEL', totals, each) end
    end
    if redis.call('HLEN', totals) >= MOST_DIMENSIONS then return end
  end
  redis.call('HSET', totals, dimension, '')
end

-- A total is `minute row`: the minute of the series that was added last. The lines above that one are added, mostly one;
-- more if processes of a release without totals reported meanwhile.
local function add_to_total(dimension, series)
  local known = redis.call('HGET', totals, dimension)
  if not known then return end
  local last, row = string.match(known, '^(%d+) (.*)$')
  local newest
  for its_minute, line in string.gmatch(series, '(%d+) ([^\n]*)\n') do
    if its_minute == last then break end
    newest, row = newest or its_minute, total(row or '', line)
  end
  if newest then redis.call('HSET', totals, dimension, newest .. ' ' .. row) end
end

-- Adds the newest minute of a series to its hour and to its total. This happens once for each minute, when a later one
-- begins, so that a report seldom writes these rows.
local function end_minute(dimension, series)
  add_to_total(dimension, series)
  local newest, line = string.match(series, '^(%d+) ([^\n]*)\n')
  local its_hour = newest and math.floor(tonumber(newest) / 60) or 0
  if its_hour <= hour - HOURS or its_hour > hour + 1 then return end
  local field = field_of(its_hour, dimension)
  local row = redis.call('HGET', metrics_by_hour, field)
  if row or redis.call('HLEN', metrics_by_hour) < MOST_HOURS then
    redis.call('HSET', metrics_by_hour, field, total(row or '', line))
    if not row then redis.call('HDEL', metrics_by_hour, field_of(its_hour - HOURS, dimension)) end
  end
end

-- A series has a line per minute, newest first: `minute row`.
local function added(dimension, series, row)
  local newest, line, rest = string.match(series, '^(%d+) ([^\n]*)\n()')
  if tonumber(newest) == minute then return minute .. ' ' .. total(line, row) .. '\n' .. string.sub(series, rest) end
  end_minute(dimension, series)
  local kept = 0
  for _ = 2, newest and MINUTES or 0 do kept = string.find(series, '\n', kept + 1, true) or #series end
  return minute .. ' ' .. row .. '\n' .. string.sub(series, 1, kept)
end

-- A chunk begins with how many endings and how many bytes have come until its end: `endings bytes chunk`. So the chunks
-- that are too many are known without a look at those between the oldest and the newest.
local function counts(stored)
  local endings, bytes = string.match(stored or '', '^(%d+) (%d+) ')
  return tonumber(endings) or 0, tonumber(bytes) or 0
end

local function add_endings()
  local endings, bytes = counts(redis.call('LINDEX', finished, -1))
  endings, bytes = endings + number, bytes + #chunk + HEAD
  redis.call('RPUSH', finished, string.format('%.0f %.0f ', endings, bytes) .. chunk)
  local dropped = 0
  while dropped < MOST_DROPPED do
    local oldest = redis.call('LINDEX', finished, dropped)
    local its_endings, its_bytes = counts(oldest)
    -- What is left without it: nothing, if it is the chunk that was just added; less than nothing, if one of the two was
    -- edited manually.
    local left = endings - its_endings
    if left == 0 or (left > 0 and left < most and bytes - its_bytes + #oldest <= most_bytes) then break end
    dropped = dropped + 1
  end
  if dropped > 0 then redis.call('LTRIM', finished, dropped, -1) end
end

-- Read before the first write: a key of another type (edited manually) must fail the script before it changed anything.
check_hashes(process_reports, quiet_workers, worker_names, exchanges, metrics_by_hour, totals, enqueued, releases)
redis.call('ZCARD', dispatchers)
redis.call('LLEN', finished)
local known = redis.call('HLEN', metrics)
-- The first write must free memory: when the memory is full, Redis refuses a script whose first write allocates.
redis.call('ZREM', workers, '')

for at = ROWS_AT, #ARGV, 2 do
  local dimension, row = ARGV[at], ARGV[at + 1]
  local series = redis.call('HGET', metrics, dimension)
  known = known + (series and 0 or 1)
  -- Beyond the bound, a new queue or task counts for all jobs only.
  if series or known <= MOST_DIMENSIONS then
    keep_place(dimension)
    redis.call('HSET', metrics, dimension, added(dimension, series or '', row))
  end
end

-- One random series per report, and some random hours: this removes what is too old without a walk over all of them.
local random = redis.call('HRANDFIELD', metrics)
local oldest = random and redis.call('HGET', metrics, random) or ''
if random and math.abs((tonumber(string.match(oldest, '^%d+')) or 0) - minute) > STALE then
  end_minute(random, oldest)
  redis.call('HDEL', metrics, random)
end
for _, field in ipairs(redis.call('HRANDFIELD', metrics_by_hour, LOOKED)) do
  local its_hour = tonumber(string.match(field, '^%d+')) or 0
  if its_hour <= hour - HOURS or its_hour > hour + 1 then redis.call('HDEL', metrics_by_hour, field) end
end

-- Names of tasks that never ran make room for others, if there is none left.
if redis.call('HLEN', enqueued) > MOST_ENQUEUED then
  for _, names in ipairs(redis.call('HRANDFIELD', enqueued, LOOKED)) do
    local task = string.sub(names, (string.byte(names) or 0) + 4)
    if names ~= '' and redis.call('HEXISTS', totals, 'task:' .. task) == 0 then
      redis.pcall('HINCRBY', enqueued, '', redis.call('HGET', enqueued, names))
      redis.call('HDEL', enqueued, names)
    end
  end
end

if most == 0 then
  -- It was switched off.
  redis.call('DEL', finished)
elseif number > 0 then
  add_endings()
end

if status == '' then
  redis.call('ZREM', workers, code); redis.call('ZREM', dispatchers, code)
  for _, key in ipairs({process_reports, quiet_workers, worker_names, exchanges}) do redis.call('HDEL', key, code) end
  return 0
end
-- Not HSETNX: see `enqueue`.
if release ~= '' and redis.call('HEXISTS', releases, release) == 0 then
  redis.call('HSET', releases, release, string.format('%.0f', now))
  local first, first_us = release, now
  local all = redis.call('HLEN', releases) > MOST_RELEASES and redis.call('HGETALL', releases) or {}
  for at = 1, #all, 2 do
    local began = tonumber(all[at + 1]) or 0
    if began < first_us then first, first_us = all[at], began end
  end
  if #all > 0 then redis.call('HDEL', releases, first) end
end
redis.call('ZADD', kind == 'worker' and workers or dispatchers, now, code)
redis.call('HSET', process_reports, code, status)
return redis.call('HEXISTS', quiet_workers, code)
