"""Limits: take a slot of a limit in a block of code, back off after an overload, and see what a limit is used for."""

import asyncio
import os
from collections.abc import Iterator
from datetime import datetime, timedelta
from time import monotonic, sleep
from types import TracebackType
from typing import Any, TypedDict

from django_delayq.clock import SECOND_US, duration_us, moment
from django_delayq.conf.settings import get_config
from django_delayq.exceptions import LimitClosed, Snooze, StoreError
from django_delayq.job.job import LimitUse
from django_delayq.logs import current_run, logger
from django_delayq.store.digests import routing_of
from django_delayq.store.operations.limits import LimitOperations, SlotReply
from django_delayq.store.queries.limits import combined_limits
from django_delayq.store.store import Store, get_store
from django_delayq.task.options.limits import check_cost, check_limit, read_limit

#: Seconds between two requests for a slot, at first and at most; they double. A free slot is noticed so much later.
_MIN_POLL, _MAX_POLL = 0.01, 0.25
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

    def __init__(self, use: LimitUse, *, cost: int, block_us: int | None, backend: str | None) -> None:
        self._use, self._cost, self._block_us, self._backend = use, cost, block_us, backend
        #: The lease that took the slot; None outside the block, and if the job had a slot before.
        self._lease: bytes | None = None
        #: The shard that gave the slot.
        self._shard = 0

    def counts(self) -> LimitCounts:
        """Return how many jobs run and wait. One round trip."""
        shards = [place.shard for place in self._store.layout.places(self._routing)]
        state = combined_limits([self._store.limits(shard).find_limits([self._use])[0] for shard in shards])
        opens_at = None if state.opens_us is None else moment(state.opens_us)
        return LimitCounts(running=state.running, waiting=state.waiting, opens_at=opens_at)

    def back_off(self, delay: float | timedelta) -> None:
        """Keep all jobs under the limit from beginning for a time, because the other side is overloaded.

        Those that run continue. A time of more than a day counts as a day, because it often comes from the other side.
        Of several calls the longest time counts. Raises `InvalidDelay`.
        """
        length_us = duration_us(delay, name="the delay of back_off()")

        def back_off(shard: int, **place: Any) -> bool | None:
            return self._limits(shard).back_off(self._use, length_us, **place) or None

        self._store.at_place(self._routing, back_off)

    def __enter__(self) -> None:
        for wait in self._polls():
            sleep(wait)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is None:
            return
        lease, self._lease = self._lease, None
        try:
            self._limits(self._shard).give_back_slot(self._use, lease=lease)
        except StoreError as fault:
            # The block has ended, and its own error, such as RetryLater, must not be lost. The slot frees itself.
            logger.warning("The slot of the limit %r is free later: %s", self._use.name, fault)

    async def __aenter__(self) -> None:
        polls = self._polls()
        while (wait := await self._poll_in_thread(polls)) is not None:
            await asyncio.sleep(wait)

    async def __aexit__(self, *error: Any) -> None:
        await asyncio.to_thread(self.__exit__, *error)

    async def _poll_in_thread(self, polls: Iterator[float]) -> float | None:
        request = asyncio.ensure_future(asyncio.to_thread(next, polls, None))
        try:
            return await asyncio.shield(request)
        except asyncio.CancelledError:
            # The thread goes on, and the slot that it takes would belong to nobody. An error of it concerns nobody.
            await asyncio.gather(request, return_exceptions=True)
            await self.__aexit__(None, None, None)
            raise

    def _polls(self) -> Iterator[float]:
        """Request a slot until there is one, and yield the seconds to wait before each further request."""
        lease, until, poll = self._check_lease(), monotonic() + (self._block_us or 0) / SECOND_US, _MIN_POLL
        while (wait := self._request(lease, until)) is not None:
            yield min(wait, poll)
            poll = min(2 * poll, _MAX_POLL)

    def _check_lease(self) -> bytes | None:
        """Return the lease of the running job, None outside a job. Raises TypeError."""
        run = current_run.get()
        if run is None and self._block_us is None:
            raise TypeError(
                f"with limit({self._use.name!r}) outside a job must say how long it may wait for a slot: add block=, "
                f"in seconds"
            )
        return run[0].lease if run else None

    def _request(self, lease: bytes | None, until: float) -> float | None:
        """Take a slot and return None, or return the seconds until one may be free. Raises if it is too late."""
        holder = lease or bytes(14) + os.urandom(16)
        length_us, run = None if lease else _LONGEST_HOLD_US, current_run.get()

        def take(shard: int, **place: Any) -> tuple[SlotReply, int | None] | None:
            reply = self._limits(shard).take_slot(
                self._use, lease=holder, cost=self._cost, length_us=length_us, **place
            )
            if reply[0] is SlotReply.LOST and run is not None and run[0].shard != shard:
                raise ValueError(
                    f"the limit {self._use.name!r} is kept in another shard than this job; with SHARDS > 1 name it in "
                    f"the limit= of the task, so that its jobs are in that shard"
                )
            return None if reply[0] is SlotReply.GO_ON else reply

        self._shard, (taken, wait_us) = self._store.at_place(self._routing, take)
        if taken is SlotReply.TAKEN:
            self._lease = holder
        if taken is SlotReply.LOST:
            raise Snooze(_SNOOZE, "the job has lost its lease")
        if taken is not SlotReply.CLOSED:
            return None
        left, wait = until - monotonic(), _SNOOZE if wait_us is None else wait_us / SECOND_US
        if left > 0:
            return min(left, wait)
        if lease:
            raise Snooze(max(wait, 0.1), f"the limit {self._use.name} is closed")
        raise LimitClosed(f"the limit {self._use.name!r} was closed for {(self._block_us or 0) / SECOND_US:g} s")

    @property
    def _store(self) -> Store:
        return get_store(_backend_of_job(self._backend))

    @property
    def _routing(self) -> bytes:
        """The value that decides which shard keeps the limit."""
        return routing_of("", None, None, [self._use]) or b""

    def _limits(self, shard: int) -> LimitOperations:
        return self._store.operations(shard).limits


def limit(
    name: str,
    value: str | int | None = None,
    /,
    *,
    cost: int = 1,
    block: float | timedelta | None = None,
    backend: str | None = None,
) -> Limit:
    """Return a limit of DELAYQ["LIMITS"], or one value of it, for a `with` block, `back_off()` and `counts()`.

    In a task, `with limit("stripe", account):` takes a slot, and charges `cost` to the rate. If the limit is closed,
    the job is snoozed: it runs again from its first line. With `block` the code first waits for a slot for so many
    seconds, or a timedelta. Outside a job `block` is required: `LimitClosed` is raised after that time, and the slot is
    given back after the block, or after a minute. The limit is that of the running job's backend, outside a job of
    `backend`. Raises `UnknownLimit`, TypeError and ValueError.
    """
    use = read_limit(name if value is None else (name, value))
    check_cost(cost)
    check_limit(use.name, get_config(_backend_of_job(backend)).tasks.limits, cost=cost)
    block_us = None if block is None else duration_us(block, name="block")
    return Limit(use, cost=cost, block_us=block_us, backend=backend)


def _backend_of_job(backend: str | None) -> str | None:
    """Return the backend of the running job, outside a job the given one."""
    run = current_run.get()
    return run[0].job.backend if run is not None and run[0].job is not None else backend
