-- Page: rows of one place from a cursor on, by rank. Reads only.
-- KEYS: the named ones: `place` is a schedule, a ready, leases or dead_letters; `contents` its bodies or dead_bodies.
-- ARGV: now, cursor's score ('' = from the start; for before: from the end), cursor's member ('' = none), rows (≤ 250),
--   1 = the rows before the cursor, bytes of a body to return.
-- Returns: rank of the first row, rows in the place, then per row: member, score, contents, attempts record.
--   Contents are cut behind their records, so a cut body still tells its queue and task.
-- Cost: O(log n + rows).
local place, contents, attempts, dead_letters = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local now, score, member, count, before, preview = now_us(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4]), ARGV[5] == '1', tonumber(ARGV[6])

local total = redis.call('ZCARD', place)
local start = before and total or 0
if score ~= '' then
  local found = member ~= '' and redis.call('ZSCORE', place, member)
  if found and tonumber(found) == tonumber(score) then
    start = redis.call('ZRANK', place, member) + (before and 0 or 1)
  else
    start = redis.call('ZCOUNT', place, '-inf', '(' .. score)
  end
end
local stop = start + count - 1
if before then start, stop = math.max(0, start - count), start - 1 end
local reply, rows = {start, total}, {}
if stop >= start then rows = redis.call('ZRANGE', place, start, stop, 'WITHSCORES') end
for i = 1, #rows, 2 do
  local id = string.sub(rows[i], 1, 12)
  local stored, cut = redis.call('HGET', contents, id), preview
  if stored and place == dead_letters and #stored > 22 then
    local record_size, extra_size = struct.unpack('>I4I4', stored)
    cut = cut + 22 + record_size + extra_size
  end
  local last = #reply
  reply[last + 1], reply[last + 2], reply[last + 3] = rows[i], rows[i + 1], stored and string.sub(stored, 1, cut)
  reply[last + 4] = redis.call('HGET', attempts, id)
end
return reply
