-- Enqueue 1 to 250 jobs: all are stored, each in `schedule` or `ready`, or none is.
-- KEYS: the named ones, then schedule, ready and bell of each queue of the batch.
-- ARGV: now, head start (ms), number of queues, their names, then per job: member, queue number, due ('' = at once,
--   '+n' = n µs from now, n = µs since the epoch), body; for a noted job also: extras record, key digest, 1 = reject.
-- Returns now (µs), then for each job whose key is held: its number, the holder's member (mode keep: not stored).
-- Errors: KEYHELD <job number> <holder's id in hex>. An id that exists already (dead ones too) is no second job, and one
--   that was cancelled while it may have been on its way is none at all.
-- Cost: O(log n) a job.
local bodies, extras, holders, dead_bodies, queues, bell, wake_at, alarm, withdrawn = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local now, head_start, queue_count = now_us(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])

local FIXED = 9
local jobs, taken, reply = {}, {}, {now}
local noted, timed = false, false
-- Mostly there are none: one look for the whole batch.
local any_withdrawn = redis.call('ZCARD', withdrawn) > 0
local at, number = 4 + queue_count, 0
while at <= #ARGV do
  local member = ARGV[at]
  local job = {member = member, queue = tonumber(ARGV[at + 1]), due = ARGV[at + 2], body = ARGV[at + 3]}
  local id = string.sub(member, 1, 12)
  local keep = not (any_withdrawn and redis.call('ZSCORE', withdrawn, id))
  at = at + 4
  if has(member, NOTED) then
    job.extra, job.digest = ARGV[at], ARGV[at + 1]
    local holder = keep and (taken[job.digest] or redis.call('HGET', holders, job.digest))
    if holder and string.sub(holder, 1, 12) ~= id then
      if ARGV[at + 2] == '1' then
        local hex = string.gsub(string.sub(holder, 1, 12), '.', function(c) return string.format('%02x', string.byte(c)) end)
        return redis.error_reply('KEYHELD ' .. number .. ' ' .. hex)
      end
      reply[#reply + 1], reply[#reply + 2] = number, holder
      keep = false
    end
    if keep then taken[job.digest] = member end
    at = at + 3
  end
  if keep and redis.call('HEXISTS', bodies, id) == 0 and redis.call('HEXISTS', dead_bodies, id) == 0 then
    jobs[#jobs + 1] = job
    noted, timed = noted or job.extra, timed or job.due ~= ''
  end
  number = number + 1
end

-- Read before the first write: a key of another type (written by hand) refuses the step, or would end it half-done.
-- Only what will be written: most jobs have neither a key nor a time.
if #jobs > 0 then
  redis.call('SCARD', queues)
  if noted then redis.call('HLEN', extras) end
  if timed then redis.call('GET', wake_at) end
  for queue = 1, queue_count do
    if timed then redis.call('ZCARD', KEYS[FIXED + 3 * queue - 2]) end
    redis.call('ZCARD', KEYS[FIXED + 3 * queue - 1])
  end
end

-- First a growing command: with its memory full, Redis refuses the batch as a whole.
local scheduled, ready, earliest, stored = {}, {}, nil, {}
for _, job in ipairs(jobs) do
  local member, due = job.member, nil
  local id = string.sub(member, 1, 12)
  if not stored[id] then
    stored[id] = true
    redis.call('HSET', bodies, id, job.body)
    if job.extra then
      redis.call('HSET', extras, id, job.extra)
      redis.call('HSET', holders, job.digest, member)
    end
    if string.byte(job.due) == 43 then due = now + tonumber(string.sub(job.due, 2)) else due = tonumber(job.due) end
    local into, score
    if due and due > now then
      due = math.min(due, LATEST)
      into, score = scheduled, due
      if not earliest or due < earliest then earliest = due end
    else
      into, score = ready, rank_of(member, now, head_start)
    end
    local entries = into[job.queue] or {}
    into[job.queue] = entries
    entries[#entries + 1], entries[#entries + 2] = score, member
  end
end
for queue = 1, queue_count do
  local base = FIXED + 3 * (queue - 1)
  if scheduled[queue] then put_scheduled(KEYS[base + 1], wake_at, alarm, scheduled[queue], earliest) end
  if ready[queue] then put_ready(KEYS[base + 2], KEYS[base + 3], ready[queue]) end
  if (scheduled[queue] or ready[queue]) and redis.call('SADD', queues, ARGV[3 + queue]) == 1 then ring(bell) end
end
return reply
