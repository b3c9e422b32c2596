-- Prelude: the functions that several scripts share. They own the clock, ranks, notifications, and how a job enters or
--   leaves a place. The loader leaves out each function that the script does not use, and writes KEYS[n] for the names of
--   the script's keys.
--
-- Two rules hold for every script that writes:
-- 1. Type checks: before its first write, a script reads each key that it will write later (ZCARD, HLEN, GET). If
--    somebody gave a key another type, the script fails before it changes anything.
-- 2. Freeing first: the first write of a script that must work on a full Redis frees memory, or changes nothing. Redis
--    refuses a script whose first write needs memory, and accepts all later writes of one that began.

-- Ranks are whole numbers below 2^53: priority byte * 2^45 + milliseconds; exact in a score.
-- No due time is later than LATEST, in the year 2255: a later one is not exact in a score, so a job could come early.
local PRIORITY_STEP, LATEST = 35184372088832, 9007199254740991
-- In µs, as all times.
local MINUTE = 60000000
local MOST_ENQUEUED = 2000
-- Bits of a member's last byte, as in Flag of job/job.py.
local HAS_EXTRAS, DELAYED, LARGE, LIMITED = 1, 2, 4, 64
-- `next_promotion` as check_next_due() read it.
local promotion_at

local function now_us(given)
  if given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Record what happened, for callers that repeat a call. These records have no other end: a caller does so before 10,000
-- others were recorded.
local function keep_record(log, now, entry)
  redis.call('ZADD', log, now, entry)
  redis.call('ZREMRANGEBYRANK', log, 0, -10001)
end

-- A due time is '+n' (n µs from now), n (µs since the epoch), or '' (none: returns nil).
local function due_time(text, now)
  local due
  if string.byte(text) == 43 then due = now + tonumber(string.sub(text, 2)) else due = tonumber(text) end
  return due and math.min(due, LATEST)
end

local function has(member, flag)
  return (string.byte(member, 14) or 0) % (2 * flag) >= flag
end

-- A job delayed by its caller gets a head start (ms): it runs before others, and yet delays none for longer than that.
local function rank_of(member, time_us, head_start)
  local rank = (string.byte(member, 13) or 0) * PRIORITY_STEP + math.floor(time_us / 1000)
  if has(member, DELAYED) then rank = rank - head_start end
  return rank
end

-- Whether the last attempt ended in a crash or a lost lease: such a job runs in a process of its own.
local function crash_suspected(record)
  return record and (string.byte(record, 3) or 0) % 2 == 1
end

-- A claim record has these fields: the token (16 bytes), the time of the claim (µs), the rank, and a byte of flags.
-- Flag 1: the record goes on with the time (µs) by which the code must end, because somebody stopped the job.
-- Flag 2: it goes on with the due time (µs), because the job was claimed early. The progress is last; no script reads it.
-- Flag 4: the claim cost the flow of the job's tenant a turn (see _turns.lua).
-- Returns the time by which the code must end and the due time, each nil without its flag, the position of the progress,
-- and whether flag 4 is set. Returns nothing if another token holds the job.
local function read_claim(record, token)
  if not record or #record < 33 or string.sub(record, 1, 16) ~= token then return end
  local flags, at, stop_by, due = string.byte(record, 33), 34
  -- Most jobs: this saves time in each heartbeat.
  if flags == 0 then return nil, nil, at end
  if flags % 2 == 1 and #record >= at + 7 then stop_by, at = struct.unpack('>I8', record, at) end
  if math.floor(flags / 2) % 2 == 1 and #record >= at + 7 then due, at = struct.unpack('>I8', record, at) end
  return stop_by, due, at, flags >= 4
end

-- The name of a queue, encoded as in `queues` and `next_due`: the end of each of its keys, or the name itself.
local function queue_of(key)
  return string.match(key, '.*:(.*)') or key
end

-- A notification is a list of at most one element: a second one adds nothing until somebody pops the first.
local function push_notification(list)
  local length = redis.pcall('LLEN', list)
  if type(length) == 'table' then length = redis.call('DEL', list) - 1 end
  if length == 0 then redis.call('RPUSH', list, 1) end
end

-- One notification for workers that name this queue, one for workers of all queues.
local function notify_workers(queue_notify)
  push_notification(queue_notify)
  push_notification(notify)
end

-- µs after which a promotion that was announced for this time is overdue; 0 = it is.
local function overdue_in(now, promotion)
  -- No sweep is longer than 5 s: a promotion announced for later than that was written before the clock was set back.
  local OVERDUE, LONGEST_SWEEP = 1000000, 5000000
  local left = (tonumber(promotion or '') or 0) + OVERDUE - now
  -- Written so that NaN (it was edited manually) counts as overdue.
  return left >= 0 and left <= LONGEST_SWEEP + 2 * OVERDUE and left + 1 or 0
end

-- The entries with the lowest scores, and these; nothing if the key has another type.
local function lowest(place, last)
  local found = redis.pcall('ZRANGE', place, 0, last, 'WITHSCORES')
  -- Other errors are raised: without the right to read, a user would wait forever.
  if found.err and not string.find(found.err, 'WRONGTYPE', 1, true) then error(found.err) end
  return found.err and {} or found
end

local function check_hashes(...)
  for _, key in ipairs({...}) do redis.call('HLEN', key) end
end

local function check_zsets(...)
  for _, key in ipairs({...}) do redis.call('ZCARD', key) end
end

-- The type checks of what _turns.lua writes. Returns whether any job of a tenant is stored. It is here because each
-- promotion calls it, and most of them need nothing else of that part.
local function check_tenants()
  redis.call('ZCARD', turns); redis.call('HLEN', tenants)
  return redis.call('ZCARD', tenant_jobs) > 0
end
