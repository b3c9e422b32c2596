"""Loop: one asyncio loop that runs thousands of `async def` jobs at once.

Plain functions run in threads beside it, jobs that came back from a crash in processes of their own.
"""

import asyncio
import os
import threading
from asyncio import Task
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from functools import partial

from django_delayq.clock import SECOND_US
from django_delayq.job.job import Claim
from django_delayq.job.outcome import STOPPED, UNSTARTED, Outcome, OutcomeKind
from django_delayq.log import logger
from django_delayq.task import registry
from django_delayq.worker.execution import failed, is_async, run_async, timed
from django_delayq.worker.pools.base import PoolClient
from django_delayq.worker.pools.claim_queue import ClaimQueue, Entry, Seat
from django_delayq.worker.pools.recovery import MOST, RecoveryRunner
from django_delayq.worker.pools.threads import ThreadPool


class AsyncioPool:
    """Run up to `size` claims in one loop, in a thread of its own."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._queue, self._seat = ClaimQueue(), Seat()
        self._plain = ThreadPool(size, recovery=None, ready=False)
        self.recovery = RecoveryRunner()
        self._alone = ThreadPool(MOST, self.recovery, recovery=None, ready=False)
        self._pools = (self._queue, self._plain, self._alone)
        #: The asyncio task of each claim that runs in the loop, and the timer of its hard limit.
        self._running: dict[Entry, tuple[Task[Outcome], asyncio.TimerHandle | None]] = {}
        self._loop = self._new_loop()
        self._timer = self._loop.call_later(1.0, self._sweep)
        threading.Thread(target=self._work, name="delayq-loop", daemon=True).start()

    @property
    def held(self) -> int:
        """Claims taken in and not finished."""
        return sum(pool.held for pool in self._pools)

    @property
    def queued(self) -> int:
        """Claims taken in that neither the loop nor a thread has come to: a task that computes holds up the loop."""
        return sum(pool.queued for pool in self._pools)

    @property
    def finished_count(self) -> int:
        """Claims finished so far."""
        return sum(pool.finished_count for pool in self._pools)

    def submit(self, claims: Sequence[Claim], owner: PoolClient) -> None:
        """Take claims in; their owner is told when each has finished, by the thread that ran it or by `withdraw()`."""
        here, plain, alone = list[Claim](), list[Claim](), list[Claim]()
        for claim in claims:
            (alone if claim.attempts.crash_suspected else here if _is_coroutine(claim) else plain).append(claim)
        for pool, theirs in ((self._alone, alone), (self._plain, plain)):
            if theirs:
                pool.submit(theirs, owner)
        if here:
            self._queue.put(here, owner)
            # Once for all: each call writes to the loop's own socket. A closed loop's successor looks by itself.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._begin)

    def oldest_wait(self) -> float:
        """Return for how many seconds the oldest claim has waited to begin."""
        return max(pool.oldest_wait() for pool in self._pools)

    def has_begun(self, claim: Claim) -> bool:
        """Whether a claim's code may have begun; certain once the pool is closed."""
        return all(pool.has_begun(claim) for pool in self._pools)

    def is_stuck(self, seconds: float) -> bool:
        """Never: coroutines can be cancelled."""
        return False

    def release_queued(self) -> None:
        """Finish all claims that have not begun as unstarted."""
        for pool in self._pools:
            pool.release_queued()

    def close(self) -> None:
        """Begin nothing more, and cancel what runs: a job that is given back must not run on."""
        for pool in self._pools:
            pool.close()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._interrupt)

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        # For asyncio.to_thread() in tasks: asyncio's own has a thread or two a core.
        loop.set_default_executor(ThreadPoolExecutor(self.size, thread_name_prefix="delayq-to-thread"))
        # A job that shuts it down would do so for all others. A loop written in C does not let itself be changed.
        with suppress(AttributeError):
            loop.shutdown_default_executor = _keep_executor  # type: ignore[method-assign]
        return loop

    def _work(self) -> None:
        while True:
            try:
                self._loop.call_soon(self._sweep)
                self._loop.run_forever()
                logger.error("A job stopped the event loop that all jobs share. It was started again.")
            except (SystemExit, KeyboardInterrupt) as error:
                # sys.exit() in an asyncio task of the job's own: all other jobs would stand still.
                logger.error("A job stopped the event loop that all jobs share. It was started again.", exc_info=error)
            except OSError as error:
                # Somebody closed its descriptors, and so those of Redis and whatever else: other files may have their
                # numbers by now, and what is written to one arrives in the other.
                logger.error(
                    "The descriptors of this worker were closed by a job: it ends, and its leases lapse", exc_info=error
                )
                os._exit(1)
            except BaseException as error:
                # Closed, or struck between two callbacks, of which one may be lost: its job would wait for ever.
                logger.error("A job broke the loop that all share; a new one takes its place", exc_info=error)
                try:
                    self._replace_loop(error)
                except BaseException as worse:
                    # As where no descriptor is left: without a loop its jobs would hang, and their leases be renewed.
                    logger.error("No new loop can be made: this worker ends, and its leases lapse", exc_info=worse)
                    os._exit(1)

    def _replace_loop(self, error: BaseException) -> None:
        broken_loop, self._loop = self._loop, self._new_loop()
        with suppress(Exception):
            broken_loop.close()
        self._queue.recover(self._seat, error)
        broken, self._running = self._running, {}
        reason = f"The loop that ran the task was broken, by this job or one beside it: {type(error).__name__}."
        for entry in broken:
            self._queue.end(entry, _cut(entry, OutcomeKind.CRASHED, reason))

    def _sweep(self) -> None:
        """Do each second what a callback would have done that an exception struck before its first line."""
        self._timer.cancel()
        self._timer = self._loop.call_later(1.0, self._sweep)
        self._begin()
        for entry, (task, _) in list(self._running.items()):
            if task.done():
                self._finish(entry, task)

    def _begin(self) -> None:
        more = True
        while more:
            try:
                more = self._begin_next()
            except BaseException as error:
                self._queue.recover(self._seat, error)

    def _begin_next(self) -> bool:
        entry = self._queue.take(self._seat)
        if entry is None:
            return False
        if self._queue.begin(entry):
            limit_us = entry.claim.job.hard_limit_us if entry.claim.job else None
            # A context of its own, so that language, time zone and context variables start fresh. Not create_task():
            # a job may have given the loop a factory that raises.
            task = Task(run_async(entry.claim), loop=self._loop, context=Context())
            timer = None
            if limit_us is not None:
                timer = self._loop.call_later(limit_us / SECOND_US, self._give_up, entry, limit_us)
            self._running[entry] = task, timer
            # Whatever its end: also one that is cancelled before its first step has it.
            task.add_done_callback(partial(self._finish, entry))
        else:
            self._queue.end(entry, UNSTARTED)
        self._seat.entry = None
        return True

    def _finish(self, entry: Entry, task: Task[Outcome]) -> None:
        try:
            self._seat.entry = entry
            self._queue.end(entry, _outcome_of(entry, task))
            _, timer = self._running.pop(entry, (None, None))
            if timer is not None:
                timer.cancel()
        except BaseException as error:
            self._queue.recover(self._seat, error)
        self._seat.entry = None

    def _give_up(self, entry: Entry, limit_us: int) -> None:
        reason = f"The task ran longer than its hard limit of {limit_us / SECOND_US:g} s and was cancelled."
        self._cancel(entry, _cut(entry, OutcomeKind.CRASHED, reason))

    def _interrupt(self) -> None:
        for entry in list(self._running):
            self._cancel(entry, _cut(entry, OutcomeKind.INTERRUPTED, STOPPED))

    def _cancel(self, entry: Entry, outcome: Outcome) -> None:
        # Ended first: it may refuse to be cancelled, and then runs on; its lease is renewed no longer.
        self._queue.end(entry, outcome)
        if entry in self._running:
            self._running[entry][0].cancel()


def _is_coroutine(claim: Claim) -> bool:
    """Whether the claimed job's task is a coroutine function, which the loop can run."""
    try:
        task = registry.find(claim.job.task) if claim.job else None
        return task is not None and is_async(task.callable)
    except Exception:
        # Its run tells what is wrong with it.
        return False


def _outcome_of(entry: Entry, task: Task[Outcome]) -> Outcome:
    try:
        return task.result()
    except BaseException as error:
        outcome = failed(error)
        return outcome if entry.began is None else timed(outcome, entry.began)


def _cut(entry: Entry, ending: OutcomeKind, error: str) -> Outcome:
    """Return the outcome of a coroutine that ends now, by no doing of its own."""
    outcome = Outcome(kind=ending, error=error)
    return outcome if entry.began is None else timed(outcome, entry.began)


async def _keep_executor(*_: object) -> None:
    logger.error("A job asked to shut down the executor that all share; it stays")
