"""Service: runs the steps of one `Runnable` until it ends; owns the loop, the waits in between, waking and stopping.

A step returns how long the service may sleep, and `listen()` a socket that may end the sleep early. The service keeps
the time itself, as precisely as select() does.
"""

import contextlib
import math
import os
import random
import select
import socket
import sys
import threading
import weakref
from time import monotonic

from django_delayq.exceptions import StoreAuthError, StoreError
from django_delayq.logs import logger
from django_delayq.processes import process_limits
from django_delayq.processes.backoff import backoff

#: Descriptors that select() can handle: a process with more open files waits a little less precisely.
_SELECT_LIMIT = 1024
#: Seconds to wait after the first failed step, and at most.
_FIRST_WAIT, LONGEST_WAIT = 0.1, 5.0
#: Seconds after which a refused password is logged again: unlike an outage, it may need somebody who acts.
_LOG_AGAIN = 60.0
#: Longest sleep, in seconds: the delay of a step may come from Redis, and select() raises beyond its own limit.
_LONGEST_SLEEP = 3_600.0


def process_name(pid: int | None = None) -> str:
    """Return the readable name of this process, or of another on this host: host and process id."""
    return f"{socket.gethostname()[:64]}:{pid or os.getpid()}"


def readable(descriptors: list[int], seconds: float) -> list[int]:
    """Wait until one of the descriptors can be read, for at most that many seconds and one hour; return those."""
    seconds = max(0.0, min(seconds, _LONGEST_SLEEP))
    if max(descriptors) < _SELECT_LIMIT:
        # select(), not poll(): it counts in microseconds, poll() in whole milliseconds.
        return select.select(descriptors, [], [], seconds)[0]
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(math.ceil(seconds * 1_000))]


class Runnable:
    """What a service runs; without a socket and connections unless a subclass has them.

    All methods but `overdue()` and `stop()` are called in the thread of the service.
    """

    stopped = False

    def overdue(self) -> float:
        """Return for how many seconds a loop of its own has not gone on. Called in any thread."""
        return 0.0

    def step(self) -> float | None:
        """Do what is due; return the seconds until the next step, or None after the last one."""
        raise NotImplementedError

    def listen(self) -> int:
        """Return the socket that may end the sleep, or -1 for none. Raises `StoreError`."""
        return -1

    def on_wakeup(self) -> None:
        """Read from that socket; called when it is readable. Raises `StoreError`."""

    def stop(self) -> None:
        """Make the next step the last; a second call means at once. Called in any thread or in a signal handler."""
        self.stopped = True

    def close(self) -> None:
        """Close connections; called after the last step."""


