-- Audit_limits: what is stored of limits is compared with the places and leases of the jobs, and repaired if no script
--   could have left it so.
-- KEYS: records, jobs, job_extras, leases, claim_records, limit_jobs, next_let_in, waiting_for, claim_limits,
--   outside_slots, next_promotion, notify_dispatcher; `records` is `waiting_for`, `claim_limits`, `limit_jobs`,
--   `outside_slots`, `limit_turns`, `next_let_in`, `limit_times`, `limit_rules` or `paused_tasks`; then scheduled, ready,
--   notify, recovered and parked of each queue that the bodies of the jobs name.
-- ARGV: now, noun of the records, 1 = repair, then per record (≤ 500): its entry or field, the head of the job's body as
--   the caller read it, the member that this head makes, the number of its queue (0 = no body, an unreadable one, or a
--   record of no job).
-- Returns: per record a code. OK: correct, or changed since the caller read it. MALFORMED, and MISSING (no job and no
--   lease agrees with it) are deleted. NO_SLOT: a slot that a claim has is written. NO_RECORD: a slot of a live lease is
--   written into `claim_limits`. LIMIT_NOT_LISTED: a parked job, or its limit, is written where the dispatcher looks.
-- Cost: O(log n) a record.
local now, noun, repair = now_us(ARGV[1]), ARGV[2], ARGV[3] == '1'

-- Records of no job: the lengths of a field or entry, and the length of a value of 1 or several parts.
local SIZES = {
  limit_turns = {entry = 12, part = 14}, ['next_let_in'] = {entry = 12}, limit_times = {entry = 12},
  limit_rules = {entry = 4, value = 16}, paused_tasks = {entry = 12},
}
local is_hash = redis.call('TYPE', records).ok == 'hash'

