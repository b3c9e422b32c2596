"""Child link: what the code of a task in a child process and its worker exchange."""

import os
import threading
from collections.abc import Collection
from contextlib import suppress
from multiprocessing.connection import Connection
from time import monotonic
from typing import Any

from django_delayq.job.progress import Progress
from django_delayq.worker.time_limit import watch

#: Seconds between two values sent to the worker. A loop of short rounds would keep the worker busy with reading.
_SEND_EVERY = 0.5


class ChildLink:
    """The `RunLink` of a claim that runs in this process. Used by any thread."""

    def __init__(self, lease: bytes, pipe: Connection, stops: Collection[bytes]) -> None:
        """`stops` has the leases of the claims that should stop; another thread adds to it."""
        self._lease, self._stops = lease, stops
        self._pipe = pipe
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._latest: Progress | None = None
        self._sent_at = -_SEND_EVERY
        self._ended = False
        #: The watching thread will send the latest value.
        self.active = False

    @property
    def should_stop(self) -> bool:
        """Whether the job was asked to stop."""
        return self._lease in self._stops

    def report_progress(self, progress: Progress) -> None:
        """Send the progress to the worker, at once or within half a second."""
        # A process that the task forked shares the pipe.
        if os.getpid() != self._pid:
            return
        with self._lock:
            self._latest = progress
            wait = self._sent_at + _SEND_EVERY - monotonic()
            if wait <= 0:
                self._send()
            elif not self.active:
                self.active = True
                # Without a thread to send it, the next value is sent when its time has come.
                with suppress(RuntimeError):
                    watch(monotonic() + wait, self)

    def expire(self) -> None:
        """Send the latest value; called by the watching thread."""
        with self._lock:
            self.active = False
            self._send()

    def end(self, reply: Any) -> None:
        """Send the outcome; later values of threads that the task left behind are dropped."""
        with self._lock:
            self._ended = True
            self._pipe.send(reply)

    def _send(self) -> None:
        progress, self._latest = self._latest, None
        if progress is not None and not self._ended:
            self._sent_at = monotonic()
            # The task may have closed its descriptors.
            with suppress(OSError):
                self._pipe.send(progress)
