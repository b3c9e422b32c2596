"""Shutdown: waits for the end of a worker's process, and bounds how long that end may take.

An interrupted job may begin elsewhere as soon as Redis has it back, while its code still runs here. From then on the
process has half a second: it emits and flushes what it can, and exits.
"""

import atexit
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from math import inf
from time import monotonic

from django_delayq.logs import logger
from django_delayq.processes.emitter import emitter
from django_delayq.processes.service import readable

#: Seconds after the last interrupted job, for other shards to hand in theirs, and for emissions. Enough for a busy
#: machine; bounded since a receiver may hang, and the Redis of another shard may be away.
_INTERRUPTED_TIMEOUT = 0.5
#: Seconds for emissions and exit handlers if no job was interrupted.
_END_TIMEOUT = 10.0
#: Seconds for each optional step of the end: usually, and after an interrupted job.
_OPTIONAL_TIMEOUT, _SHORT_OPTIONAL_TIMEOUT = 1.0, 0.025


class Shutdown:
    """The end of one process; its methods may be called in any thread."""

    def __init__(self) -> None:
        self._wake_read, self.wake_descriptor = os.pipe()
        os.set_blocking(self.wake_descriptor, False)
        #: time.monotonic() at which `wait()` gives up.
        self._deadline = inf

    def set_deadline(self) -> None:
        """End within half a second: Redis has jobs back whose code still runs here. Each call starts it again."""
        self._deadline = monotonic() + _INTERRUPTED_TIMEOUT
        self.wake()

    @property
    def optional_timeout(self) -> float:
        """Seconds for a step that the end of the process does not require."""
        return _SHORT_OPTIONAL_TIMEOUT if self.has_deadline else _OPTIONAL_TIMEOUT

    @property
    def has_deadline(self) -> bool:
        """Whether an interrupted job may still run here."""
        return self._deadline < inf

    def wake(self) -> None:
        """End a `wait()`."""
        try:
            os.write(self.wake_descriptor, b"\0")
        except BlockingIOError:
            pass
        except OSError as error:
            # Nothing can wake the main thread any more, and other files may have got the numbers of its sockets.
            logger.error("A job closed the file descriptors of this process. It exits and its leases expire: %s", error)
            os._exit(1)

    def wait(self) -> bool:
        """Wait for a signal or the end of a service; returns False once the deadline is over."""
        if readable([self._wake_read], self._deadline - monotonic()):
            os.read(self._wake_read, 4096)
        return monotonic() < self._deadline

    def end_process(self, code: int = 0) -> None:
        """Emit what waits, run exit handlers, flush output, and exit at once.

        The thread of an interrupted job must not run on. If the code is not 0, others may run, too.
        """
        until = min(self._deadline, monotonic() + (_OPTIONAL_TIMEOUT if code else _END_TIMEOUT))
        emitter.flush(_INTERRUPTED_TIMEOUT if self.has_deadline else _END_TIMEOUT)
        # Sentry and OpenTelemetry send in them what they have buffered. `sys.exit()` calls them too, but waits for the
        # threads of jobs first, without a limit.
        atexit.unregister(emitter.flush)
        _run_within(max(until - monotonic(), self.optional_timeout), atexit._run_exitfuncs)
        _run_within(self.optional_timeout, _flush)
        os._exit(code)


def _run_within(seconds: float, step: Callable[[], object]) -> None:
    # In a thread of its own: writing to a pipe that nobody reads blocks, and an exit handler may hang.
    thread = threading.Thread(target=step, name="delayq-exit", daemon=True)
    thread.start()
    thread.join(seconds)


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        # A task may have closed or replaced it.
        with suppress(Exception):
            stream.flush()
