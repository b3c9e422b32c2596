"""Storm: real workers, dispatchers, producers and a Redis of their own, among faults drawn from a seed; then the judge.

A plan says how many jobs, which faults, how many or how long. At the end faults stop, everything drains, and nothing
may be left over.
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
from tests.chaos.case import Case
from tests.chaos.checker import check
from tests.chaos.faults import FAULTS, FaultContext
from tests.chaos.producers import Producer
from tests.chaos.proxy import Proxy
from tests.chaos.report import Report, left_over, longest_pause, read_dead, read_runs
from tests.chaos.supervisor import Supervisor
from tests.subprocesses import Processes

LEASE = 2.0
PRODUCERS = 2
#: Jobs accepted and not finished, at most: faults are to meet work under way, not a mountain of it.
BACKLOG = 600
#: Seconds without anything happening after which a storm is given up.
PATIENCE = 90.0
#: Seconds in which all must have ended, once faults are over and all is accepted.
LONGEST = 300.0
#: A Redis that loses nothing it has answered, and keeps its file short: a busy machine takes long to load a long one.
DURABLE = {"appendonly": "yes", "appendfsync": "always", "auto-aof-rewrite-min-size": "2mb"}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a storm is to be."""

    name: str
    jobs: int
    #: Name of a fault -> its weight among the others.
    faults: Mapping[str, float]
    #: So many faults, or so many seconds of them, and then at least so many: some last for several seconds.
    count: int = 0
    seconds: float = 0.0
    least: int = 0
    #: Seconds between two faults, on average.
    pause: float = 1.0
    workers: int = 3
    dispatchers: int = 2
    #: Share of jobs that end the process that runs them.
    poison: float = 0.0
    #: Whether processes reach Redis through a network that can fail.
    network: bool = False
    redis: Mapping[str, str] = field(default_factory=dict)


class FaultRun:
    """One storm, from `run` to its report."""

    def __init__(self, plan: Plan, *, seed: int, processes: Processes, server_program: Path) -> None:
        self.plan, self.seed = plan, seed
        self._processes, self._program = processes, server_program
        self._chance = random.Random(seed)
        self._done: set[str] = set()
        self._read = 0
        self._moved_at = time.monotonic()
        self._faults: Counter[str] = Counter()
        #: Name, begin and end of each fault.
        self._log: list[tuple[str, float, float]] = []

    def run(self) -> Report:
        """Let it blow, then let everything drain, then hear the judge."""
        with ExitStack() as stack:
            self._server = stack.enter_context(LocalRedisServer(server=self._program, options=self.plan.redis))
            proxy = stack.enter_context(Proxy(self._server.url)) if self.plan.network else None
            self._processes.configure(REDIS=proxy.url if proxy else self._server.url, LEASE=LEASE)
            self._began = time.monotonic()
            self._crew = Supervisor(self._processes, workers=self.plan.workers, dispatchers=self.plan.dispatchers)
            self._crew.poisoned = self.plan.poison > 0
            self._ground = FaultContext(
                server=self._server,
                crew=self._crew,
                proxy=proxy,
                chance=self._chance,
                lease=LEASE,
                rest=self._rest,
            )
            self._producers = [self._producer(number) for number in range(PRODUCERS)]
            for producer in self._producers:
                producer.start()
            try:
                self._blow()
                self._drain()
            finally:
                for producer in self._producers:
                    producer.give_up()
            self._crew.finish()
            return self._report()

    # Blowing

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
        # Spread over the faults, and a little ahead of them; all of it once they are over.
        ahead = accepted * PRODUCERS < self.plan.jobs * (self._progress + 0.05)
        return ahead and self._accepted - self._over < BACKLOG

    @property
    def _accepted(self) -> int:
        return sum(len(producer.promises) for producer in self._producers)

    @property
    def _over(self) -> int:
        """Jobs that have ended, or need not run to an end."""
        return len(self._done) + sum(producer.unfinished for producer in self._producers)

    def _blow(self) -> None:
        # The first jobs run before the first fault: a storm on an empty sea shows nothing.
        self._wait(lambda: len(self._done) > 0, what="the first job to end")
        while self._progress < 1.0 or self._faults.total() < self.plan.least:
            self._rest(self._chance.uniform(0, 2 * self.plan.pause))
            if self.plan.count:
                goal = self.plan.jobs * (self._progress - 0.1)
                self._wait(lambda goal=goal: self._over >= goal * 0.8, what="jobs to keep up with the faults")
            # Each kind once before any comes again: a short storm meets many, a long one all.
            names = [name for name in self.plan.faults if not self._faults[name]] or list(self.plan.faults)
            [name] = self._chance.choices(names, [self.plan.faults[name] for name in names])
            begin = time.time()
            FAULTS[name](self._ground)
            self._faults[name] += 1
            self._log.append((name, begin, time.time()))
            with open(self._processes.folder / "faults", "a") as told:
                print(*self._log[-1], file=told)

    def _rest(self, seconds: float) -> None:
        """Let time pass, with the crew tended and the ledger read."""
        over = time.monotonic() + seconds
        while True:
            self._look()
            left = over - time.monotonic()
            if left <= 0:
                return
            threading.Event().wait(min(0.02, left))

    def _look(self) -> None:
        self._crew.tend()
        events = self._processes.events(start=self._read)
        if events:
            self._moved_at = time.monotonic()
            self._read += len(events)
        for event in events:
            if event["word"] == "end" and not event["failed"]:
                self._done.add(event["id"])
        for producer in self._producers:
            if producer.failure is not None:
                raise producer.failure

    def _wait(self, seen: Callable[[], Any], *, what: str) -> None:
        self._moved_at = began = time.monotonic()
        while not seen():
            self._rest(0.05)
            if time.monotonic() - self._moved_at > PATIENCE or time.monotonic() - began > LONGEST:
                raise AssertionError(f"waited in vain for {what}; so far:\n{self._report().told}")

    # Draining

    def _drain(self) -> None:
        if self.plan.seconds:
            # What a loaded machine did not get to in its time is not caught up on.
            for producer in self._producers:
                producer.give_up()
        self._wait(lambda: not any(producer.is_alive() for producer in self._producers), what="the producers to end")
        with self._server.client(protocol=2) as client:
            self._wait(lambda: not client.hlen(self._processes.keys("jobs")), what="all jobs to end")

    # Judging

    def _report(self) -> Report:
        promises = [promise for producer in self._producers for promise in producer.promises.values()]
        doubtful = {job_id for producer in self._producers for job_id in producer.doubtful}
        runs = read_runs(self._processes.events())
        with self._server.client(protocol=2) as client:
            dead, left = read_dead(client, self._processes.keys), left_over(client, self._processes.keys)
        verdict = check(
            Case(
                promises=promises,
                runs=runs,
                dead=dead,
                deaths=self._crew.deaths,
                troubles=self._ground.troubles,
                cuts=self._ground.cuts,
                doubtful=doubtful,
                lease=LEASE,
            )
        )
        resume = longest_pause(self._log, [run.start for run in runs])
        verdict.left += [*self._crew.complaints, *left]
        return Report(
            name=self.plan.name,
            seed=self.seed,
            verdict=verdict,
            kills=self._crew.kills,
            restarts=self._crew.restarts,
            faults=self._faults,
            refused=sum(producer.refused for producer in self._producers),
            log=self._log,
            resume=resume,
            seconds=time.monotonic() - self._began,
        )
