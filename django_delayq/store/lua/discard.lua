-- Discard: dead letters are dropped for good.
-- KEYS: dead_letters, dead_bodies, dead_bytes, error_groups, groups_of_dead, dead_by_group.
-- ARGV: now; then per job (1 to 250): id, time of death that the caller saw (µs).
-- Returns: per job 1 = dropped, 0 = it is not a dead letter of that time.
-- Cost: O(log n) a job.
local now = now_us(ARGV[1])

-- Type checks (see the prelude).
check_dead_letters()
local dropped = {}
for i = 2, #ARGV, 2 do
  local id, died = ARGV[i], tonumber(ARGV[i + 1])
  local score = redis.call('ZSCORE', dead_letters, id)
  dropped[#dropped + 1] = score and tonumber(score) == died and 1 or 0
  if dropped[#dropped] == 1 then remove_dead_letters({id}, redis.call('HSTRLEN', dead_bodies, id)) end
end
return dropped
