-- Read_bodies: the bodies of jobs, or dead letters, that a call will change. Reads only.
-- KEYS: jobs, dead_bodies.
-- ARGV: now, 1 = dead letters, bytes after which the reply ends early, then ids (1 to 250).
-- Returns: per job its body or dead letter, nil without one. The reply may end early; it always has the first job.
-- Cost: O(1) a job.
local now, is_dead, budget = now_us(ARGV[1]), ARGV[2] == '1', tonumber(ARGV[3])

local replies, spent = {}, 0
for i = 4, #ARGV do
  local stored = redis.call('HGET', is_dead and dead_bodies or jobs, ARGV[i])
  spent = spent + (stored and #stored or 0)
  if spent > budget and #replies > 0 then return replies end
  replies[#replies + 1] = stored
end
return replies
