"""Reminder: logs a warning under runserver if nobody runs the first job that is enqueued.

Only the development server has it, so an enqueue elsewhere costs nothing more.
"""

import threading
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_delayq.conf.settings import is_debug
from django_delayq.exceptions import StoreError, see
from django_delayq.logs import logger
from django_delayq.monitoring.liveness import check_liveness
from django_delayq.signals import job_enqueued
from django_delayq.store.store import get_store

#: Seconds from the first enqueue to the look: who has just started a worker needs no reminder.
PATIENCE = 3.0
_SEE = see("troubleshooting#nothing-runs")


class Reminder:
    """Looks once, after the first enqueue of the process, and logs a warning if nobody runs jobs."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._lock = threading.Lock()
        self._is_over = False

    def start(self) -> None:
        """Wait for the first enqueue. The signals keep a weak reference to receivers, but not to this one."""
        job_enqueued.connect(self._on_enqueued, weak=False, dispatch_uid=__name__)

    def _on_enqueued(self, job: Any, **_: Any) -> None:
        with self._lock:
            is_first, self._is_over = not self._is_over, True
        if not is_first:
            return
        job_enqueued.disconnect(dispatch_uid=__name__)
        if is_debug():
            timer = threading.Timer(self._patience, self._look, [job.backend, job.queue])
            timer.daemon = True
            timer.start()

    def _look(self, backend: str | None, queue: str) -> None:
        try:
            store = get_store(backend)
            sentences = check_liveness(store).still
            # The job has not waited long enough for that, or is not due yet.
            if not sentences and not store.snapshot().is_served(queue, lease_us=store.config.worker.lease_us):
                sentences = [f"No worker serves the queue {queue!r}: start run_worker. {_SEE}"]
        except (ImproperlyConfigured, StoreError):
            # The next enqueue raises it, where somebody sees it.
            return
        for sentence in sentences:
            logger.warning("%s", sentence)
