-- Due_histogram: how many jobs become due within each of some spans. Reads only.
-- KEYS: queues; then the schedule of each queue.
-- ARGV: now, then the spans' edges (µs), ascending.
-- Returns: per span its number of jobs; a span begins with its first edge and ends before the next.
-- Cost: O(log n) a queue and span.
local now = now_us(ARGV[1])

local edges, counts = #ARGV - 1, {}
for span = 1, edges - 1 do counts[span] = 0 end
for number = FIXED + 1, #KEYS do
  -- Most queues have little ahead: what lies beyond the last edge, or before the first, is not asked for span by span.
  if redis.call('ZCOUNT', KEYS[number], ARGV[2], '(' .. ARGV[edges + 1]) > 0 then
    for span = 1, edges - 1 do
      counts[span] = counts[span] + redis.call('ZCOUNT', KEYS[number], ARGV[span + 1], '(' .. ARGV[span + 2])
    end
  end
end
return counts
