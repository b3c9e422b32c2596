"""Turned dispatchers: processes that promote and plant by a turned clock, and are killed at any moment."""

import multiprocessing
import random
import select
from multiprocessing.context import ForkProcess
from pathlib import Path
from time import monotonic

from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.store.promotion import Promotion
from tests.chaos.schedules.turned_clock import TurnedClock
from tests.shard_apis import ShardApis

#: Seconds between two looks at the clock, and between two promotions: a killed one may have taken a notification.
_POLL, _SWEEP = 0.001, 0.1
# Forked, because a new interpreter takes a second of CPU time, and there are thousands of kills.
_FORK = multiprocessing.get_context("fork")


class TurnedDispatchers:
    """Some dispatchers of one shard."""

    def __init__(self, url: str, clock: Path, *, count: int, random: random.Random) -> None:
        self._url, self._clock, self._count, self._random = url, clock, count, random
        self._running: list[ForkProcess] = []
        #: How many were killed.
        self.kills = 0

    def start(self) -> None:
        """Start those that do not run."""
        while len(self._running) < self._count:
            process = _FORK.Process(target=_dispatch, args=(self._url, self._clock), daemon=True)
            process.start()
            self._running.append(process)

    def kill_one(self) -> None:
        """Kill one, wherever it is, and start another."""
        self._kill(self._random.randrange(len(self._running)))
        self.start()

    def kill_all(self) -> None:
        """Kill all of them."""
        while self._running:
            self._kill(0)

    def _kill(self, number: int) -> None:
        process = self._running.pop(number)
        process.kill()
        process.join()
        assert process.exitcode == -9, "the dispatcher has ended by itself"
        self.kills += 1


def _dispatch(url: str, path: Path) -> None:
    clock = TurnedClock(path)
    apis = ShardApis(url, clock=clock)
    dispatcher = Dispatcher(apis.shard, Promotion(apis.shard))
    while True:
        began, began_us = monotonic(), clock.now_us
        if dispatcher.promote().sleep_us == 0:
            continue
        listener = dispatcher.listen()
        while clock.now_us == began_us and monotonic() < began + _SWEEP:
            if select.select([listener], [], [], _POLL)[0]:
                dispatcher.on_wakeup()
                break
