-- Declare_schedules: the recurring schedules that the code of a process declares are stored, and those of an earlier
--   declaration that it does not declare are deleted. Only if nobody has declared since the caller looked: the caller
--   decides that its code is to win. Safe to repeat.
-- KEYS: declared_by, schedules, next_planting, jobs, next_promotion, notify_dispatcher, shards.
-- ARGV: now, number of the layout ('' = it does not matter), the first 32 bytes of `declared_by` that the caller read
--   ('' = there was none), those that it gets, ids (8 bytes each) of schedules that stay as they are, then per schedule:
--   its id, what becomes of a job while another one runs, after how many failures in a row it pauses (0 = never), its
--   definition.
-- Returns: the ids of waiting jobs that the caller cancels, or 0 = another process has declared since.
-- Errors: LAYOUT <text>: the shard knows another layout.
-- Cost: O(log n) a schedule.
local now, is_refused, expected, head, kept = now_us(ARGV[1]), other_layout(ARGV[2]), ARGV[3], ARGV[4], ARGV[5]
if is_refused then return is_refused end

local HEAD_SIZE, ID_SIZE = 32, 8

-- Type checks (see the prelude).
check_schedules(); check_hashes(jobs)
local before = redis.call('GET', declared_by) or ''
if string.sub(before, 1, HEAD_SIZE) ~= expected then return 0 end
promotion_at = redis.call('GET', next_promotion)
local to_cancel, is_declared_now, ids = {}, {}, {kept}
local function add(id)
  if id ~= '' and id ~= 0 then to_cancel[#to_cancel + 1] = id end
end
for at = 1, #kept, ID_SIZE do is_declared_now[string.sub(kept, at, at + ID_SIZE - 1)] = true end
for at = 6, #ARGV, 4 do
  local id = ARGV[at]
  ids[#ids + 1], is_declared_now[id] = id, true
  add(set_schedule(now, id, 1, tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3]))
end
for at = HEAD_SIZE + 1, #before, ID_SIZE do
  local id = string.sub(before, at, at + ID_SIZE - 1)
  if not is_declared_now[id] and is_declared(read_schedule(id)) then add(delete_schedule(id)) end
end
redis.call('SET', declared_by, head .. table.concat(ids))
return to_cancel
