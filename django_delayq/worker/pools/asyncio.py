"""Asyncio: a pool that runs thousands of `async def` jobs at once in one event loop.

Plain functions run in threads beside the loop, and jobs whose last attempt crashed in child processes.
"""

import asyncio
import os
import sys
import threading
import traceback
from asyncio import Task
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context
from functools import partial
from time import monotonic

from django_delayq.clock import SECOND_US
from django_delayq.job.job import Claim
from django_delayq.job.outcome import UNSTARTED, WORKER_STOPPED, Outcome, OutcomeKind
from django_delayq.logs import logger
from django_delayq.task import registry
from django_delayq.worker.execution import is_async, run_async
from django_delayq.worker.outcomes import failed
from django_delayq.worker.pools.base import Pool
from django_delayq.worker.pools.claim_queue import ClaimQueue, Entry, PoolClient, Seat
from django_delayq.worker.pools.recovery import MAX_PROCESSES, RecoveryRunner
from django_delayq.worker.pools.threads import ThreadPool

#: Seconds between two sweeps of the loop.
_SWEEP_INTERVAL = 1.0


class AsyncioPool(Pool):
    """Run claims in one loop, which has a thread of its own; plain functions in up to `size` other threads."""

    def __init__(self, size: int) -> None:
        recovery = RecoveryRunner()
        self._queue, self._seat = ClaimQueue(), Seat()
        self._threads = ThreadPool(size, recovery=None, ready=False)
        #: For jobs whose last attempt crashed: each thread waits for a child process.
        self._recovery_threads = ThreadPool(MAX_PROCESSES, recovery, recovery=None, ready=False)
        queues = [self._queue, *self._threads.queues, *self._recovery_threads.queues]
        super().__init__(size, recovery=recovery, queues=queues)
        #: The asyncio task of each claim that runs in the loop, and the timer of its hard limit.
        self._running: dict[Entry, tuple[Task[Outcome], asyncio.TimerHandle | None]] = {}
        #: The timer that ends a stopped job.
        self._stop_timers: dict[Entry, asyncio.TimerHandle] = {}
        self._loop = self._new_loop()
        #: time.monotonic() of the next sweep; it is late if code of a job blocks the loop.
        self._sweep_at = monotonic() + _SWEEP_INTERVAL
        self._timer = self._loop.call_later(_SWEEP_INTERVAL, self._sweep)
        #: time.monotonic() at which the code that blocks the loop now was logged.
        self._logged_at: float | None = None
        self._thread = threading.Thread(target=self._work, name="delayq-loop", daemon=True)
        self._thread.start()

    def submit(self, claims: Sequence[Claim], owner: PoolClient) -> None:
        """Queue claims; their owner gets each outcome from the thread that ran it, or from `release_queued()`."""
        coroutines, plain, suspects = list[Claim](), list[Claim](), list[Claim]()
        for claim in claims:
            if claim.attempts.crash_suspected:
                suspects.append(claim)
            else:
                (coroutines if _is_coroutine(claim) else plain).append(claim)
        for pool, chosen in ((self._recovery_threads, suspects), (self._threads, plain)):
            if chosen:
                pool.submit(chosen, owner)
        if coroutines:
            self._queue.put(coroutines, owner)
            # One call for all claims, since each writes to the loop's own socket. If the loop is closed, the first
            # sweep of its successor begins them.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._begin)

    def stop(self, lease: bytes, seconds: float) -> None:
        """Cancel a coroutine; one that refuses runs on as an ended job after that many seconds.

        A later call replaces the seconds.
        """
        for pool in (self._threads, self._recovery_threads):
            pool.stop(lease, seconds)
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._stop, lease, seconds)

    def overdue(self) -> float:
        """Return for how many seconds a coroutine has blocked the loop, and with it all others."""
        return max(0.0, monotonic() - self._sweep_at)

    def is_stuck(self, seconds: float) -> bool:
        """Return whether the loop is blocked for that long, and a job in it is past its hard limit by as much.

        A blocked loop can cancel nothing. The first call logs the code that blocks it. It returns False, and so do the
        calls of the next second: the whole process may have been frozen.
        """
        if self.overdue() <= seconds or not self._running:
            self._logged_at = None
            return False
        if self._logged_at is None:
            self._logged_at = monotonic()
            self._log_blocked()
        return monotonic() > self._logged_at + _SWEEP_INTERVAL and self._queue.overrun(seconds) > 0

    def close(self) -> None:
        """Begin nothing more, and cancel what runs: an interrupted job must not continue."""
        for part in (self._queue, self._threads, self._recovery_threads):
            part.close()
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._interrupt)

    def _log_blocked(self) -> None:
        stack = traceback.extract_stack(sys._current_frames().get(self._thread.ident or 0))
        logger.error(
            "A job has blocked the event loop for %.0f s, and all other jobs of this worker wait for it. Call such "
            "code with asyncio.to_thread(), or make its task a plain function. It is in %s",
            self.overdue(),
            ", called by ".join(f"{each.name}() ({each.filename}:{each.lineno})" for each in reversed(stack[-5:])),
        )

    def _new_loop(self) -> asyncio.AbstractEventLoop:
        loop = asyncio.new_event_loop()
        # For asyncio.to_thread() in tasks: the default executor of asyncio has only few threads.
        loop.set_default_executor(ThreadPoolExecutor(self.size, thread_name_prefix="delayq-to-thread"))
        # A job that shuts the executor down would do so for all others. AttributeError: loops written in C cannot be
        # changed.
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
                # sys.exit() in an asyncio task that a job created stops the loop for all other jobs.
                logger.error("A job stopped the event loop that all jobs share. It was started again.", exc_info=error)
            except OSError as error:
                # A job closed the loop's descriptors, and probably others. New files may have their numbers by now, so
                # what is written to Redis might arrive in a file.
                logger.error(
                    "A job closed the file descriptors of this worker: it exits, and its leases expire", exc_info=error
                )
                os._exit(1)
            except BaseException as error:
                # The loop is closed, or was interrupted between two callbacks. One may be lost, and its job would wait
                # forever.
                logger.error("A job broke the event loop that all jobs share. A new one replaces it.", exc_info=error)
                try:
                    self._replace_loop(error)
                except BaseException as worse:
                    # For example, no descriptor is left. Without a loop, jobs would hang with their leases renewed.
                    logger.error("No new event loop can be made: this worker exits, its leases expire", exc_info=worse)
                    os._exit(1)

    def _replace_loop(self, error: BaseException) -> None:
        broken_loop, self._loop = self._loop, self._new_loop()
        with suppress(Exception):
            broken_loop.close()
        self._queue.recover(self._seat, error)
        lost, self._running, self._stop_timers = self._running, {}, {}
        reason = f"The loop that ran the task was broken, by this job or one beside it: {type(error).__name__}."
        for entry in lost:
            self._queue.end(entry, entry.timed(Outcome(kind=OutcomeKind.CRASHED, error=reason)))

    def _sweep(self) -> None:
        """Repeat every second what callbacks do: an exception may have struck one before its first line."""
        self._timer.cancel()
        self._sweep_at = monotonic() + _SWEEP_INTERVAL
        self._timer = self._loop.call_later(_SWEEP_INTERVAL, self._sweep)
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
            # A new context, so that language, time zone and context variables start fresh. Not create_task(): a job
            # may have set a task factory that raises.
            task = Task(run_async(entry.claim, entry), loop=self._loop, context=Context())
            timer = None
            if limit_us is not None:
                timer = self._loop.call_later(limit_us / SECOND_US, self._cancel_overrun, entry, limit_us)
            self._running[entry] = task, timer
            # Runs at every end, also if the task is cancelled before its first step.
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
            for each in (timer, self._stop_timers.pop(entry, None)):
                if each is not None:
                    each.cancel()
        except BaseException as error:
            self._queue.recover(self._seat, error)
        self._seat.entry = None

    def _cancel_overrun(self, entry: Entry, limit_us: int) -> None:
        reason = f"The task ran longer than its hard limit of {limit_us / SECOND_US:g} s and was cancelled."
        self._cancel(entry, Outcome(kind=OutcomeKind.CRASHED, error=reason))

    def _stop(self, lease: bytes, seconds: float) -> None:
        entry = self._queue.find(lease)
        if entry is None:
            return
        is_first, entry.should_stop = not entry.should_stop, True
        if entry in self._running:
            # Once: a second cancellation would end what the task does to clean up.
            if is_first:
                self._running[entry][0].cancel()
            if entry in self._stop_timers:
                self._stop_timers[entry].cancel()
            outcome = Outcome(kind=OutcomeKind.STOPPED)
            self._stop_timers[entry] = self._loop.call_later(seconds, self._cancel, entry, outcome)

    def _interrupt(self) -> None:
        for entry in list(self._running):
            self._cancel(entry, Outcome(kind=OutcomeKind.INTERRUPTED, error=WORKER_STOPPED))

    def _cancel(self, entry: Entry, outcome: Outcome) -> None:
        # Ended first: the coroutine may refuse to be cancelled and run on, but its lease is renewed no longer.
        self._queue.end(entry, entry.timed(outcome))
        if entry in self._running:
            self._running[entry][0].cancel()


def _is_coroutine(claim: Claim) -> bool:
    """Return whether the claimed job's task is a coroutine function."""
    try:
        task = registry.find(claim.job.task) if claim.job else None
        return task is not None and is_async(task.callable)
    except Exception:
        # Running the claim finds the same error and reports it.
        return False


def _outcome_of(entry: Entry, task: Task[Outcome]) -> Outcome:
    try:
        return task.result()
    except BaseException as error:
        return entry.timed(failed(error))


async def _keep_executor(*_: object) -> None:
    logger.error("A job tried to shut down the executor that all jobs share; it stays")
