-- Audit_error_groups: entries of error groups and of dead letters are compared, and repaired if no script could have left
--   them as they are.
-- KEYS: dead_letters, dead_bodies, error_groups, groups_of_dead, dead_by_group.
-- ARGV: now, noun: `dead_letters`, `groups_of_dead`, `dead_by_group` or `error_groups`; 1 = repair, then entries or fields
--   of it (≤ 500).
-- Returns: per entry a word. OK: correct, or changed since the caller read it. MALFORMED and MISSING (its dead letter is
--   gone, or in another group) are removed. NOT_GROUPED (a dead letter without an entry) gets one, in its group if that is
--   known.
-- Cost: O(log n) an entry.
local now, noun, repair = now_us(ARGV[1]), ARGV[2], ARGV[3] == '1'

-- The entry that a dead letter should have; nothing if it is no dead letter, or has no group.
local function entry_of(id)
  local group, died = redis.call('HGET', groups_of_dead, id), redis.call('ZSCORE', dead_letters, id)
  return group and died and #group == 12 and group .. pack_death(died) .. id
end

local judge = {}
function judge.dead_letters(id)
  if not redis.call('ZSCORE', dead_letters, id) then return 'OK' end
  local entry = entry_of(id)
  return entry and redis.call('ZSCORE', dead_by_group, entry) and 'OK' or 'NOT_GROUPED'
end
function judge.groups_of_dead(id)
  local group = redis.call('HGET', groups_of_dead, id)
  if not group then return 'OK' end
  if #group ~= 12 then return 'MALFORMED' end
  return redis.call('ZSCORE', dead_letters, id) and 'OK' or 'MISSING'
end
function judge.dead_by_group(entry)
  local score = redis.call('ZSCORE', dead_by_group, entry)
  if not score then return 'OK' end
  if #entry ~= 32 or tonumber(score) ~= 0 then return 'MALFORMED' end
  return entry_of(string.sub(entry, 21)) == entry and 'OK' or 'MISSING'
end
function judge.error_groups(group)
  local stored = redis.call('HGET', error_groups, group)
  return (not stored or #group == 12 and #stored >= 16) and 'OK' or 'MALFORMED'
end

local words = {}
for i = 4, #ARGV do
  local entry = ARGV[i]
  local word = judge[noun](entry)
  if repair and word == 'NOT_GROUPED' then
    add_to_group_again(now, entry, redis.call('ZSCORE', dead_letters, entry))
  elseif repair and word ~= 'OK' then
    if noun == 'dead_by_group' then redis.call('ZREM', dead_by_group, entry) else redis.call('HDEL', noun == 'error_groups' and error_groups or groups_of_dead, entry) end
  end
  words[#words + 1] = word
end
return words
