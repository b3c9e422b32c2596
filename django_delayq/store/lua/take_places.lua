-- Take_places: dead letters that will be requeued get the next places of an even spread: each the middle of one of as
--   many even parts of its length.
-- KEYS: spreads.
-- ARGV: now, name, length (µs), how many jobs the caller has left, how many places it takes now (0 = it ends), 1 =
--   these are its first.
-- Returns: the due time of each place (µs).
-- Cost: O(1) a place; O(n) for n unfinished spreads, at most 100.
local now, name, length, left = now_us(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local wanted, first = tonumber(ARGV[5]), ARGV[6] == '1'

-- Most spreads that are remembered: the one that ends first is forgotten.
local SPREADS, RECORD = 100, '>I8I8I8I8I8'

local start, count, placed, callers = now, math.max(left, wanted), 0, 1

-- The record is start, length, count, the places taken so far, and the number of callers that have begun and not ended.
-- A call that continues a spread, also of another process and beside others, never exceeds its rate. Places that passed
-- meanwhile are not made up for: the next one is now. A caller that has more jobs left than the spread has places needs
-- a faster one, which begins after the last place that is taken.
local function read_spread(stored)
  local began, stored_length, stored_count, stored_placed, stored_callers = struct.unpack(RECORD, stored)
  if stored_length ~= length or stored_count == 0 then return end
  local taken = stored_placed * length / stored_count
  if began + math.max(length, taken) <= now then return end
  callers = stored_callers + (first and 1 or 0)
  if count > stored_count then
    start = math.max(now, began + math.ceil(taken))
  else
    start, count, placed = math.max(began, now - math.floor(taken)), stored_count, stored_placed
  end
end

local function forget_one()
  local found, first_name, first_end = redis.call('HGETALL', spreads), nil, math.huge
  for i = 1, #found, 2 do
    local began, stored_length = 0, 0
    if #found[i + 1] == 40 then began, stored_length = struct.unpack('>I8I8', found[i + 1]) end
    if began + stored_length < first_end then first_name, first_end = found[i], began + stored_length end
  end
  redis.call('HDEL', spreads, first_name)
end

local stored, dues = redis.call('HGET', spreads, name), {}
-- Freeing first (see the prelude).
redis.call('HDEL', spreads, name)
if stored and #stored ~= 40 then stored = nil end
if wanted == 0 then
  local others = stored and struct.unpack('>I8', stored, 33) - 1 or 0
  if others > 0 then redis.call('HSET', spreads, name, string.sub(stored, 1, 32) .. struct.pack('>I8', others)) end
  return dues
end
if stored then read_spread(stored) end
for place = placed, placed + wanted - 1 do
  dues[#dues + 1] = math.min(start + math.floor((place + 0.5) * length / count), LATEST)
end
if redis.call('HLEN', spreads) >= SPREADS then forget_one() end
redis.call('HSET', spreads, name, struct.pack(RECORD, start, length, count, placed + wanted, callers))
return dues
