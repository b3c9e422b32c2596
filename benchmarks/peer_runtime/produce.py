"""The producer, run in a system's venv: python -m benchmarks.peer_runtime.produce ADAPTER STEP

STEP and the last line of the output are JSON. An adapter is a module of `benchmarks.peers`, or of
`benchmarks.django_jobs.peers` (which says what differs there), with:

    NAME                          the system's usual name
    CONFIGURATIONS                name -> what it sets; "default" sets nothing
    UNSUPPORTED                   scenario -> the reason
    WAIT_CONFIGURATIONS           "threads" or "asyncio" -> the configuration for it
    send(task, number, at_us)     enqueue one job: `task` is a key of `work.TASKS`, `at_us` None means now
    send_many(task, jobs)         enqueue (number, at_us) pairs by the system's fastest way
    workers(processes, concurrency)   the command lines of so many worker processes, with the scheduler if there is one;
                                  `concurrency` jobs at once in each, None for the configuration's own number
    prepare()                     optional: what is done before the first worker
    ENVIRONMENT                   optional: variables for the workers

`send` and `send_many` are both functions or both coroutine functions; a system without a bulk call has no `send_many`.
The environment has BENCH_URL, BENCH_RUN_RECORD and BENCH_CONFIGURATION.
"""

import asyncio
import inspect
import json
import random
import statistics
import sys
import time
from importlib import import_module
from typing import Any

from benchmarks.peer_runtime import work


class Producer:
    """Calls the functions of one adapter, coroutine functions or not."""

    def __init__(self, name: str) -> None:
        self.adapter: Any = import_module(name)
        self._loop: Any = None
        if inspect.iscoroutinefunction(self.adapter.send):
            self._loop = asyncio.new_event_loop()
            asyncio.set_event_loop(self._loop)

    def prepare(self) -> None:
        """Prepare the system."""
        if hasattr(self.adapter, "prepare"):
            self.adapter.prepare()

    def worker_commands(self, processes: int, concurrency: int | None) -> dict[str, Any]:
        """Prepare the system. Returns the commands of its workers."""
        self.prepare()
        environment = getattr(self.adapter, "ENVIRONMENT", {})
        return {"commands": self.adapter.workers(processes, concurrency), "environment": environment}

    def describe(self) -> dict[str, Any]:
        """Return the description in the adapter."""
        names = ("NAME", "CONFIGURATIONS", "UNSUPPORTED", "WAIT_CONFIGURATIONS")
        return {name.lower(): getattr(self.adapter, name) for name in names} | {
            "bulk": hasattr(self.adapter, "send_many")
        }

    def send(
        self, task: str, first: int, count: int, many: bool, lead_us: int | None = None, spread_us: int = 0
    ) -> dict[str, Any]:
        """Enqueue `count` jobs, one at a time or in bulk. Returns the seconds it took.

        With `lead_us` the first is due so many µs from now, and the others are spread evenly over `spread_us` after it.
        """
        many = many and hasattr(self.adapter, "send_many")
        due_us = None if lead_us is None else time.time_ns() // 1_000 + lead_us
        jobs = [(first + n, due_us and due_us + spread_us * n // count) for n in range(count)]
        if not many:
            # The first call is not timed, because it opens connections and loads scripts.
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
        """Enqueue jobs one by one, each after the run of the previous one. Returns the times of enqueueing."""
        sent = []
        for number in range(first, first + count):
            sent.append(time.time_ns() // 1_000)
            self._call(self.adapter.send("record_start", number, None))
            deadline = time.monotonic() + 30
            while not work.runs(number):
                if time.monotonic() > deadline:
                    raise SystemExit(f"job {number} never ran")
                time.sleep(0.0005)
            time.sleep(random.uniform(0.02, 0.06))
        return {"sent_us": sent}

    def requests(self, first: int, count: int) -> dict[str, Any]:
        """Handle requests that write a row and enqueue a job at the commit, each after one that enqueues nothing.

        Returns how many were handled a second, and the µs that the enqueue adds to the median.
        """
        # Not at the top: its models need Django, which most adapters do not.
        from benchmarks.django_jobs.orm_work import handle_request

        seconds: dict[bool, list[float]] = {True: [], False: []}
        for number in range(first, first + count):
            for enqueues in (False, True):
                began = time.perf_counter()
                handle_request(number, self.adapter.enqueue_in_view if enqueues else id)
                seconds[enqueues].append(time.perf_counter() - began)
        # The first request opens the connections.
        with_job, without = seconds[True][1:], seconds[False][1:]
        added_us = 1e6 * (statistics.median(with_job) - statistics.median(without))
        return {"rate": len(with_job) / sum(with_job), "enqueue_us": added_us}

    def task_cost(self, count: int) -> dict[str, Any]:
        """Return the µs of one call of the no-op task function."""
        work.noop(0, *work.PAYLOAD)
        began = time.thread_time_ns()
        for number in range(count):
            work.noop(number, *work.PAYLOAD)
        return {"us": (time.thread_time_ns() - began) / 1_000 / count}

    async def _each(self, task: str, jobs: list[tuple[int, int | None]]) -> None:
        for number, at_us in jobs:
            await self.adapter.send(task, number, at_us)

    def _call(self, result: Any) -> Any:
        return self._loop.run_until_complete(result) if self._loop else result


if __name__ == "__main__":
    step = json.loads(sys.argv[2])
    print(json.dumps(getattr(Producer(sys.argv[1]), step.pop("step"))(**step)))
