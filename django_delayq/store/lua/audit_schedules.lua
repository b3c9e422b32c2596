-- Audit_schedules: recurring schedules are compared with the moments at which they are planted, and repaired if no script
--   could have left them so.
-- KEYS: schedules, next_planting, next_promotion, notify_dispatcher.
-- ARGV: now, noun of the records (`schedules` or `next_planting`), 1 = repair, then per record (≤ 500): id of the
--   schedule, 1 = by its definition it has a further occurrence, its version, and its last occurrence (µs), as the caller
--   read them.
-- Returns: per record a word. OK: correct, or changed since the caller read it. NOT_PLANNED: nobody plants a schedule that
--   is not paused; a dispatcher does so now. SCHEDULE_DAMAGED: no script reads such a record; it is left. MISSING: an entry
--   in `next_planting` of no schedule, or of a paused one, is deleted.
-- Cost: O(log n) a record.
local now, noun, repair = now_us(ARGV[1]), ARGV[2], ARGV[3] == '1'

local function is_damaged(id, stored)
  if #id ~= 8 or #stored < SCHEDULE_HEAD_SIZE then return true end
  -- The last byte of the head counts the outcomes. Behind them is the definition.
  return #stored <= SCHEDULE_HEAD_SIZE + 3 * string.byte(stored, SCHEDULE_HEAD_SIZE)
end

local judge = {}
function judge.schedules(id, has_next, version, occurrence)
  local stored = redis.call('HGET', schedules, id)
  if not stored then return 'OK' end
  if is_damaged(id, stored) then return 'SCHEDULE_DAMAGED' end
  local schedule = read_schedule(id)
  local is_planned = schedule.flags % 2 == 1 or redis.call('ZSCORE', next_planting, id)
  local has_changed = schedule.version ~= version or schedule.occurrence ~= occurrence
  return (is_planned or has_changed or not has_next) and 'OK' or 'NOT_PLANNED'
end
judge['next_planting'] = function(id)
  local schedule = read_schedule(id)
  if not redis.call('ZSCORE', next_planting, id) then return 'OK' end
  return schedule and schedule.flags % 2 == 0 and 'OK' or 'MISSING'
end

-- Type check, by a command that the other audits send too.
redis.call('HGET', schedules, '')
promotion_at = redis.call('GET', next_promotion)
-- Freeing first (see the prelude).
if repair then redis.call('ZREM', next_planting, '') end
local words = {}
for at = 4, #ARGV, 4 do
  local id = ARGV[at]
  local word = judge[noun](id, ARGV[at + 1] == '1', tonumber(ARGV[at + 2]), tonumber(ARGV[at + 3]))
  if repair and word == 'NOT_PLANNED' then plan({id = id}, now) end
  if repair and word == 'MISSING' then redis.call('ZREM', next_planting, id) end
  words[#words + 1] = word
end
return words
