-- Layout: whether a caller knows the layout of the shards, and what is left of an older one here. A part of the prelude.
--
-- `lingering` has the routing values that belong to another shard by now and have something here: a job that has not ended,
-- a slot, or a limit that is not open yet. A count that finds nothing of a value removes it. It does not come back: a caller
-- that stores something of the value asks this shard first, and is sent on. A caller makes the count in batches:
--   '': number of the last count that began (8), of the last one that ended (8), and of the layout that was known when that
--     one began (8);
--   routing value: number of the count that found it, or during which something was stored for it;
--   '\0' and the digest of a throttled key: the end (µs) of its window. A first count finds those that are open, since
--     their jobs may have ended, and nothing says to which shard they belong.
-- Before a count for its layout has ended, every value counts as lingering.

-- The number in the text of a layout, as text; '' = the shard knows none, or it was edited manually.
local function layout_number(text)
  return string.match(text, '^(%d+) %d') or (string.find(text, '^%d+$') and '1' or '')
end

-- The error for a caller that knows another layout than the shard; nothing for others, and for '', which needs no layout.
local function other_layout(number)
  if number == '' then return end
  local stored = redis.call('GET', shards) or ''
  if layout_number(stored) ~= number then return redis.error_reply('LAYOUT ' .. stored) end
end

-- Number of the last count that began, of the last one that ended, and of the layout of that one.
local function read_count()
  local stored = redis.call('HGET', lingering, '')
  if not stored or #stored ~= 24 then return 0, 0, 0 end
  return struct.unpack('>I8I8I8', stored)
end

-- Whether a value that belongs elsewhere has something here. `left` = the number of the layout since which it belongs
-- elsewhere (8), and the value.
local function lingers(left)
  local _, ended, layout = read_count()
  if layout < struct.unpack('>I8', left) then return true end
  return (tonumber(redis.call('HGET', lingering, string.sub(left, 9)) or '') or 0) >= ended
end

-- Something is stored for a value that lingers. A count that has begun may be past the place where it is stored.
local function keep_lingering(left)
  local begun = read_count()
  if begun > 0 then redis.call('HSET', lingering, string.sub(left, 9), begun) end
end
