"""Presence: a dispatcher or worker tells Redis that it lives, what it does, and what it added up.

Run by a service of its own, so that nothing it waits for makes a job wait.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic, time_ns
from typing import Any, Protocol

from django_delayq._version import __version__
from django_delayq.exceptions import StoreError
from django_delayq.job.job import Claim
from django_delayq.metrics import MetricsBuffer, encode_rows
from django_delayq.processes.memory import rss_bytes
from django_delayq.processes.service import PeriodicRunnable, Service, process_name
from django_delayq.store.process_reports import ProcessReports

#: Seconds between two reports. Idle, a process asks Redis for little else.
_EVERY = 15.0
#: Queues named, at most.
_QUEUES = 50
_STARTED_US = time_ns() // 1_000


class ReportSource(Protocol):
    """What a presence tells of: a dispatcher or a worker."""

    kind: str
    metrics: MetricsBuffer

    @property
    def worker_id(self) -> bytes:
        """How Redis knows it."""

    def status(self) -> dict[str, Any]:
        """Return what the dashboard shows of it besides its process."""

    def quiet(self, asked: bool) -> None:
        """Take no more jobs, or take them again."""


class ProcessReporter(PeriodicRunnable):
    """What the dashboard is told of one dispatcher or worker of one shard."""

    def __init__(self, reports: ProcessReports, of: ReportSource) -> None:
        self._reports = reports
        self._of = of
        self._service = Service(self, name=f"Presence of {process_name()}")

    def start(self) -> None:
        """Report from a thread of its own."""
        threading.Thread(target=self._service.run, name="delayq-presence", daemon=True).start()

    def step(self) -> float | None:
        """Report once; return the seconds until the next time."""
        if self.stopped:
            return None
        rows = self._of.metrics.take()
        try:
            self._of.quiet(self._reports.report(self._of.worker_id, self._of.kind, self._said(), encode_rows(rows)))
        except StoreError:
            self._of.metrics.restore(rows)
            raise
        return _EVERY

    def deregister(self) -> None:
        """Hand the last figures in and be forgotten; who cannot is seen to be lost."""
        self._service.stop()
        self._service.ended.wait()
        with suppress(StoreError):
            self._reports.deregister(self._of.worker_id, encode_rows(self._of.metrics.take()))

    def _said(self) -> dict[str, Any]:
        return {
            "name": process_name(),
            "version": __version__,
            "started_us": _STARTED_US,
            "rss": rss_bytes(),
            **self._of.status(),
        }


@contextmanager
def reporting(presences: Sequence[ProcessReporter], *, patience: Callable[[], float]) -> Iterator[None]:
    """Let these report for as long as the `with` block lasts, and take their leave, all together.

    `patience` is asked then for the seconds that this may take.
    """
    for presence in presences:
        presence.start()
    try:
        yield
    finally:
        # In other threads, and not waited for longer: a Redis that does not answer may not keep a process from ending.
        leaves = [threading.Thread(target=each.deregister, name="delayq-leave", daemon=True) for each in presences]
        until = monotonic() + patience()
        for leave in leaves:
            leave.start()
        for leave in leaves:
            leave.join(max(0.0, until - monotonic()))


def claims_status(claims: Sequence[Claim], *, queues: Sequence[str]) -> dict[str, Any]:
    """Return what is told of the jobs and queues of a worker: no more than fits into one short record."""
    return {
        "queues": queues[:_QUEUES],
        "more_queues": len(queues) > _QUEUES,
        "busy": dict(Counter(claim.queue for claim in claims).most_common(_QUEUES)),
        "oldest_us": min((claim.claimed_us for claim in claims), default=None),
    }
