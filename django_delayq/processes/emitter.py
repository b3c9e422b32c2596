"""Emitter: one thread of the process that sends the signals and writes the log lines of settled attempts, in order.

Receivers and log handlers belong to the project. In the worker's loop, a receiver that takes 50 ms would limit it to
20 round trips a second.
"""

import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from contextvars import Context
from math import inf
from time import monotonic

from django_delayq.logs import logger
from django_delayq.processes import database

#: Emissions that may wait when `emit()` is called; beyond that it blocks rather than losing any.
_LIMIT = 512
#: Emissions between two wake-ups of blocked callers: one each would cost 100 µs of switching between two threads.
_WAKE_EVERY = 64
#: Seconds between two log lines about a blocked caller.
_LOG_AGAIN = 60.0
#: Seconds that emissions may delay the end of a process.
_FLUSH_TIMEOUT = 10.0

#: Sends the signals and writes the log line of one settled attempt, or the count of the done log.
Emission = Callable[[], object]
Emit = Callable[[Iterable[Emission]], None]


class Emitter:
    """Carries out emissions one after another, in a daemon thread that starts with the first."""

    def __init__(self) -> None:
        self._waiting: deque[Emission] = deque()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        #: Emissions that the thread has taken and not begun, and whether it is in the middle of one.
        self._taken: deque[Emission] = deque()
        self._busy = False
        #: An emission and the time.monotonic() at which it joins those that wait.
        self._timed: tuple[float, Emission] | None = None
        self._limit: float = _LIMIT
        #: time.monotonic() before which a blocked caller is not logged again.
        self._log_again_at = 0.0

    def emit(self, emissions: Iterable[Emission]) -> None:
        """Queue emissions for the thread; blocks while too many wait. Called in any thread."""
        if self._left >= self._limit and monotonic() >= self._log_again_at:
            self._log_again_at = monotonic() + _LOG_AGAIN
            logger.warning(
                "%d settled attempts wait to be announced: receivers or log are slow, and this worker waits for them",
                self._left,
            )
        with self._changed:
            self._changed.wait_for(lambda: self._left < self._limit)
            self._waiting.extend(emissions)
            self._start_thread()
            self._changed.notify_all()

    def set_timed_emission(self, moment: float, emission: Emission) -> None:
        """Set the timed emission, which joins the queue first in line at time.monotonic() `moment`, or in `flush()`.

        There is one for the process, that of the done log. It replaces the last one that has not joined the queue.
        Never blocks. Called in any thread.
        """
        with self._changed:
            self._timed = moment, emission
            self._start_thread()
            self._changed.notify_all()

    def lift_limit(self) -> None:
        """Unblock callers of `emit()` for good: the process ends and settles no more attempts."""
        with self._changed:
            self._limit = inf
            self._changed.notify_all()

    def flush(self, seconds: float = _FLUSH_TIMEOUT) -> bool:
        """Wait until no emission is left, for at most that many seconds; returns False and logs how many are lost."""
        with self._changed:
            self._queue_timed(now=inf)
            if self._waiting:
                self._start_thread()
                self._changed.notify_all()
            if self._changed.wait_for(lambda: not self._left, seconds):
                return True
            left = self._left
        logger.warning(
            "%d settled attempts were not announced within %g s: receivers or log are too slow", left, seconds
        )
        return False

    @property
    def _left(self) -> int:
        return len(self._waiting) + len(self._taken) + self._busy

    def _start_thread(self) -> None:
        if self._thread is not None:
            return
        thread = threading.Thread(target=self._run, name="delayq-emitter", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            # A job may use up the memory or the threads of the process for a moment.
            logger.error("No thread for signals could be started, the next attempt that ends tries again: %s", error)
        else:
            self._thread = thread

    def _run(self) -> None:
        while True:
            # User code can raise an exception in any thread, also in this one.
            with suppress(BaseException):
                self._busy = False
                self._serve()

    def _serve(self) -> None:
        while True:
            # A connection may have died while the thread was idle.
            database.clean()
            while self._taken:
                self._busy = True
                _carry_out(self._taken.popleft())
                self._busy = False
                if self._taken and not len(self._taken) % _WAKE_EVERY:
                    with self._changed:
                        self._changed.notify_all()
            with self._changed:
                self._changed.notify_all()
                seconds = self._queue_timed(now=monotonic())
                while not self._waiting:
                    self._changed.wait(seconds)
                    seconds = self._queue_timed(now=monotonic())
                self._taken, self._waiting = self._waiting, deque()

    def _queue_timed(self, *, now: float) -> float | None:
        """Queue the timed emission if its moment has come; else return the seconds until then, or None without one."""
        if self._timed is None:
            return None
        moment, emission = self._timed
        if now < moment:
            return moment - now
        self._timed = None
        self._waiting.appendleft(emission)
        return None


def emit_now(emissions: Iterable[Emission]) -> None:
    """Carry out emissions in the caller's thread and on its database connections, for tests."""
    for emission in emissions:
        emission()


def _carry_out(emission: Emission) -> None:
    try:
        Context().run(emission)
    except BaseException:
        # sys.exit() in a receiver ends neither this thread nor the process.
        logger.exception("A settled attempt could not be announced")
        database.assume_opened()
    if left_open := database.clean():
        names = ", ".join(map(repr, left_open.aliases))
        logger.error("A receiver of a signal left a transaction open on %s; it was rolled back", names)


emitter = Emitter()
atexit.register(emitter.flush)
# A fork has no copy of the thread, and the parent carries out what waits.
os.register_at_fork(after_in_child=emitter.__init__)  # type: ignore[misc]
