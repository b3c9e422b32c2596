"""No-op jobs a second by one worker process, beside a bare one-by-one loop: python -m benchmarks.drain

The loop is what a minimal reliable queue does a job: move it to a list of its own, read it, remove it; three round
trips. Runs are interleaved; the median and the ratio count.
"""

import json
import statistics
import subprocess
import sys
import time

from benchmarks.site import Site, site, wait_until

JOBS, LOOP_JOBS, ROUNDS = 20_000, 5_000, 3


def main() -> None:
    """Measure and print."""
    ours, loop = [], []
    with site() as place:
        for _ in range(ROUNDS):
            loop.append(_loop(place))
            ours.append(_ours(place))
    ratio = statistics.median(ours) / statistics.median(loop)
    print(f"ours: {_spread(ours)} jobs a second, every promise kept")
    print(f"bare one-by-one loop: {_spread(loop)} jobs a second")
    print(f"ratio: {ratio:.2f}")


def _ours(place: Site) -> float:
    from benchmarks import tasks

    tasks.noop.enqueue_many([(number, "text", {"a": 1}) for number in range(JOBS)])
    before = place.client.hlen("delayq:{0}:bodies")
    assert before == JOBS, before
    worker = subprocess.Popen([sys.executable, "-u", "-m", "django", "run_worker"], stdout=subprocess.PIPE)
    assert worker.stdout is not None
    # From the moment it serves, not from the start of the interpreter.
    worker.stdout.readline()
    started = time.perf_counter()
    wait_until(lambda: place.client.hlen("delayq:{0}:bodies") == 0, seconds=120)
    rate = JOBS / (time.perf_counter() - started)
    worker.terminate()
    worker.wait()
    return rate


def _loop(place: Site) -> float:
    client = place.client
    body = json.dumps({"task": "noop", "args": [1, "text", {"a": 1}]})
    pipeline = client.pipeline(transaction=False)
    for number in range(LOOP_JOBS):
        pipeline.hset("loop:bodies", number, body)
        pipeline.rpush("loop:ready", number)
    pipeline.execute()
    started = time.perf_counter()
    while number := client.lmove("loop:ready", "loop:running", "LEFT", "RIGHT"):
        json.loads(client.hget("loop:bodies", number))
        client.lrem("loop:running", 1, number)
    rate = LOOP_JOBS / (time.perf_counter() - started)
    client.delete("loop:bodies")
    return rate


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


if __name__ == "__main__":
    main()
