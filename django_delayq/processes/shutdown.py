"""Shutdown: how long the end of a worker's process may take.

A job that is given back while its code still runs may begin elsewhere at once. From then on the process has next to no
time: it says what has to be said within milliseconds, and ends.
"""

import logging
import os
import sys
import threading
from contextlib import suppress
from math import inf
from time import monotonic

from django_delayq.log import logger
from django_delayq.processes.emitter import emitter
from django_delayq.processes.service import readable

#: Seconds after the last give-back in which other shards may give theirs back, and receivers hear of it. Enough for a
#: busy machine; bounded since a receiver may hang, and the Redis of another shard be away.
_OTHERS = 0.5
#: Seconds for emissions where no job was given back.
_EMISSIONS = 10.0
#: Seconds that the presence may take to leave, and buffered output to be written: usually, and with a job given back.
_PATIENCE, _HURRIED = 1.0, 0.025


class Shutdown:
    """The end of one process; its methods are for any thread."""

    def __init__(self) -> None:
        self._reading, self.wake_descriptor = os.pipe()
        os.set_blocking(self.wake_descriptor, False)
        #: When this must be over.
        self._until = inf

    def given_back(self) -> None:
        """Hurry: Redis has jobs back whose code still runs here."""
        self._until = monotonic() + _OTHERS
        self.wake()

    @property
    def patience(self) -> float:
        """Seconds for whatever should be done before the end, but need not."""
        return _PATIENCE if self._until == inf else _HURRIED

    @property
    def hurries(self) -> bool:
        """Whether a job that was given back still runs here."""
        return self._until < inf

    def wake(self) -> None:
        """End a `wait()`."""
        try:
            os.write(self.wake_descriptor, b"\0")
        except BlockingIOError:
            pass
        except OSError as error:
            # Nothing can wake the main thread any more, and other files may have the numbers of its sockets by now.
            logger.error(
                "The descriptors of this process were closed by a job: it ends, and its leases lapse: %s", error
            )
            os._exit(1)

    def wait(self) -> bool:
        """Wait until something is to be looked at: a signal, a service's end; false where time is up."""
        if readable([self._reading], self._until - monotonic()):
            os.read(self._reading, 4096)
        return monotonic() < self._until

    def end_process(self, code: int = 0) -> None:
        """Emit what waits, flush, and end at once: a thread whose job was given back must not run on."""
        emitter.flush(_OTHERS if self.hurries else _EMISSIONS)
        # In another thread: a pipe that nobody reads holds up whoever writes.
        flush = threading.Thread(target=_flush, name="delayq-flush", daemon=True)
        flush.start()
        flush.join(self.patience)
        os._exit(code)


def _flush() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        # A task may have closed or replaced it.
        with suppress(Exception):
            stream.flush()
