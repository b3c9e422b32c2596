-- Count_lingering: a step of a count of the routing values that have something here although they belong to another shard.
--   Its caller begins it, reads the jobs in batches and adds what it finds, and ends it: values that it did not find are
--   free from then on. See _layout.lua.
-- KEYS: lingering, shards.
-- ARGV: now, and: 'begin', number of the layout that the caller knows; or 'add', number of the count, and pairs of a field
--   and its value, which is '' for the number of the count; or 'end', number of the count, number of the layout with which
--   it began; or 'forget', number of the count, fields.
-- Returns: begin: number of the count. Other steps: 1 = done, 0 = another count has begun since.
-- Errors: LAYOUT <text>: the shard knows another layout than the caller that begins.
-- Replicas: a producer's call waits for those of WAIT_REPLICAS.
-- Cost: O(1) a field.
local now, step, number = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3])

-- Bytes of the field of a window.
local WINDOW_SIZE = 17

local function store_count(begun, ended, layout)
  redis.call('HSET', lingering, '', struct.pack('>I8I8I8', begun, ended, layout))
end

local is_refused = step == 'begin' and other_layout(ARGV[3])
if is_refused then return is_refused end
local begun, ended, layout = read_count()
if step == 'begin' then
  store_count(begun + 1, ended, layout)
  return begun + 1
end
if number ~= begun then return 0 end
if step == 'end' then store_count(begun, begun, tonumber(ARGV[4])) end
if step == 'add' then
  for at = 4, #ARGV, 2 do redis.call('HSET', lingering, ARGV[at], ARGV[at + 1] == '' and begun or ARGV[at + 1]) end
end
for at = 4, step == 'forget' and #ARGV or 0 do
  local found = tonumber(redis.call('HGET', lingering, ARGV[at]) or '')
  if ARGV[at] ~= '' and found and found < (#ARGV[at] == WINDOW_SIZE and now or ended) then
    redis.call('HDEL', lingering, ARGV[at])
  end
end
return 1
