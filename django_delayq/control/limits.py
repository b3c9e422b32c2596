"""Limits: take a slot of a limit in a block of code, back off after an overload, and see what a limit is used for."""

import asyncio
import os
from datetime import datetime, timedelta
from time import monotonic, sleep
from types import TracebackType
from typing import Any, TypedDict

from django_delayq.clock import SECOND_US, duration_us, moment
from django_delayq.conf.settings import get_config
from django_delayq.exceptions import LimitClosed, Snooze
from django_delayq.job.ids import shard_of
from django_delayq.job.job import LimitUse
from django_delayq.logs import current_run
from django_delayq.store.digests import routing_of
from django_delayq.store.operations.limits import LONGEST_BACK_OFF_US, LimitOperations, Taken
from django_delayq.store.store import get_store
from django_delayq.task.options.limits import check_limit, read_limit

#: Seconds between two requests for a slot: what is given back in between waits for as long. The later, the rarer.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.01, 0.25
#: Seconds for which a job is put off if nobody knows when a slot is given back.
_SNOOZE = 1.0
#: After this time code outside a job loses its slot, because Redis does not learn that its process was killed.
_LONGEST_HOLD_US = 60 * SECOND_US


class LimitCounts(TypedDict):
    """What a limit, or one value of it, is used for at the moment."""

    #: Jobs that run under it, and blocks of code that have a slot.
    running: int
    #: Jobs that wait for it.
    waiting: int
    #: From when on the next job may begin; None: when one ends.
    opens_at: datetime | None


class Limit:
    """A limit of DELAYQ["LIMITS"], or one value of it; a context manager, also an asynchronous one.

    Inside the block the caller has a slot and is charged for the rate. An instance may be used again, but not twice at
    the same time.
    """

    def __init__(self, use: LimitUse, *, cost: int, block_us: int | None) -> None:
        self._use, self._cost, self._block_us = use, cost, block_us
        #: The lease that took the slot; None outside the block, and if the job had a slot before.
        self._lease: bytes | None = None
        #: Where the slot was taken.
        self._operations: LimitOperations | None = None

    def counts(self) -> LimitCounts:
        """Return how many jobs run and wait. One round trip."""
        [state] = get_store().limits(_shard_of(self._use)).find_limits([self._use])
        opens_at = None if state.opens_us is None else moment(state.opens_us)
        return LimitCounts(running=state.running, waiting=state.waiting, opens_at=opens_at)

    def back_off(self, delay: float | timedelta) -> None:
        """Keep all jobs under the limit from beginning for a time, at most a day: the other side is overloaded.

        Those that run continue. Of several calls the longest time counts. Raises `InvalidDelay`.
        """
        _operations(self._use).back_off(self._use, min(LONGEST_BACK_OFF_US, duration_us(delay, name="the delay")))

    def __enter__(self) -> None:
        lease, until = self._begin()
        pause = _SHORTEST_PAUSE
        while (wait := self._request(lease, until)) is not None:
            sleep(min(wait, pause))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None and self._operations is not None:
            lease, self._lease = self._lease, None
            self._operations.give_back_limit(self._use, lease=lease)

    async def __aenter__(self) -> None:
        lease, until = self._begin()
        pause = _SHORTEST_PAUSE
        while (wait := await asyncio.to_thread(self._request, lease, until)) is not None:
            await asyncio.sleep(min(wait, pause))
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def __aexit__(self, *error: Any) -> None:
        await asyncio.to_thread(self.__exit__, *error)

    def _begin(self) -> tuple[bytes | None, float]:
        """Return the lease of the running job, None outside a job; and the moment until which to wait for a slot."""
        run = current_run.get()
        if run is None and self._block_us is None:
            raise LimitClosed(
                f"with limit({self._use.name!r}) outside a job must say how long it may wait for a slot: add block=, "
                f"in seconds"
            )
        backend = run[0].job.backend if run and run[0].job else None
        shard = _shard_of(self._use, backend)
        if run is not None and run[0].shard != shard:
            raise LimitClosed(
                f"the limit {self._use.name!r} is kept in another shard than this job; with SHARDS > 1 name it in the "
                f"limit= of the task, so that its jobs are in that shard"
            )
        self._operations = get_store(backend).operations(shard).limits
        return run[0].lease if run else None, monotonic() + (self._block_us or 0) / SECOND_US

    def _request(self, lease: bytes | None, until: float) -> float | None:
        """Take a slot and return None, or return the seconds until one may be free. Raises if it is too late."""
        assert self._operations is not None
        holder = lease or bytes(14) + os.urandom(16)
        length_us = None if lease else _LONGEST_HOLD_US
        taken, wait_us = self._operations.take_limit(self._use, lease=holder, cost=self._cost, length_us=length_us)
        if taken is Taken.TAKEN:
            self._lease = holder
        if taken is Taken.LOST:
            raise Snooze(_SNOOZE, "the job has lost its lease")
        if taken is not Taken.CLOSED:
            return None
        left, wait = until - monotonic(), _SNOOZE if wait_us is None else wait_us / SECOND_US
        if left > 0:
            return min(left, wait)
        if lease:
            raise Snooze(max(wait, 0.1), f"the limit {self._use.name} is closed")
        raise LimitClosed(f"the limit {self._use.name!r} was closed for {(self._block_us or 0) / SECOND_US:g} s")


def limit(
    name: str, value: str | int | None = None, /, *, cost: int = 1, block: float | timedelta | None = None
) -> Limit:
    """Return a limit of DELAYQ["LIMITS"], or one value of it, for a `with` block, `back_off()` and `counts()`.

    In a task, `with limit("stripe", account):` takes a slot, and charges `cost` to the rate. If the limit is closed,
    the job snoozes: it begins anew later, and what stands before the block runs again. With `block` the code waits for
    a slot for so many seconds, or a timedelta, before that. Outside a job `block` is necessary: `LimitClosed` is raised
    after it, and the slot is given back after the block, or after a minute. Raises `UnknownLimit`, TypeError and
    ValueError.
    """
    use = read_limit(name if value is None else (name, value))
    check_limit(use.name, get_config().tasks.limits, cost=cost)
    return Limit(use, cost=cost, block_us=None if block is None else duration_us(block, name="block"))


def _operations(use: LimitUse) -> LimitOperations:
    return get_store().operations(_shard_of(use)).limits


def _shard_of(use: LimitUse, backend: str | None = None) -> int:
    """Return the shard that keeps the limit."""
    return shard_of(routing_of("", None, None, [use]) or b"", get_store(backend).config.shards)
