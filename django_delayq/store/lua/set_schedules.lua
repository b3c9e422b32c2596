-- Set_schedules: recurring schedules are stored, or replaced if they differ from what is stored. A paused schedule stays
--   paused. Nothing is changed if one of them is declared in code. Safe to repeat.
-- KEYS: schedules, next_planting, jobs, next_promotion, notify_dispatcher, shards.
-- ARGV: now, number of the layout ('' = it does not matter), 1 = they belong to another shard by now, so that only those
--   that exist are replaced, then per schedule (1 to 250): its id, what becomes of a job while another one runs, after how
--   many failures in a row it pauses (0 = never), its definition.
-- Returns: per schedule the id of the waiting job that the caller cancels ('' = there is none), or 0 = it does not exist
--   here, and belongs to another shard; or a number = which of them is declared in code.
-- Errors: LAYOUT <text>: the shard knows another layout.
-- Replicas: a producer's call waits for those of WAIT_REPLICAS.
-- Cost: O(log n) a schedule.
local now, is_refused, only_existing = now_us(ARGV[1]), other_layout(ARGV[2]), ARGV[3] == '1'
if is_refused then return is_refused end

-- Type checks (see the prelude).
check_schedules(); check_hashes(jobs)
for at = 4, #ARGV, 4 do
  if is_declared(read_schedule(ARGV[at])) then return at / 4 end
end
promotion_at = redis.call('GET', next_promotion)
local to_cancel = {}
for at = 4, #ARGV, 4 do
  to_cancel[#to_cancel + 1] = only_existing and not read_schedule(ARGV[at]) and 0
    or set_schedule(now, ARGV[at], 0, tonumber(ARGV[at + 1]), tonumber(ARGV[at + 2]), ARGV[at + 3])
end
return to_cancel