local function is_sound(entry, value)
  local size = SIZES[noun]
  if noun == 'limit_times' and #entry == 13 then return string.sub(entry, 1, 1) == BACK_OFF end
  return #entry == size.entry and (not size.value or #value == size.value)
    and (not size.part or #value > 0 and #value % size.part == 0)
end

-- The lease of a running job; nothing if it does not run.
local function lease_of(member)
  local record = redis.call('HGET', claim_records, string.sub(member, 1, 12))
  local lease = record and string.sub(member, 1, 14) .. string.sub(record, 1, 16)
  return lease and redis.call('ZSCORE', leases, lease) and lease
end

local function cost_under(id, member)
  return cost_of_limit(limits_of_extras(read_extras(member)), id)
end

-- The entry of a parked job as it must be; nothing if the job is not parked.
local function right_entry(member, queue)
  local parked, id = KEYS[FIXED + 5 * queue], redis.call('HGET', waiting_for, string.sub(member, 1, 12))
  local rank = redis.call('ZSCORE', parked, member)
  if not rank or not id then return end
  return parked_entry(id, parked, group_of_extras(read_extras(member)), member, tonumber(rank), cost_under(id, member))
end

-- Whether a claim has a slot of this limit by its record.
local function names(held, id)
  for _, limit in ipairs(unpack_limits(held)) do
    if limit.id == id then return true end
  end
end

-- Of each kind of entry in `limit_jobs`: its length at least, and where the id of its job is.
local KINDS = {[PARKED] = {52, 36}, [LET_IN] = {43, 28}, [SLOT] = {43, 14}}
local check_entry = {
  [PARKED] = function(entry, id, member, queue)
    if right_entry(member, queue) ~= entry then return 'MISSING' end
    return redis.call('ZSCORE', next_let_in, id) and 'OK' or 'LIMIT_NOT_LISTED'
  end,
  [LET_IN] = function(entry, id, member, queue)
    local ready, recovered = KEYS[FIXED + 5 * queue - 3], KEYS[FIXED + 5 * queue - 1]
    local group = group_of_extras(read_extras(member))
    local is_own = let_in_entry(id, ready, group, member, cost_under(id, member)) == entry
    return is_own and waiting_place(member, ready, recovered) and 'OK' or 'MISSING'
  end,
  [SLOT] = function(entry, id)
    local lease = string.sub(entry, 14)
    if redis.call('ZSCORE', outside_slots, id .. lease) then return 'OK' end
    if not redis.call('ZSCORE', leases, lease) then return 'MISSING' end
    return names(redis.call('HGET', claim_limits, string.sub(lease, 1, 12)) or '', id) and 'OK' or 'NO_RECORD'
  end,
}

local check = {}
function check.limit_jobs(entry, member, queue)
  local kind = string.sub(entry, 1, 1)
  local layout = KINDS[kind]
  if not layout or #entry < layout[1] or kind ~= PARKED and #entry > layout[1] then return 'MALFORMED' end
  if queue == 0 and kind ~= SLOT then
    return redis.call('HEXISTS', jobs, string.sub(entry, layout[2], layout[2] + 11)) == 1 and 'OK' or 'MISSING'
  end
  return check_entry[kind](entry, string.sub(entry, 2, 13), member, queue)
end
function check.waiting_for(id, member, queue, limit)
  if #id ~= 12 or #limit ~= 12 then return 'MALFORMED' end
  if queue == 0 then return redis.call('HEXISTS', jobs, id) == 1 and 'OK' or 'MISSING' end
  local entry = right_entry(member, queue)
  if not entry then return 'MISSING' end
  return redis.call('ZSCORE', limit_jobs, entry) and 'OK' or 'LIMIT_NOT_LISTED'
end
function check.claim_limits(id, member, queue, held)
  if #id ~= 12 or #held % 14 ~= 0 then return 'MALFORMED' end
  if queue == 0 then return redis.call('HEXISTS', claim_records, id) == 1 and 'OK' or 'MISSING' end
  local lease = lease_of(member)
  if not lease then return 'MISSING' end
  for _, limit in ipairs(unpack_limits(held)) do
    if not redis.call('ZSCORE', limit_jobs, SLOT .. limit.id .. lease) then return 'NO_SLOT' end
  end
  return 'OK'
end
function check.outside_slots(entry)
  if #entry ~= 42 then return 'MALFORMED' end
  return redis.call('ZSCORE', limit_jobs, SLOT .. entry) and 'OK' or 'MISSING'
end
function check.limit_turns(id, _, _, value)
  if not is_sound(id, value) then return 'MALFORMED' end
  return (first_parked(id, '') or redis.call('ZSCORE', next_let_in, id)) and 'OK' or 'MISSING'
end

local function repair_record(code, entry, member, queue, value)
  if code == 'LIMIT_NOT_LISTED' then
    local right = right_entry(member, queue)
    redis.call('ZADD', limit_jobs, 0, right)
    schedule_let_in(string.sub(right, 2, 13), 0)
  elseif code == 'NO_SLOT' then
    for _, limit in ipairs(unpack_limits(value)) do
      redis.call('ZADD', limit_jobs, 0, SLOT .. limit.id .. lease_of(member))
    end
  elseif code == 'NO_RECORD' then
    local id, holder = string.sub(entry, 2, 13), string.sub(entry, 14, 25)
    local held = redis.call('HGET', claim_limits, holder) or ''
    local cost = cost_under(id, string.sub(entry, 14, 27))
    redis.call('HSET', claim_limits, holder, held .. pack_limit({id = id, cost = cost}))
  elseif is_hash then
    redis.call('HDEL', records, entry)
  else
    redis.call('ZREM', records, entry)
    -- It counted: somebody else may begin.
    if noun == 'limit_jobs' and #entry > 13 then schedule_let_in(string.sub(entry, 2, 13), 0) end
  end
end

-- Type checks, by commands that the other audits send too: the role of `delayq_check` in the ACL gets no more of them.
check_zsets(limit_jobs, next_let_in)
for _, key in ipairs({waiting_for, claim_limits, claim_records, jobs}) do redis.call('HGET', key, '') end
promotion_at = redis.call('GET', next_promotion)
-- Freeing first (see the prelude).
if repair then redis.call('ZREM', limit_jobs, '') end
local codes = {}
for at = 4, #ARGV, 4 do
  local entry, head, member, queue = ARGV[at], ARGV[at + 1], ARGV[at + 2], tonumber(ARGV[at + 3])
  local value, code = nil, 'OK'
  if is_hash then value = redis.call('HGET', records, entry) else value = redis.call('ZSCORE', records, entry) end
  local body = queue > 0 and redis.call('HGET', jobs, string.sub(member, 1, 12)) or ''
  if string.sub(body, 1, #head) ~= head then
    -- The job has moved since the caller read its body.
    value = nil
  end
  if value and check[noun] then
    code = check[noun](entry, member, queue, value)
  elseif value and not is_sound(entry, value) then
    code = 'MALFORMED'
  end
  if repair and code ~= 'OK' then repair_record(code, entry, member, queue, value) end
  codes[#codes + 1] = code
end
return codes