class Service:
    """The loop around one `Runnable`."""

    def __init__(
        self, runnable: Runnable, *, name: str, longest_wait: float = LONGEST_WAIT, log_again: float = _LOG_AGAIN
    ) -> None:
        """`longest_wait` is the longest wait after failed steps, in seconds, 5 at most.

        A refused password is logged again after `log_again` seconds.
        """
        self.runnable = runnable
        self.name = name
        self._longest_wait, self._log_again = min(LONGEST_WAIT, longest_wait), log_again
        # Not read at import: an app of the project may set another limit in its ready().
        self._recursion_limit = sys.getrecursionlimit()
        #: Set after the loop has ended; `error` is what ended it, unless its runnable did.
        self.ended = threading.Event()
        self.error: BaseException | None = None
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        # Not closed when the loop ends: a late wake() would write to whatever file has the number by then.
        for descriptor in (self._wake_read, self._wake_write):
            weakref.finalize(self, os.close, descriptor)
        self._awake = False
        #: Failures in a row, of steps and of listening. Each has its own wait: a step may send nothing to Redis, so its
        #: success does not prove that listening would succeed.
        self._failures, self._listen_failures = 0, 0
        #: time.monotonic() before which the service does not listen, or log a refused password, again.
        self._listen_at, self._log_again_at = 0.0, 0.0
        #: time.monotonic() by which the loop goes on, unless a step takes longer. A loop that has not begun is not
        #: stuck: a busy machine may take long to start its thread.
        self._goes_on_at = math.inf
        self.stopped = False

    def run(self) -> None:
        """Run until the runnable ends. Errors of steps are logged and waited out; others are raised."""
        try:
            self._loop()
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.ended.set()

    def stop(self) -> None:
        """Stop the runnable; a second call stops it at once. For any thread or a signal handler."""
        self.stopped = True
        self.runnable.stop()
        self.wake()

    def wake(self) -> None:
        """End the current sleep; for any thread or a signal handler. Costs nothing while awake."""
        if not self._awake:
            self._awake = True
            with contextlib.suppress(OSError):
                os.write(self._wake_write, b"\0")

    def overdue(self) -> float:
        """Return for how many seconds the loop, or one inside the runnable, has not gone on. For any thread.

        A loop does not go on while it is in one step, or if it sleeps too long.
        """
        return 0.0 if self.ended.is_set() else max(0.0, monotonic() - self._goes_on_at, self.runnable.overdue())

    def _loop(self) -> None:
        try:
            while True:
                self._goes_on_at = monotonic()
                process_limits.check_recursion(self._recursion_limit)
                delay = self._step()
                if delay is None:
                    return
                if delay > 0:
                    self._wait(delay)
        finally:
            self.runnable.close()

    def _step(self) -> float | None:
        try:
            delay = self.runnable.step()
        except StoreError as error:
            return self._on_failure("%s waits for Redis: %s", error)
        except Exception as error:
            logger.exception("%s: a step failed; this is a bug, the service goes on", self.name)
            return self._on_failure("%s goes on after %r", error)
        if delay is not None:
            # The last step of a service that stops may have sent nothing.
            self._set_failures(0, self._listen_failures)
        return delay

    def _set_failures(self, failures: int, listen_failures: int) -> None:
        if (self._failures or self._listen_failures) and not (failures or listen_failures):
            logger.info("%s works again", self.name)
        self._failures, self._listen_failures = failures, listen_failures

    def _on_failure(self, message: str, error: Exception) -> float:
        process_limits.restore_open_files()
        again = isinstance(error, StoreAuthError) and monotonic() >= self._log_again_at
        if again or not (self._failures or self._listen_failures):
            logger.warning(message, self.name, error)
            self._log_again_at = monotonic() + self._log_again
        self._failures += 1
        return self._backoff(self._failures, error)

    def _on_listen_failure(self, message: str, error: Exception) -> None:
        if not isinstance(error, StoreError):
            logger.exception("%s: listening failed; this is a bug, the service goes on", self.name)
        if not self._failures and not self._listen_failures:
            logger.warning(message, self.name, error)
        self._listen_failures += 1
        self._listen_at = monotonic() + self._backoff(self._listen_failures, error)

    def _backoff(self, failures: int, error: Exception) -> float:
        longest = _FIRST_WAIT if isinstance(error, StoreError) and error.brief else self._longest_wait
        # Jitter: the processes that one outage hit do not all come back at the same moment.
        return backoff(failures, first=_FIRST_WAIT, longest=longest) * random.uniform(0.5, 1.0)

    def _wait(self, delay: float) -> None:
        until, listener = monotonic() + delay, -1
        if not self._failures and monotonic() >= self._listen_at:
            try:
                listener = self.runnable.listen()
            except Exception as error:
                self._on_listen_failure("%s cannot listen: %s", error)
        # Not while steps fail too: `_listen_at` may be long past, and steps would follow without a wait.
        if self._listen_failures and listener < 0 and not self._failures:
            until = min(until, max(self._listen_at, monotonic()))
        descriptors = [self._wake_read] if listener < 0 else [self._wake_read, listener]
        self._goes_on_at = min(until, monotonic() + _LONGEST_SLEEP)
        ready = readable(descriptors, until - monotonic())
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
            self._awake = False
        elif listener in ready:
            try:
                self.runnable.on_wakeup()
            except Exception as error:
                self._on_listen_failure("%s lost the connection it listens on: %s", error)
                return
        if listener >= 0 and self._wake_read not in ready:
            # A notification arrived, or the connection held for the whole wait.
            self._set_failures(self._failures, 0)
