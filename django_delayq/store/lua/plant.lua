-- Plant: the next jobs of recurring schedules are enqueued, each only if its schedule is as the caller read it: so several
--   dispatchers plant each job once. A repeated call finds that its jobs are planted.
-- KEYS: schedules, next_planting, jobs, job_extras, enqueued, queues, queues_version, next_due, notify, next_promotion,
--   notify_dispatcher, tenant_jobs, turns, tenants; then scheduled, ready and notify of each queue of the batch.
-- ARGV: now, head start (ms), then per job (1 to 250): id of its schedule, the version and the last occurrence (µs) that
--   the caller read, flags that the record gets, when the next job of the schedule is planted ('' = never), and its own
--   occurrence (µs; '' = there is no job to plant); if it has one also: member, queue number, due time (µs), body, extras
--   record. Several jobs of one schedule are in the order of their occurrences.
-- Returns: per job 1 = planted, 0 = its schedule has changed since, or another dispatcher planted.
-- Cost: O(log n) a job.
local now, head_start = now_us(ARGV[1]), tonumber(ARGV[2])

-- Type checks (see the prelude).
check_schedules(); check_hashes(jobs, job_extras); check_tenants()
for base = FIXED, #KEYS - 3, 3 do check_scheduled(KEYS[base + 1]); check_ready(KEYS[base + 2]) end
promotion_at = redis.call('GET', next_promotion)
local timed, untimed, planted, at = {}, {}, {}, 3
-- Written together after the loop: a call costs more than what it does.
local bodies, records, plans, first_plan, stored = {}, {}, {}, math.huge, {}
while at <= #ARGV do
  local id, flags, next_time, occurrence = ARGV[at], tonumber(ARGV[at + 3]), ARGV[at + 4], tonumber(ARGV[at + 5])
  local schedule = read_schedule(id)
  local is_current = schedule and schedule.flags % 2 == 0 and schedule.version == tonumber(ARGV[at + 1])
    and schedule.occurrence == tonumber(ARGV[at + 2])
  if is_current then
    schedule.flags = flags
    if occurrence then
      local member, queue, due, body = ARGV[at + 6], tonumber(ARGV[at + 7]), tonumber(ARGV[at + 8]), ARGV[at + 9]
      schedule.occurrence, schedule.planted = occurrence, string.sub(member, 1, 12)
      bodies[#bodies + 1], bodies[#bodies + 2] = schedule.planted, body
      local names = names_of(body)
      stored[names] = (stored[names] or 0) + 1
      records[#records + 1], records[#records + 2] = schedule.planted, ARGV[at + 10]
      local batch = due > now and timed or untimed
      local entries = batch[queue] or {}
      batch[queue] = entries
      entries[#entries + 1], entries[#entries + 2] = due > now and due or rank_of(member, due, head_start), member
    end
    if not occurrence and schedule.planted ~= NO_JOB and redis.call('HEXISTS', jobs, schedule.planted) == 0 then
      -- The job was removed manually: nothing else records that it does not wait any more.
      schedule.planted, next_time = NO_JOB, now
    elseif not occurrence and next_time ~= '' and flags < IS_UNREADABLE and schedule.planted == NO_JOB
      and schedule.running == NO_JOB then
      -- The plan waits for a job that has ended since the schedule was read.
      next_time = now
    end
    store_schedule(schedule)
    if next_time == '' then
      redis.call('ZREM', next_planting, id)
    else
      plans[#plans + 1], plans[#plans + 2] = next_time, id
      first_plan = math.min(first_plan, tonumber(next_time))
    end
  elseif not schedule or schedule.flags % 2 == 1 then
    -- Its entry was edited manually: it would keep the dispatcher busy.
    redis.call('ZREM', next_planting, id)
  end
  planted[#planted + 1] = is_current and 1 or 0
  at = at + (occurrence and 11 or 6)
end
if #bodies > 0 then
  redis.call('HSET', jobs, unpack(bodies))
  redis.call('HSET', job_extras, unpack(records))
end
for names, count in pairs(stored) do count_enqueued(names, count) end
if #plans > 0 then redis.call('ZADD', next_planting, unpack(plans)) end
if first_plan < (tonumber(promotion_at or '') or math.huge) then push_notification(notify_dispatcher) end
for queue, entries in pairs(timed) do put_scheduled(KEYS[FIXED + 3 * queue - 2], entries) end
for queue, entries in pairs(untimed) do
  put_ready(now, KEYS[FIXED + 3 * queue - 1], KEYS[FIXED + 3 * queue], entries)
end
return planted
