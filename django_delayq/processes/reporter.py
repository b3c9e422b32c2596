"""Process reporter: sends the status, the metrics and the endings of a dispatcher or worker to Redis.

It runs as a service in its own thread, so that a slow report delays no job. A report renews no lease: the heartbeats of
`worker/claiming/leases.py` do.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from time import monotonic, time_ns
from typing import Any, Protocol

from django_delayq._version import __version__
from django_delayq.conf.settings import project_keys, project_name
from django_delayq.exceptions import StoreError
from django_delayq.job.ending import EndingBuffer
from django_delayq.job.job import Claim
from django_delayq.metrics import MetricsBuffer
from django_delayq.processes.memory import rss_bytes
from django_delayq.processes.service import Runnable, Service, process_name
from django_delayq.processes.ticks import until_tick
from django_delayq.store.process_reports import ProcessReports

#: The most queues that a report names.
_QUEUES = 50
_STARTED_US = time_ns() // 1_000


class ReportSource(Protocol):
    """A dispatcher or a worker."""

    kind: str
    metrics: MetricsBuffer
    endings: EndingBuffer

    @property
    def worker_id(self) -> bytes:
        """Its code in Redis."""

    def status(self) -> dict[str, Any]:
        """Return what the dashboard shows besides the facts about the process."""

    def quiet(self, wanted: bool) -> None:
        """Claim no more jobs if that is wanted, else claim jobs again."""


class ProcessReporter(Runnable):
    """Reports of one dispatcher or worker of one shard."""

    #: Seconds between two reports. An idle process sends Redis little else.
    every = 15.0

    def __init__(self, reports: ProcessReports, source: ReportSource) -> None:
        self._reports = reports
        self._source = source
        self._service = Service(self, name=f"Reporter of {process_name()}")

    def start(self) -> None:
        """Start a thread that reports."""
        threading.Thread(target=self._service.run, name="delayq-reporter", daemon=True).start()

    def step(self) -> float | None:
        """Report once; return the seconds until the next report."""
        if self.stopped:
            return None
        source = self._source
        status = {
            "name": process_name(),
            "version": __version__,
            "project": project_name(),
            "project_keys": project_keys(),
            "started_us": _STARTED_US,
            "rss": rss_bytes(),
            **source.status(),
        }
        rows, endings = source.metrics.take(), source.endings.take()
        try:
            source.quiet(self._reports.report(source.worker_id, source.kind, status, rows, endings))
        except StoreError:
            source.metrics.restore(rows)
            source.endings.restore(endings)
            raise
        return until_tick(self.every)

    def deregister(self) -> None:
        """Send the last metrics and endings, and remove the process from Redis.

        If this fails, the dashboard shows it as lost.
        """
        self._service.stop()
        self._service.ended.wait()
        with suppress(StoreError):
            rows, endings = self._source.metrics.take(), self._source.endings.take()
            self._reports.deregister(self._source.worker_id, rows, endings, name=process_name())


@contextmanager
def reporting(
    reporters: Sequence[ProcessReporter], *, patience: Callable[[], float], clock: Callable[[], float] = monotonic
) -> Iterator[None]:
    """Report during the `with` block; at its end, deregister all reporters at the same time.

    `patience` is called at the end of the block and returns the seconds that deregistering may take.
    """
    for reporter in reporters:
        reporter.start()
    try:
        yield
    finally:
        # In threads, with a limited wait: a Redis that does not answer must not keep the process from ending.
        threads = [
            threading.Thread(target=each.deregister, name="delayq-deregister", daemon=True) for each in reporters
        ]
        until = clock() + patience()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(max(0.0, until - clock()))


def claims_status(
    claims: Sequence[Claim], *, queues: Sequence[str], filtered: bool = False, weights: Sequence[int] = ()
) -> dict[str, Any]:
    """Return the part of a worker's status about its jobs and queues; bounded, so that reports stay short.

    `filtered`: the queues are the items of a queue filter. `weights`: those of the queues, in their order.
    """
    return {
        "queues": queues[:_QUEUES],
        # Older releases ignore `filtered`. This keeps them from showing other queues as not served.
        "more_queues": filtered or len(queues) > _QUEUES,
        "filtered": filtered and len(queues) <= _QUEUES,
        "weights": weights[:_QUEUES],
        "running": dict(Counter(claim.queue for claim in claims).most_common(_QUEUES)),
        "oldest_us": min((claim.claimed_us for claim in claims), default=None),
    }
