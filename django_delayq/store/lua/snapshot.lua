-- Snapshot: what a dashboard shows of one shard at one moment. Reads only.
-- KEYS: leases, jobs, dead_letters, queues, next_due, paused, workers, dispatchers, process_reports, quiet_workers,
--   metrics, metrics_by_hour, releases, paused_tasks, schedules; then scheduled, ready, recovered and parked of each queue that the caller knows.
-- ARGV: now, 1 = with INFO and the faults of recurring schedules, the dimension to return the last 168 hours of ('' = of
--   none), then the dimensions to return the metrics of.
-- Returns: now (µs); claimed jobs; dead letters; those of the last hour; newest death ('' = none); names of queues,
--   encoded; fields of paused; workers and dispatchers with their scores; fields of process_reports; quiet_workers; a
--   series per dimension (false = none); INFO ('' = not requested, or not allowed); then per queue a list: scheduled,
--   ready (with recovered and parked), overdue, due time of the oldest overdue ('' = none) and of the first that is not
--   due yet, the start of its body (false = none), member and rank of the first ready job that
--   is not parked, and number of parked jobs; fields of paused_tasks; and the number of recurring schedules, of those that
--   failures paused, and of those that the last dispatcher could not read (0 and 0 = not requested, or over 200 schedules);
--   fields of releases; and a row per hour, oldest first (false = none).
-- Cost: O(log n) a queue, O(1) a process and dimension; with INFO O(1) a schedule, up to 200.
local now, with_info, of_hours = now_us(ARGV[1]), ARGV[2] == '1', ARGV[3]

-- Queue and task are in the first 1,030 bytes of a body.
local HOUR, HOURS, PROCESSES, HEAD, BATCH, SCHEDULES = 3600000000, 168, 1000, 1030, 1000, 200
local newest = redis.call('ZRANGE', dead_letters, -1, -1, 'WITHSCORES')
local series = {}
-- In batches: Lua's `unpack` fails with some thousand arguments.
for from = 4, #ARGV, BATCH do
  local found = redis.call('HMGET', metrics, unpack(ARGV, from, math.min(from + BATCH - 1, #ARGV)))
  for _, each in ipairs(found) do series[#series + 1] = each end
end
local fields, hours = {}, {}
if of_hours ~= '' then
  local hour = math.floor(now / HOUR)
  for each = hour - HOURS + 1, hour do fields[#fields + 1] = string.format('%.0f ', each) .. of_hours end
  hours = redis.call('HMGET', metrics_by_hour, unpack(fields))
end
local info = with_info and redis.pcall('INFO') or ''

local schedule_count, failing, unreadable = redis.call('HLEN', schedules), 0, 0
for _, record in ipairs(with_info and schedule_count <= SCHEDULES and redis.call('HVALS', schedules) or {}) do
  local flags, _, pause_after, failures = string.byte(record, 1, 4)
  if failures then
    if flags % 2 == 1 and pause_after > 0 and failures >= pause_after then failing = failing + 1 end
    if math.floor(flags / IS_UNREADABLE) % 2 == 1 then unreadable = unreadable + 1 end
  end
end

local states = {}
for base = FIXED, #KEYS - 4, 4 do
  local scheduled, ready, recovered = KEYS[base + 1], KEYS[base + 2], KEYS[base + 3]
  local oldest, first, number, parked = lowest(scheduled, 0), {}, 0, 0
  for _, place in ipairs({ready, recovered, KEYS[base + 4]}) do
    local head = lowest(place, 0)
    local count = head[1] and redis.call('ZCARD', place) or 0
    number = number + count
    if place == KEYS[base + 4] then
      -- These do not wait for a worker.
      parked = count
    elseif head[1] and not (first[1] and tonumber(first[2]) <= tonumber(head[2])) then
      first = head
    end
  end
  local waiting = oldest[1] and redis.call('ZCARD', scheduled) or 0
  local overdue = waiting > 0 and redis.call('ZCOUNT', scheduled, '-inf', now) or 0
  local following = overdue < waiting and redis.call('ZRANGE', scheduled, overdue, overdue, 'WITHSCORES') or {}
  local body = following[1] and redis.call('HGET', jobs, string.sub(following[1], 1, 12))
  states[#states + 1] = {
    waiting, number, overdue, overdue > 0 and oldest[2] or '', following[2] or '',
    body and string.sub(body, 1, HEAD) or false, first[1] or '', first[2] or '', parked,
  }
end
return {
  now, redis.call('ZCARD', leases), redis.call('ZCARD', dead_letters),
  redis.call('ZCOUNT', dead_letters, now - HOUR, '+inf'), newest[2] or '',
  redis.call('ZUNION', 2, queues, next_due), redis.call('HGETALL', paused),
  redis.call('ZRANGE', workers, -PROCESSES, -1, 'WITHSCORES'),
  redis.call('ZRANGE', dispatchers, -PROCESSES, -1, 'WITHSCORES'),
  redis.call('HGETALL', process_reports), redis.call('HKEYS', quiet_workers), series,
  type(info) == 'string' and info or '', states, redis.call('HGETALL', paused_tasks),
  {schedule_count, failing, unreadable}, redis.call('HGETALL', releases), hours,
}
