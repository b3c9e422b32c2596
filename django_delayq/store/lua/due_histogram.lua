-- Due_histogram: how many jobs of each queue become due within each of several spans. Reads only.
-- KEYS: queues; then `scheduled` of each queue.
-- ARGV: now, then the edges of the spans (µs), ascending.
-- Returns: per queue that has such jobs: its number among the queues of KEYS, and the number of jobs of each span, joined by
--   spaces. A span includes its first edge and excludes its last.
-- Cost: O(log n) a queue, and O(log n) a span of each queue that has such jobs.
local now = now_us(ARGV[1])

local last, reply = #ARGV, {}
for number = FIXED + 1, #KEYS do
  -- Most queues have few jobs ahead. If all of them are outside the spans, one call is enough.
  if redis.call('ZCOUNT', KEYS[number], ARGV[2], '(' .. ARGV[last]) > 0 then
    local counts = {}
    for span = 2, last - 1 do
      counts[#counts + 1] = redis.call('ZCOUNT', KEYS[number], ARGV[span], '(' .. ARGV[span + 1])
    end
    reply[#reply + 1], reply[#reply + 2] = number - FIXED, table.concat(counts, ' ')
  end
end
return reply
