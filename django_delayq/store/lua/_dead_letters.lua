-- Dead letters: how a job becomes one and is removed, and the error groups that count them. A part of the prelude.
--
-- A group is 12 bytes: 6 of the task and the class of the error, 6 of the message. `error_groups` has for each when a
-- dead letter of it came first and last (µs, 8 bytes each), and its label, which only Python reads. `dead_by_group` has
-- an entry of score 0 for each dead letter: group, time of death (8 bytes), id. Dead letters of one group are therefore
-- side by side, in the order in which they died.

-- The bytes of all dead bodies; a value that is no such number (it was edited manually) counts as none.
local function sum_of_dead_bytes()
  local sum = tonumber(redis.call('GET', dead_bytes) or '') or 0
  return sum > 0 and sum < 2 ^ 53 and sum or 0
end

local function add_dead_bytes(change)
  local sum = sum_of_dead_bytes() + change
  if sum > 0 then redis.call('SET', dead_bytes, sum) else redis.call('DEL', dead_bytes) end
end

-- Most groups with a message of their own; then most groups, when the message counts no more. All others are one group.
local MOST_MESSAGES, MOST_GROUPS, OTHERS = 1000, 1250, string.rep('\0', 12)
-- For how long a group without dead letters is remembered (µs), so that an error that comes back is not a new one.
local GROUP_KEPT = 7 * 86400 * 1000000

-- The time of death in an entry. A score that was edited manually may be any number.
local function pack_death(died)
  return struct.pack('>I8', math.max(0, math.min(tonumber(died), 2 ^ 53)))
end

local function check_dead_letters()
  redis.call('HLEN', dead_bodies); redis.call('ZCARD', dead_letters); redis.call('GET', dead_bytes)
  redis.call('HLEN', groups_of_dead); redis.call('ZCARD', dead_by_group); redis.call('HLEN', error_groups)
end

local function count_of_group(group)
  return redis.call('ZLEXCOUNT', dead_by_group, '[' .. group, '(' .. group .. string.rep('\255', 9))
end

-- Called for each new group: groups are forgotten as fast as they come, without a walk over all of them.
local function forget_empty_groups(now)
  for _, group in ipairs(redis.call('HRANDFIELD', error_groups, 3)) do
    local stored = redis.call('HGET', error_groups, group)
    local last = #stored >= 16 and struct.unpack('>I8', stored, 9) or 0
    if last < now - GROUP_KEPT and count_of_group(group) == 0 then redis.call('HDEL', error_groups, group) end
  end
end

-- The group that counts a dead letter of this one.
local function group_for(now, group)
  if redis.call('HEXISTS', error_groups, group) == 1 then return group end
  forget_empty_groups(now)
  local known = redis.call('HLEN', error_groups)
  if known < MOST_MESSAGES then return group end
  local of_class = string.sub(group, 1, 6) .. string.sub(OTHERS, 7)
  if known < MOST_GROUPS or redis.call('HEXISTS', error_groups, of_class) == 1 then return of_class end
  return OTHERS
end

-- `group` = the 12 bytes and the label; '' = nothing is known of its error.
local function add_to_group(now, id, died, group)
  local used = group == '' and OTHERS or group_for(now, string.sub(group, 1, 12))
  local stored = redis.call('HGET', error_groups, used) or ''
  local first, last, label = pack_death(died), tonumber(died), string.sub(stored, 17)
  if #stored >= 16 then
    -- A dead letter that comes back may be older than the others.
    first, last = string.sub(stored, 1, 8), math.max(last, (struct.unpack('>I8', stored, 9)))
  else
    label = used == OTHERS and '' or string.sub(group, 13)
  end
  redis.call('HSET', error_groups, used, first .. pack_death(last) .. label)
  redis.call('HSET', groups_of_dead, id, used)
  redis.call('ZADD', dead_by_group, 0, used .. pack_death(died) .. id)
end

-- A dead letter of which an entry is missing gets it, in its group if that is known.
local function add_to_group_again(now, id, died)
  local group = redis.call('HGET', groups_of_dead, id) or ''
  add_to_group(now, id, died, #group == 12 and group or '')
end

-- A job whose extras record is deleted already, and was this, becomes a dead letter that died then. Both lengths come first
-- and the body last: a reader may cut off the end of a long body.
local function put_dead_body(now, died, member, record, extra, group)
  local id = string.sub(member, 1, 12)
  local body = redis.call('HGET', jobs, id) or ''
  redis.call('HDEL', jobs, id)
  redis.call('HDEL', attempts, id)
  redis.call('ZADD', dead_letters, died, id)
  local stored = struct.pack('>I4I4', #record, #extra) .. member .. record .. extra .. body
  redis.call('HSET', dead_bodies, id, stored)
  add_dead_bytes(#stored)
  add_to_group(now, id, died, group)
end

-- If a person retries it, it is a job like any other, and none of its schedule.
local function put_dead_letter(now, member, record, group)
  put_dead_body(now, now, member, record, without_schedule(end_job(now, member, RUN_FAILED)), group)
end

local function remove_from_groups(ids)
  local groups, died, entries = redis.call('HMGET', groups_of_dead, unpack(ids)), {}, {}
  died = redis.call('ZMSCORE', dead_letters, unpack(ids))
  for i, id in ipairs(ids) do
    if groups[i] and died[i] then entries[#entries + 1] = groups[i] .. pack_death(died[i]) .. id end
  end
  if #entries > 0 then redis.call('ZREM', dead_by_group, unpack(entries)) end
  redis.call('HDEL', groups_of_dead, unpack(ids))
end

-- `size` = bytes that the dead letters of these ids have in all.
local function remove_dead_letters(ids, size)
  remove_from_groups(ids)
  redis.call('ZREM', dead_letters, unpack(ids))
  redis.call('HDEL', dead_bodies, unpack(ids))
  add_dead_bytes(-size)
end
