"""Produce: the side that enqueues, run inside a system's venv: python -m benchmarks.peers.produce SYSTEM STEP

STEP is JSON; the answer is the last line printed, JSON too. An adapter is a module of this package with:

    NAME                          as people know it
    CONFIGURATIONS                name -> what is set, "default" being what one gets without reading further
    CANNOT                        scenario -> why not
    WAITS                         "threads" or "asyncio" -> configuration that serves it
    send(task, number, at_us)     enqueue one job: `task` is a name of `work.TASKS`, `at_us` None for now
    send_many(task, jobs)         enqueue (number, at_us) pairs by the fastest means the system has
    workers(processes, at_once)   the command lines of so many worker processes, with the scheduler if there is one;
                                  `at_once` jobs at once in each, None for the configuration's own number
    prepare()                     optional: what is done before the first worker
    ENVIRONMENT                   optional: variables for the workers

`send` and `send_many` are both functions or both coroutine functions; without `send_many` there is no bulk call.
BENCH_URL, BENCH_LEDGER and BENCH_CONFIGURATION tell where, and how.
"""

import asyncio
import inspect
import json
import random
import sys
import time
from importlib import import_module
from typing import Any

from benchmarks.peers import work


class Producer:
    """One adapter, called the same way whether its functions are coroutine functions or not."""

    def __init__(self, name: str) -> None:
        self.adapter: Any = import_module(f"benchmarks.peers.{name}")
        self._loop: Any = None
        if inspect.iscoroutinefunction(self.adapter.send):
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)

    def describe(self, processes: int, at_once: int | None) -> dict[str, Any]:
        """Return the commands that serve, after what they need was prepared."""
        if hasattr(self.adapter, "prepare"):
            self.adapter.prepare()
        environment = getattr(self.adapter, "ENVIRONMENT", {})
        return {"commands": self.adapter.workers(processes, at_once), "environment": environment}

    def about(self) -> dict[str, Any]:
        """Return what the adapter says of itself."""
        wanted = ("NAME", "CONFIGURATIONS", "CANNOT", "WAITS")
        return {word.lower(): getattr(self.adapter, word) for word in wanted} | {
            "bulk": hasattr(self.adapter, "send_many")
        }

    def send(
        self, task: str, first: int, count: int, many: bool, lead_us: int | None = None, spread_us: int = 0
    ) -> dict[str, Any]:
        """Enqueue `count` jobs, one at a time or in bulk; return the seconds it took.

        With `lead_us` the first is due so much later than now, and the others evenly in `spread_us` after it.
        """
        many = many and hasattr(self.adapter, "send_many")
        due_us = None if lead_us is None else time.time_ns() // 1_000 + lead_us
        jobs = [(first + n, due_us and due_us + spread_us * n // count) for n in range(count)]
        if not many:
            # The first call opens connections and loads scripts: not what is timed.
            (number, at_us), *jobs = jobs
            self._call(self.adapter.send(task, number, at_us))
        began = time.perf_counter()
        if many:
            self._call(self.adapter.send_many(task, jobs))
        elif self._loop:
            self._loop.run_until_complete(self._each(task, jobs))
        else:
            for number, at_us in jobs:
                self.adapter.send(task, number, at_us)
        return {"seconds": time.perf_counter() - began, "timed": len(jobs), "due_us": due_us, "ended": time.time()}

    def trips(self, first: int, count: int) -> dict[str, Any]:
        """Enqueue jobs one by one, each after the one before was run; return when each was enqueued."""
        sent = []
        for number in range(first, first + count):
            sent.append(time.time_ns() // 1_000)
            self._call(self.adapter.send("note", number, None))
            until = time.monotonic() + 30
            while not work.runs(number):
                if time.monotonic() > until:
                    raise SystemExit(f"job {number} never ran")
                time.sleep(0.0005)
            time.sleep(random.uniform(0.02, 0.06))
        return {"sent_us": sent}

    def task_cost(self, count: int) -> dict[str, Any]:
        """Return the µs of one call of the no-op task itself."""
        work.noop(0, *work.PAYLOAD)
        began = time.thread_time_ns()
        for number in range(count):
            work.noop(number, *work.PAYLOAD)
        return {"us": (time.thread_time_ns() - began) / 1_000 / count}

    async def _each(self, task: str, jobs: list[tuple[int, int | None]]) -> None:
        for number, at_us in jobs:
            await self.adapter.send(task, number, at_us)

    def _call(self, answer: Any) -> Any:
        return self._loop.run_until_complete(answer) if self._loop else answer


if __name__ == "__main__":
    step = json.loads(sys.argv[2])
    print(json.dumps(getattr(Producer(sys.argv[1]), step.pop("do"))(**step)))
