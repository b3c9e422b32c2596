-- Due_histogram: how many jobs become due within each of several spans. Reads only.
-- KEYS: queues; then `scheduled` of each queue.
-- ARGV: now, then the edges of the spans (µs), ascending.
-- Returns: the number of jobs of each span; a span includes its first edge and excludes its last.
-- Cost: O(log n) a queue and span.
local now = now_us(ARGV[1])

local edges, counts = #ARGV - 1, {}
for span = 1, edges - 1 do counts[span] = 0 end
for number = FIXED + 1, #KEYS do
  -- Most queues have few jobs ahead. If all of them are outside the spans, one call is enough.
  if redis.call('ZCOUNT', KEYS[number], ARGV[2], '(' .. ARGV[edges + 1]) > 0 then
    for span = 1, edges - 1 do
      counts[span] = counts[span] + redis.call('ZCOUNT', KEYS[number], ARGV[span + 1], '(' .. ARGV[span + 2])
    end
  end
end
return counts
