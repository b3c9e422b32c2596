"""Memory of a waiting job, and the cost of one enqueue, as the schedule grows: python -m benchmarks.waiting [jobs ...]

The body is 100 bytes. Enqueues are timed in turns at each size against those of an almost empty schedule on a second
server, so that the machine's noise meets both.
"""

import random
import statistics
import sys
import time
from typing import Any

from benchmarks.site import site
from django_delayq.private_redis import PrivateRedis

CHUNK, ROUNDS = 20_000, 5


def main() -> None:
    """Measure and print."""
    sizes = [int(size) for size in sys.argv[1:]] or [1_000, 100_000, 1_000_000]
    with site() as place, PrivateRedis() as other:
        from benchmarks import tasks
        from django_delayq.conf import get_config, read_config
        from django_delayq.store.store import Store

        small_config, _ = read_config({"REDIS": other.url})
        assert small_config is not None
        large, small = Store(get_config()), Store(small_config)
        _fill(small, tasks.noop, 1_000)
        empty, waiting = place.client.info("memory")["used_memory"], 0
        for size in sizes:
            _fill(large, tasks.noop, size - waiting)
            waiting = size
            used = (place.client.info("memory")["used_memory"] - empty) / size
            body = place.client.hstrlen("delayq:{0}:bodies", _some_id(place.client))
            rounds = [_round(large, small, tasks.noop) for _ in range(ROUNDS)]
            ratio = statistics.median(at_large / at_small for at_large, at_small in rounds)
            cost = statistics.median(at_large for at_large, _ in rounds)
            print(
                f"{size:>10,} waiting: {used:.0f} bytes each (body {body}), one enqueue "
                f"{1e6 * cost:.0f} µs, {ratio:.2f} x that with 1,000 waiting"
            )


def _drafts(task: Any, number: int) -> list[Any]:
    jobs = (task.using(delay=3600 + random.random() * 86_400).job("x" * 60) for _ in range(number))
    return [job.draft for job in jobs]


def _fill(store: Any, task: Any, number: int) -> None:
    intake = store.intake(0)
    while number > 0:
        drafts = _drafts(task, min(CHUNK, number))
        for at in range(0, len(drafts), 500):
            intake.enqueue(drafts[at : at + 500])
        number -= len(drafts)


def _enqueue(store: Any, task: Any) -> float:
    drafts, intake = _drafts(task, 1), store.intake(0)
    started = time.perf_counter()
    intake.enqueue(drafts)
    return time.perf_counter() - started


def _round(large: Any, small: Any, task: Any) -> tuple[float, float]:
    """Enqueue in turns on both servers; return the median seconds of each."""
    pairs = [(_enqueue(large, task), _enqueue(small, task)) for _ in range(200)]
    return statistics.median(at for at, _ in pairs), statistics.median(at for _, at in pairs)


def _some_id(client: Any) -> bytes:
    member: bytes = client.zrange("delayq:{0}:schedule:default", 0, 0)[0]
    return member[:12]


if __name__ == "__main__":
    main()
