-- Prelude: stands in front of every script. Owns the clock, the rank, the bells, and how a job enters or leaves a place.

local function now_us(given)
  if given ~= '' then return tonumber(given) end
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- Ranks are whole numbers below 2^53: priority byte * 2^45 + milliseconds; exact in a score.
-- No due time is later than LATEST, in the year 2255: beyond it a score is not exact, and a job could come early.
local PRIORITY_STEP, LATEST = 35184372088832, 9007199254740991
local NOTED, DELAYED, LARGE = 1, 2, 4

local function has(member, flag)
  return math.floor((string.byte(member, 14) or 0) / flag) % 2 == 1
end

-- Whatever was delayed by its caller gets a head start (ms): due first, yet nothing starves for longer than that.
local function rank_of(member, time_us, head_start)
  local rank = (string.byte(member, 13) or 0) * PRIORITY_STEP + math.floor(time_us / 1000)
  if has(member, DELAYED) then rank = rank - head_start end
  return rank
end

-- A bell is a list of at most one: a second ring before anybody listened says nothing new.
local function push_notification(notify)
  local length = redis.pcall('LLEN', notify)
  if type(length) == 'table' then length = redis.call('DEL', notify) - 1 end
  if length == 0 then redis.call('RPUSH', notify, 1) end
end

-- The lowest of a place; of a key that is something else (written by hand), nothing.
local function lowest(place, last)
  local found = redis.pcall('ZRANGE', place, 0, last, 'WITHSCORES')
  -- Nothing else is forgiven: a user who may not read would wait for ever.
  if found.err and not string.find(found.err, 'WRONGTYPE', 1, true) then error(found.err) end
  return found.err and {} or found
end

-- Whether the last attempt ended in a crash or a lost lease: such a job runs in a process of its own.
local function is_suspect(record)
  return record and (string.byte(record, 3) or 0) % 2 == 1
end

-- The name of a queue, encoded, as the end of each of its keys has it. `queues` and `next_due` hold names in this form.
local function queue_of(key)
  return string.match(key, '[^:]*$')
end

-- A worker of all queues reads their names again when the version differs. The first version is a time, so that it differs
-- after a flush, too.
local function change_version(shard, now)
  -- If the key has another type (it was edited manually), GET fails and SET replaces the key.
  local found = redis.pcall('GET', shard.queues_version)
  redis.call('SET', shard.queues_version, (type(found) == 'string' and tonumber(found) or now) + 1)
end

local function remember(shard, now, ready)
  if redis.call('ZADD', shard.queues, now, queue_of(ready)) == 1 then change_version(shard, now) end
end

-- `next_due` has the first due time of each schedule; whatever takes from a schedule calls this.
local function index_due(next_due, scheduled)
  local first = lowest(scheduled, 0)
  if first[2] then redis.call('ZADD', next_due, first[2], queue_of(scheduled)) else redis.call('ZREM', next_due, queue_of(scheduled)) end
end

-- Read before the first write: a key of another type (written by hand) refuses the step, or would end it half-done.
local function check_ready(shard, ready)
  redis.call('ZCARD', ready); redis.call('ZCARD', shard.queues)
end

local function check_scheduled(shard, scheduled)
  redis.call('ZCARD', scheduled); redis.call('ZCARD', shard.next_due)
  shard.wake = redis.call('GET', shard.next_promotion)
end

-- The only two ways into a waiting place; both remember the queue and ring. `shard` = its keys by name, `entries` = score,
-- member, score, member … (at most 500 pairs).
local function put_ready(shard, now, ready, queue_notify, entries)
  redis.call('ZADD', ready, unpack(entries))
  remember(shard, now, ready)
  -- One for workers that chose this queue, one for workers of all.
  push_notification(queue_notify)
  push_notification(shard.notify)
end

local function put_scheduled(shard, scheduled, entries)
  redis.call('ZADD', scheduled, unpack(entries))
  local first = entries[1]
  for i = 3, #entries, 2 do first = math.min(first, entries[i]) end
  -- Named for the first time, or lost: then others may be due before these.
  if redis.call('ZADD', shard.next_due, 'LT', first, queue_of(scheduled)) == 1 then index_due(shard.next_due, scheduled) end
  -- As `check_scheduled` read it.
  if first < (tonumber(shard.wake or '') or math.huge) then push_notification(shard.notify_dispatcher) end
end

-- The place where a job waits, of those of its queue, and its score there; nothing where it does not wait.
local function waiting_place(member, ...)
  for _, place in ipairs({...}) do
    local score = redis.call('ZSCORE', place, member)
    if score then return place, score end
  end
end

-- Whatever a job holds beside its body ends with it, in the script that removes it: so no key can leak and none needs
-- an expiry. Returns its extras record.
local function let_go(job_extras, unique_keys, member)
  if not has(member, NOTED) then return '' end
  local id = string.sub(member, 1, 12)
  local extra = redis.call('HGET', job_extras, id) or ''
  local digest = string.sub(extra, 2, 17)
  if redis.call('HGET', unique_keys, digest) == member then redis.call('HDEL', unique_keys, digest) end
  redis.call('HDEL', job_extras, id)
  return extra
end

-- The only key that expires, and its only writer; whatever somebody else put there goes.
local function keep_result(results, record, ending, body, ttl)
  redis.call('DEL', results)
  redis.call('RPUSH', results, struct.pack('>I4I4', #record, #ending) .. record .. ending .. body)
  redis.call('PEXPIRE', results, ttl)
end

-- The bytes of all dead bodies; what is no such number (written by hand) counts as none.
local function sum_of(dead_bytes)
  local sum = tonumber(redis.call('GET', dead_bytes) or '') or 0
  return sum > 0 and sum < 2 ^ 53 and sum or 0
end

local function add_dead_bytes(dead_bytes, change)
  local sum = sum_of(dead_bytes) + change
  if sum > 0 then redis.call('SET', dead_bytes, sum) else redis.call('DEL', dead_bytes) end
end

-- The lengths first, the body last: a reader may cut a long one short.
local function dead_letter(member, record, now, jobs, attempts, job_extras, unique_keys, dead_letters, dead_bodies, dead_bytes)
  local id = string.sub(member, 1, 12)
  local body, extra = redis.call('HGET', jobs, id) or '', let_go(job_extras, unique_keys, member)
  redis.call('HDEL', jobs, id)
  redis.call('HDEL', attempts, id)
  redis.call('ZADD', dead_letters, now, id)
  local stored = struct.pack('>I4I4', #record, #extra) .. member .. record .. extra .. body
  redis.call('HSET', dead_bodies, id, stored)
  add_dead_bytes(dead_bytes, #stored)
end
