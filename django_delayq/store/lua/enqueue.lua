-- Enqueue 1 to 250 batch: all are stored, each in `scheduled` or `ready`, or none is.
-- KEYS: jobs, job_extras, unique_keys, dead_bodies, queues, queues_version, next_due, notify, next_promotion,
--   notify_dispatcher, withdrawn; then schedule, ready and bell of each queue of the batch.
-- ARGV: now, head start (ms), then per job: member, queue number, due ('' = at once,
--   '+n' = n µs from now, n = µs since the epoch), body; for a noted job also: extras record, key digest, 1 = reject.
-- Returns now (µs), then for each job whose key is held: its number, the holder's member (mode keep: not stored).
-- Errors: KEYHELD <job number> <holder's id in hex>. An id that exists already (dead ones too) is no second job, and one
--   that was cancelled while it may have been on its way is none at all.
-- Cost: O(log n) a job.
local now, head_start = now_us(ARGV[1]), tonumber(ARGV[2])

local shard = {queues = queues, queues_version = queues_version, next_due = next_due, notify = notify, next_promotion = next_promotion, notify_dispatcher = notify_dispatcher}
-- Of the queues that get batch, scheduled and ready ones: score, member, score, member …
local batch, taken, timed, untimed, noted, reply = {}, {}, {}, {}, false, {now}
-- Mostly there are none: one look for the whole batch.
local any_withdrawn = redis.call('ZCARD', withdrawn) > 0
local at, number = 3, 0
while at <= #ARGV do
  local member, queue, due, body = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2], ARGV[at + 3]
  local id = string.sub(member, 1, 12)
  local job = {id = id, member = member, queue = queue, body = body}
  local keep = not (any_withdrawn and redis.call('ZSCORE', withdrawn, id))
  at = at + 4
  if has(member, NOTED) then
    job.extra, job.digest = ARGV[at], ARGV[at + 1]
    local holder = keep and (taken[job.digest] or redis.call('HGET', unique_keys, job.digest))
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
  if keep and redis.call('HEXISTS', dead_bodies, id) == 0 then
    if string.byte(due) == 43 then due = now + tonumber(string.sub(due, 2)) else due = tonumber(due) end
    if due and due > now then job.due, timed[queue] = math.min(due, LATEST), {} else untimed[queue] = {} end
    batch[#batch + 1], noted = job, noted or job.extra
  end
  number = number + 1
end

-- Read before the first write: a key of another type (written by hand) refuses the step, or would end it half-done.
if noted then redis.call('HLEN', job_extras) end
for queue in pairs(timed) do check_scheduled(shard, KEYS[FIXED + 3 * queue - 2]) end
for queue in pairs(untimed) do check_ready(shard, KEYS[FIXED + 3 * queue - 1]) end

for _, job in ipairs(batch) do
  -- Not HSETNX: only `pause` and `quiet` call it, so the ACL rule of a producer, which lacks it, forbids both.
  if redis.call('HEXISTS', jobs, job.id) == 0 then
    -- First a growing command: with its memory full, Redis refuses the batch as a whole.
    redis.call('HSET', jobs, job.id, job.body)
    if job.extra then
      redis.call('HSET', job_extras, job.id, job.extra)
      redis.call('HSET', unique_keys, job.digest, job.member)
    end
    local entries = job.due and timed[job.queue] or untimed[job.queue]
    entries[#entries + 1], entries[#entries + 2] = job.due or rank_of(job.member, now, head_start), job.member
  end
end
for queue, entries in pairs(timed) do
  if entries[1] then put_scheduled(shard, KEYS[FIXED + 3 * queue - 2], entries) end
end
for queue, entries in pairs(untimed) do
  if entries[1] then put_ready(shard, now, KEYS[FIXED + 3 * queue - 1], KEYS[FIXED + 3 * queue], entries) end
end
return reply
