-- Queues: what is stored of them beside their jobs: the list of their names, and the first due time of each. A part of
--   the prelude.

-- Before put_ready().
local function check_ready(ready)
  redis.call('ZCARD', ready); redis.call('ZCARD', queues)
end

-- Before index_and_notify().
local function check_next_due()
  redis.call('ZCARD', next_due)
  promotion_at = redis.call('GET', next_promotion)
end

-- Before put_scheduled().
local function check_scheduled(scheduled)
  redis.call('ZCARD', scheduled); check_next_due()
end

-- Workers of all queues read the names again when the version differs. The first version is a time, so that it also
-- differs after a flush.
local function change_version(now)
  -- If the key has another type (it was edited manually), GET fails and SET replaces the key.
  local found = redis.pcall('GET', queues_version)
  redis.call('SET', queues_version, (type(found) == 'string' and tonumber(found) or now) + 1)
end

-- Whether `queues` has the queue of `ready`, with a time of the last minute. An older time must be renewed: the name is
-- removed about ten minutes after its last job.
local function listed_recently(now, ready)
  local listed = redis.call('ZSCORE', queues, queue_of(ready))
  return listed and now - listed < MINUTE
end

local function list_queue(now, ready)
  if redis.call('ZADD', queues, now, queue_of(ready)) == 1 then change_version(now) end
end

-- The part of a body that names its queue and its task, with the lengths of both names.
local function names_of(body)
  local task_at = 5 + (string.byte(body, 4) or 0)
  return string.sub(body, 4, task_at + 1 + 256 * (string.byte(body, task_at) or 0) + (string.byte(body, task_at + 1) or 0))
end

-- Count stored jobs of one queue and task. Beyond MOST_ENQUEUED of these pairs they count without their names.
local function count_enqueued(names, number)
  -- Statistics: if the key has another type, or a field no number (both edited manually), nothing is counted, and the jobs
  -- are stored.
  if redis.pcall('HINCRBY', enqueued, names, number) == number and redis.call('HLEN', enqueued) > MOST_ENQUEUED then
    redis.call('HDEL', enqueued, names)
    redis.pcall('HINCRBY', enqueued, '', number)
  end
end

-- `next_due` holds the first due time of each queue; every script that removes scheduled jobs calls this.
local function index_due(scheduled)
  local first = lowest(scheduled, 0)
  if first[2] then
    redis.call('ZADD', next_due, first[2], queue_of(scheduled))
  else
    redis.call('ZREM', next_due, queue_of(scheduled))
  end
end

-- After jobs entered `ready`: list the queue, unless it is `listed` (see listed_recently()), and notify workers.
local function list_and_notify(now, ready, queue_notify, listed)
  if not listed then list_queue(now, ready) end
  notify_workers(queue_notify)
end

-- After jobs entered `scheduled`: put the queue into `next_due`, and notify the dispatcher if it must promote earlier.
-- `first` is the earliest due time of these jobs.
local function index_and_notify(scheduled, first)
  -- If the queue was not in the index (it is new, or its entry was lost), older jobs may be due before these.
  if redis.call('ZADD', next_due, 'LT', first, queue_of(scheduled)) == 1 then index_due(scheduled) end
  if first < (tonumber(promotion_at or '') or math.huge) then push_notification(notify_dispatcher) end
end
