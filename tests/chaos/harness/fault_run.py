"""Fault run: real workers, dispatchers, producers and a Redis of their own, under faults that are drawn from a seed.

A plan says how many jobs, which faults, and how many of them or for how long. At the end the faults stop, all jobs
finish, the checker reads the records, and nothing may be left over.
"""

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django_delayq.testing.local_redis import LocalRedisServer
from tests.chaos.harness.case import Case
from tests.chaos.harness.checker import check
from tests.chaos.harness.faults import FAULTS, FaultContext
from tests.chaos.harness.producers import Producer
from tests.chaos.harness.report import Report, left_over, longest_pause, read_dead, read_runs
from tests.chaos.harness.supervisor import Supervisor
from tests.chaos.network.proxy import Proxy
from tests.subprocesses import Processes

LEASE = 2.0
PRODUCERS = 2
#: The most jobs that are accepted and not finished. Faults shall meet running work, not a large backlog.
BACKLOG = 600
#: Seconds without progress after which a fault run fails.
PATIENCE = 90.0
#: The most seconds until all jobs have ended, after the faults are over and all jobs are accepted.
LONGEST = 300.0
#: Redis that loses no acknowledged write and keeps its file short, because a busy machine loads a long file slowly.
DURABLE = {"appendonly": "yes", "appendfsync": "always", "auto-aof-rewrite-min-size": "2mb"}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The parameters of one fault run."""

    name: str
    jobs: int
    #: Name of a fault -> its weight.
    faults: Mapping[str, float]
    #: The number of faults, or their total seconds and then a least number: some faults last for several seconds.
    count: int = 0
    seconds: float = 0.0
    least: int = 0
    #: Mean seconds between two faults.
    pause: float = 1.0
    workers: int = 3
    dispatchers: int = 2
    #: Share of jobs that end their process.
    poison: float = 0.0
    #: Whether processes reach Redis through a proxy that can fail.
    network: bool = False
    redis: Mapping[str, str] = field(default_factory=dict)


class FaultRun:
    """One fault run, from `run` to its report."""

    def __init__(self, plan: Plan, *, seed: int, processes: Processes, server_program: Path) -> None:
        self.plan, self.seed = plan, seed
        self._processes, self._program = processes, server_program
        self._rng = random.Random(seed)
        self._done: set[str] = set()
        self._events_read = 0
        self._progress_at = time.monotonic()
        self._faults: Counter[str] = Counter()
        #: Name, start and end of each fault.
        self._log: list[tuple[str, float, float]] = []

    def run(self) -> Report:
        """Inject the faults, wait until all jobs have ended, and return the checked report."""
        with ExitStack() as stack:
            self._server = stack.enter_context(LocalRedisServer(server=self._program, options=self.plan.redis))
            proxy = stack.enter_context(Proxy(self._server.url)) if self.plan.network else None
            self._processes.configure(REDIS=proxy.url if proxy else self._server.url, LEASE=LEASE)
            self._began = time.monotonic()
            self._supervisor = Supervisor(self._processes, workers=self.plan.workers, dispatchers=self.plan.dispatchers)
            self._supervisor.expects_crashes = self.plan.poison > 0
            self._context = FaultContext(
                server=self._server,
                supervisor=self._supervisor,
                proxy=proxy,
                rng=self._rng,
                lease=LEASE,
                pause=self._pause,
            )
            self._producers = [self._producer(number) for number in range(PRODUCERS)]
            for producer in self._producers:
                producer.start()
            try:
                self._inject_faults()
                self._drain()
            finally:
                for producer in self._producers:
                    producer.stop()
            self._supervisor.finish()
            return self._report()

    # Faults

    def _producer(self, number: int) -> Producer:
        share = self.plan.jobs // PRODUCERS
        return Producer(number, seed=self.seed, jobs=share, allowed=self._allowed, poison=self.plan.poison)

    @property
    def _progress(self) -> float:
        """The share of the faults that is over."""
        if self.plan.count:
            return self._faults.total() / self.plan.count
        return min(1.0, (time.monotonic() - self._began) / self.plan.seconds)

    def _allowed(self, accepted: int) -> bool:
        # The jobs are spread over the faults, slightly ahead of them. All are allowed once the faults are over.
        ahead = accepted * PRODUCERS < self.plan.jobs * (self._progress + 0.05)
        return ahead and self._accepted_count - self._ended_count < BACKLOG

    @property
    def _accepted_count(self) -> int:
        return sum(len(producer.accepted_jobs) for producer in self._producers)

    @property
    def _ended_count(self) -> int:
        """The number of jobs that have ended, or that need not finish."""
        return len(self._done) + sum(producer.unfinished for producer in self._producers)

    def _inject_faults(self) -> None:
        # The first jobs run before the first fault: a fault without running jobs proves nothing.
        self._wait_until(lambda: len(self._done) > 0, what="the first job to end")
        while self._progress < 1.0 or self._faults.total() < self.plan.least:
            self._pause(self._rng.uniform(0, 2 * self.plan.pause))
            if self.plan.count:
                goal = self.plan.jobs * (self._progress - 0.1)
                self._wait_until(
                    lambda goal=goal: self._ended_count >= goal * 0.8, what="jobs to keep up with the faults"
                )
            # Each kind comes once before any is repeated, so that a short run has many kinds and a long run has all.
            names = [name for name in self.plan.faults if not self._faults[name]] or list(self.plan.faults)
            [name] = self._rng.choices(names, [self.plan.faults[name] for name in names])
            begin = time.time()
            FAULTS[name](self._context)
            self._faults[name] += 1
            self._log.append((name, begin, time.time()))
            with open(self._processes.folder / "faults", "a") as log:
                print(*self._log[-1], file=log)

    def _pause(self, seconds: float) -> None:
        """Wait, and meanwhile restart ended processes and read the ledger."""
        over = time.monotonic() + seconds
        while True:
            self._poll()
            left = over - time.monotonic()
            if left <= 0:
                return
            threading.Event().wait(min(0.02, left))

    def _poll(self) -> None:
        self._supervisor.restart_ended()
        events = self._processes.events(start=self._events_read)
        if events:
            self._progress_at = time.monotonic()
            self._events_read += len(events)
        for event in events:
            if event["word"] == "end" and not event["failed"]:
                self._done.add(event["id"])
        for producer in self._producers:
            if producer.failure is not None:
                raise producer.failure

    def _wait_until(self, seen: Callable[[], Any], *, what: str) -> None:
        self._progress_at = began = time.monotonic()
        while not seen():
            self._pause(0.05)
            if time.monotonic() - self._progress_at > PATIENCE or time.monotonic() - began > LONGEST:
                raise AssertionError(f"waited in vain for {what}; so far:\n{self._report().failure_text}")

    # The end

    def _drain(self) -> None:
        if self.plan.seconds:
            # Jobs that a loaded machine could not start in time are not made up for.
            for producer in self._producers:
                producer.stop()
        self._wait_until(
            lambda: not any(producer.is_alive() for producer in self._producers), what="the producers to end"
        )
        with self._server.client(protocol=2) as client:
            self._wait_until(lambda: not client.hlen(self._processes.keys("jobs")), what="all jobs to end")

    # The report

    def _report(self) -> Report:
        accepted_jobs = [accepted for producer in self._producers for accepted in producer.accepted_jobs.values()]
        doubtful = {job_id for producer in self._producers for job_id in producer.doubtful}
        runs = read_runs(self._processes.events())
        with self._server.client(protocol=2) as client:
            dead, left = read_dead(client, self._processes.keys), left_over(client, self._processes.keys)
        result = check(
            Case(
                accepted_jobs=accepted_jobs,
                runs=runs,
                dead=dead,
                deaths=self._supervisor.deaths,
                outages=self._context.outages,
                cuts=self._context.cuts,
                doubtful=doubtful,
                lease=LEASE,
            )
        )
        resume = longest_pause(self._log, [run.start for run in runs])
        result.left += [*self._supervisor.errors, *left]
        return Report(
            name=self.plan.name,
            seed=self.seed,
            result=result,
            kills=self._supervisor.kills,
            restarts=self._supervisor.restarts,
            faults=self._faults,
            refused=sum(producer.refused for producer in self._producers),
            log=self._log,
            resume=resume,
            seconds=time.monotonic() - self._began,
        )
