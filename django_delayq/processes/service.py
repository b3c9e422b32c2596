"""Service: run a part's step() until it ends; owns the loop, stopping, waking, and waiting.

A part says how long it may sleep and which socket may end the sleep early. The timer is ours, precise to what select()
gives.
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
from typing import Protocol

from django_delayq.exceptions import StoreAuthError, StoreError
from django_delayq.log import logger
from django_delayq.processes import process_limits

#: Descriptors that select() can take: a process with more open files waits a little less precisely.
_SELECT_LIMIT = 1024
#: Wait after the first failed step, and the longest, in seconds.
_FIRST_WAIT, _LONGEST_WAIT = 0.1, 5.0
#: Seconds after which a refusal is told again: unlike an outage it may need somebody who reads it.
_TELL_AGAIN = 60.0
#: Seconds of one sleep at most: what a part says may come from Redis, and select() raises beyond its own limit.
_LONGEST_SLEEP = 3_600.0


def process_name(pid: int | None = None) -> str:
    """Return this process's name for people, or that of another on this host: host and process id."""
    return f"{socket.gethostname()[:64]}:{pid or os.getpid()}"


def readable(descriptors: list[int], seconds: float) -> list[int]:
    """Return which of the descriptors can be read, after at most so many seconds, and an hour."""
    seconds = max(0.0, min(seconds, _LONGEST_SLEEP))
    if max(descriptors) < _SELECT_LIMIT:
        # select(), not poll(): it counts in microseconds, poll() in whole milliseconds.
        return select.select(descriptors, [], [], seconds)[0]
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return [descriptor for descriptor, _ in poll.poll(math.ceil(seconds * 1_000))]


class Runnable(Protocol):
    """What a Service runs."""

    def step(self) -> float | None:
        """Do what is to be done; return the seconds until the next step, or None when ended."""

    def listen(self) -> int:
        """Return the socket that may wake this part, or -1 for none."""

    def on_wakeup(self) -> None:
        """Read what came in on that socket."""

    def stop(self) -> None:
        """Begin to end; called once more to end at once."""

    def close(self) -> None:
        """Let go of connections."""


class PeriodicRunnable:
    """What the parts have in common that only time wakes; their step is the last one where `stopped` is set."""

    stopped = False

    def listen(self) -> int:
        """Nothing wakes it."""
        return -1

    def on_wakeup(self) -> None:
        """Nothing is heard."""

    def stop(self) -> None:
        """Take no further step."""
        self.stopped = True

    def close(self) -> None:
        """There is nothing to let go of."""


class Service:
    """The loop around one part."""

    def __init__(self, part: Runnable, *, name: str, longest_wait: float = _LONGEST_WAIT) -> None:
        self.runnable = part
        self.name = name
        self._longest_wait = min(_LONGEST_WAIT, longest_wait)
        # Not read at import: an app of the project may set another limit when it is ready.
        self._recursion = sys.getrecursionlimit()
        #: Set after each step, for tests that wait for one.
        self.stepped = threading.Event()
        #: Set when the loop is over; what ended it, other than its part.
        self.ended = threading.Event()
        self.error: BaseException | None = None
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        # Not when the loop ends: a late wake() would write to whatever has the number by then.
        for descriptor in (self._wake_read, self._wake_write):
            weakref.finalize(self, os.close, descriptor)
        self._awake = False
        #: Failures in a row: of steps, and of listening, which is tried again only at its own time. A step may ask
        #: nothing of Redis, so that its success says nothing of the bell.
        self._failures, self._deaf, self._listen_at = 0, 0, 0.0
        self._tell_at = 0.0
        self.stopped = False

    @property
    def wake_descriptor(self) -> int:
        """Where one written byte ends the current sleep, for the interpreter's signal handler."""
        return self._wake_write

    def run(self) -> None:
        """Run until the part has ended. Errors of the store are waited out; nothing else ends the loop either."""
        try:
            self._loop()
        except BaseException as error:
            self.error = error
            raise
        finally:
            self.ended.set()

    def stop(self) -> None:
        """Ask the part to end; from any thread or a signal handler. A second time: at once."""
        self.stopped = True
        self.runnable.stop()
        self.wake()

    def wake(self) -> None:
        """End the current sleep; from any thread or a signal handler. Costs nothing while already awake."""
        if not self._awake:
            self._awake = True
            with contextlib.suppress(OSError):
                os.write(self._wake_write, b"\0")

    def _loop(self) -> None:
        try:
            while True:
                process_limits.check_recursion(self._recursion)
                delay = self._step()
                self.stepped.set()
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
            logger.exception("%s: a step failed; this is a bug, it goes on", self.name)
            return self._on_failure("%s goes on after %r", error)
        self._recovered(failures=0, deaf=self._deaf)
        return delay

    def _recovered(self, *, failures: int, deaf: int) -> None:
        if (self._failures or self._deaf) and not (failures or deaf):
            logger.info("%s works again", self.name)
        self._failures, self._deaf = failures, deaf

    def _on_failure(self, sentence: str, error: Exception) -> float:
        process_limits.restore_open_files()
        again = isinstance(error, StoreAuthError) and monotonic() >= self._tell_at
        if again or not (self._failures or self._deaf):
            logger.warning(sentence, self.name, error)
            self._tell_at = monotonic() + _TELL_AGAIN
        self._failures += 1
        return self._pause(self._failures)

    def _on_listen_failure(self, sentence: str, error: Exception) -> None:
        if not isinstance(error, StoreError):
            logger.exception("%s: listening failed; this is a bug, it goes on", self.name)
        if not self._failures and not self._deaf:
            logger.warning(sentence, self.name, error)
        self._deaf += 1
        self._listen_at = monotonic() + self._pause(self._deaf)

    def _pause(self, failures: int) -> float:
        ceiling = min(self._longest_wait, _FIRST_WAIT * 2 ** min(failures - 1, 10))
        return float(ceiling * (0.5 + random.random() / 2))

    def _wait(self, delay: float) -> None:
        until, bell = monotonic() + delay, -1
        if not self._failures and monotonic() >= self._listen_at:
            try:
                bell = self.runnable.listen()
            except Exception as error:
                self._on_listen_failure("%s cannot listen: %s", error)
        # Not while steps fail too: the moment to listen again may be long past, and steps would follow without a wait.
        if self._deaf and bell < 0 and not self._failures:
            until = min(until, max(self._listen_at, monotonic()))
        sources = [self._wake_read] if bell < 0 else [self._wake_read, bell]
        heard = readable(sources, until - monotonic())
        if self._wake_read in heard:
            os.read(self._wake_read, 4096)
            self._awake = False
        elif bell in heard:
            try:
                self.runnable.on_wakeup()
            except Exception as error:
                self._on_listen_failure("%s lost its bell: %s", error)
                return
        if bell >= 0 and self._wake_read not in heard:
            # It rang, or nothing was said against listening all the while.
            self._recovered(failures=self._failures, deaf=0)
