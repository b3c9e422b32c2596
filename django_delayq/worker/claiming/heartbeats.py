"""Heartbeats: they renew the leases of a worker, store the progress of its jobs, and learn which of them to stop."""

import threading
from collections.abc import Callable, Collection, Mapping
from time import monotonic
from typing import Protocol

from django_delayq.clock import SECOND_US, lease_time
from django_delayq.conf.config import longest_wait_us
from django_delayq.job.progress import Progress
from django_delayq.logs import job_fields, logger
from django_delayq.processes.service import Runnable, Service
from django_delayq.store.claims import HeartbeatReply
from django_delayq.worker.claiming.leases import HeldClaims
from django_delayq.worker.claiming.worker_notification import WorkerNotification

#: Seconds between two writes of progress.
_PROGRESS_EVERY = 0.5


class Send(Protocol):
    """`Claims.heartbeat`."""

    def __call__(
        self, leases: list[bytes], queues: Collection[str], progress: Mapping[bytes, Progress], /
    ) -> HeartbeatReply:
        """Send a heartbeat."""


class Heartbeats(Runnable):
    """The heartbeats of one worker. They have their own thread, so that they wait for no exchange and no user code."""

    def __init__(
        self,
        held: HeldClaims,
        send: Send,
        *,
        lease_us: int,
        name: str = "",
        notification: WorkerNotification | None = None,
        is_stuck: Callable[[float], bool] = lambda _: False,
        quiet: Callable[[bool], object] = lambda _: None,
        ended: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`is_stuck` is `Pool.is_stuck`, `quiet` is `Worker.quiet`; `ended` is called when the thread ends.

        Without a `notification` only heartbeats show what to stop.
        """
        self._held = held
        self._send = send
        self._lease = lease_us / SECOND_US
        self._notification = notification
        self._is_stuck = is_stuck
        self._quiet = quiet
        self._on_ended = ended
        self._clock = clock
        #: Monotonic moments of the next heartbeat, and before which no progress is written.
        self._beat_at, self._write_at = 0.0, 0.0
        #: The worker was notified since the last heartbeat, so one is sent even without claims.
        self._notified = False
        # After an outage the next heartbeat must come before the dispatcher reclaims the leases.
        longest_wait = longest_wait_us(lease_us) / SECOND_US
        self._service = Service(self, name=f"Heartbeats of {name}", longest_wait=longest_wait)

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="delayq-heartbeats", daemon=True).start()

    def check(self) -> None:
        """Raise SystemExit if the heartbeat thread died: every job longer than LEASE would run twice."""
        if self._service.ended.is_set() and not self._service.stopped:
            error = self._service.error
            raise SystemExit(f"The thread of {self._service.name} died: {error!r}") from error

    def end(self) -> None:
        """End the thread."""
        self._service.stop()

    def report_progress(self, lease: bytes, progress: Progress) -> None:
        """Store the progress of a held claim within half a second; called by its code."""
        if self._held.keep_progress(lease, progress):
            self._service.wake()

    def step(self) -> float | None:
        """Send a heartbeat for the held leases if it is time, or write progress; return the seconds until the next.

        Heartbeats are a third of a lease apart. Raises SystemExit, which ends the worker, if jobs that are past their
        hard limits by a whole lease keep all others from going on.
        """
        if self.stopped:
            return None
        now = self._clock()
        if now >= self._beat_at:
            self.beat()
            self._beat_at = now + self._lease / 3
            if self._is_stuck(self._lease):
                raise SystemExit("jobs beyond their hard limits keep all others from going on, and cannot be ended")
        elif self._held.has_progress and now >= self._write_at:
            self.beat(progress_only=True)
        next_at = min(self._beat_at, self._write_at) if self._held.has_progress else self._beat_at
        return max(0.001, next_at - self._clock())

    def listen(self) -> int:
        """Listen for the worker's own notification; return the socket to wait on, or -1. Raises `StoreError`."""
        return self._notification.listen() if self._notification else -1

    def on_wakeup(self) -> None:
        """Read the notification; the next step is a heartbeat at once. Raises `StoreError`."""
        if self._notification is None:
            return
        before = self._beat_at, self._notified
        # Also after an error: a server that loads its data accepts connections, but no heartbeat.
        self._beat_at, self._notified = 0.0, True
        if not self._notification.arrived():
            self._beat_at, self._notified = before

    def close(self) -> None:
        """Close the connection that listens."""
        if self._notification:
            self._notification.close()

    def beat(self, *, progress_only: bool = False) -> frozenset[bytes]:
        """Renew the held leases, or with `progress_only` only those whose progress is to be stored.

        Removes and returns the leases that were lost.
        """
        sent_at = lease_time()
        due, progress = self._held.take_due(progress_only=progress_only)
        reply = HeartbeatReply()
        if due or self._notified:
            self._write_at = self._clock() + _PROGRESS_EVERY
            try:
                reply = self._send([claim.lease for claim in due], {claim.queue for claim in due}, progress)
            except BaseException:
                self._held.put_back(progress)
                raise
            self._notified = False
            self._quiet(reply.quiet)
        lost = self._held.renewed(due, sent_at=sent_at, lost=reply.lost)
        for claim in due:
            if claim.lease in lost:
                fields = job_fields(claim.id, claim.job, claim.attempt)
                text = "Job %s: lease lost; it may run again elsewhere while it still runs here"
                logger.warning(text, claim.id, extra=fields)
        for lease, left_us in reply.stops.items():
            self._held.stop(lease, left_us / SECOND_US)
        return lost

    def _run(self) -> None:
        try:
            self._service.run()
        finally:
            self._on_ended()
