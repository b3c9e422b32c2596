"""Presence: a dispatcher or worker tells Redis that it lives, what it does, and what it added up.

Run by a service of its own, so that nothing it waits for makes a job wait.
"""

import os
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from time import time_ns
from typing import Any, Protocol, Self

import django_delayq
from django_delayq.exceptions import StoreError
from django_delayq.job import Claim
from django_delayq.service import Service, process_name
from django_delayq.store.reports import Reports
from django_delayq.tally import Tally, packed

#: Seconds between two reports. Idle, a process asks Redis for little else.
_EVERY = 15.0
#: Seconds that taking leave may hold up the end of a process.
_LEAVE = 1.0
#: Queues named, at most.
_QUEUES = 50
_STARTED_US = time_ns() // 1_000


class Present(Protocol):
    """What a presence tells of: a dispatcher or a worker."""

    kind: str
    tally: Tally

    @property
    def code(self) -> bytes:
        """How Redis knows it."""

    def says(self) -> dict[str, Any]:
        """Return what the dashboard shows of it besides its process."""

    def quiet(self, asked: bool) -> None:
        """Take no more jobs, or take them again."""


class Presence:
    """What the dashboard is told of one dispatcher or worker of one shard, for as long as the `with` block lasts."""

    def __init__(self, reports: Reports, of: Present) -> None:
        self._reports = reports
        self._of = of
        self._stopped = False
        self._service = Service(self, name=f"Presence of {process_name()}")

    def __enter__(self) -> Self:
        threading.Thread(target=self._service.run, name="delayq-presence", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        # In another thread, and not waited for: a Redis that does not answer may not keep the process from ending, and
        # who does not take its leave is seen to be lost.
        leave = threading.Thread(target=self._leave, name="delayq-leave", daemon=True)
        leave.start()
        leave.join(_LEAVE)

    def step(self) -> float | None:
        """Report once; return the seconds until the next time."""
        if self._stopped:
            return None
        rows = self._of.tally.take()
        try:
            self._of.quiet(self._reports.report(self._of.code, self._of.kind, self._said(), packed(rows)))
        except StoreError:
            self._of.tally.put_back(rows)
            raise
        return _EVERY

    def listen(self) -> int:
        """Nothing wakes it."""
        return -1

    def heard(self) -> None:
        """Nothing is heard."""

    def stop(self) -> None:
        """Report no more."""
        self._stopped = True

    def close(self) -> None:
        """There is nothing to let go of."""

    def _leave(self) -> None:
        self._service.stop()
        self._service.ended.wait()
        with suppress(StoreError):
            self._reports.leave(self._of.code, packed(self._of.tally.take()))

    def _said(self) -> dict[str, Any]:
        return {
            "name": process_name(),
            "version": django_delayq.__version__,
            "started_us": _STARTED_US,
            "rss": _resident(),
            **self._of.says(),
        }


def told_of(claims: Sequence[Claim], *, queues: Sequence[str]) -> dict[str, Any]:
    """Return what is told of the jobs and queues of a worker: no more than fits into one short record."""
    return {
        "queues": queues[:_QUEUES],
        "busy": dict(Counter(claim.queue for claim in claims).most_common(_QUEUES)),
        "oldest_us": min((claim.claimed_us for claim in claims), default=None),
    }


def _resident() -> int:
    """Return the bytes of memory this process has in RAM; 0 where the system does not tell."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0
