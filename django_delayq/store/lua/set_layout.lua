-- Set_layout: the shard knows the layout of its caller from now on, unless it knows a later one. Safe to repeat.
-- KEYS: shards.
-- ARGV: now, number of the layout, its text (see job/layout.py).
-- Returns: the text of the layout that the shard knows now.
-- Cost: O(1).
local now, number, text = now_us(ARGV[1]), tonumber(ARGV[2]), ARGV[3]

local stored = redis.call('GET', shards) or ''
if (tonumber(layout_number(stored)) or 0) >= number then return stored end
redis.call('SET', shards, text)
return text
