"""Floor: a script and a loop of nothing but redis-py, which show what the machine allows.

One script moves the due time of a key. Another takes what is due and returns the next due time; the loop records the
runs and sleeps until then, 10 ms at most. Nothing is kept if the process ends.
"""

import os
import time
from functools import cache
from typing import Any

from redis import Redis

from benchmarks.debounce import plan

CALL = """
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local first = redis.call('HGET', KEYS[2], ARGV[1]) or string.format('%.0f', now)
redis.call('HSET', KEYS[2], ARGV[1], first)
redis.call('ZADD', KEYS[1], math.min(now + ARGV[2], first + ARGV[3]), ARGV[1])
"""
TAKE_DUE = """
local due = redis.call('ZRANGE', KEYS[1], '-inf', ARGV[1], 'BYSCORE', 'WITHSCORES')
for at = 1, #due, 2 do
    redis.call('ZREM', KEYS[1], due[at])
    redis.call('HDEL', KEYS[2], due[at])
end
return {redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or 0, due}
"""
LOOK = 0.01


@cache
def _script(text: str) -> Any:
    return Redis.from_url(os.environ["BENCH_URL"]).register_script(text)


def call(key: str, rule: plan.Rule) -> None:
    """Call a key."""
    _script(CALL)(keys=["floor:due", "floor:first"], args=[key, int(1e6 * rule.wait), int(1e6 * rule.max_wait)])


def main() -> None:
    """Run what is due, forever."""
    while True:
        next_us, due = _script(TAKE_DUE)(keys=["floor:due", "floor:first"], args=[time.time_ns() // 1_000])
        for key, due_us in zip(due[::2], due[1::2], strict=True):
            plan.record(key.decode(), int(float(due_us)))
        time.sleep(max(0.0, min(float(next_us) / 1e6 - time.time(), LOOK)) if float(next_us) else LOOK)


if __name__ == "__main__":
    main()
