"""Leases: the claims that a worker holds, and the heartbeats that renew their leases."""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from time import monotonic
from typing import Protocol

from django_delayq.clock import SECOND_US, lease_time
from django_delayq.conf.config import longest_wait_us
from django_delayq.job.job import Claim
from django_delayq.job.outcome import UNSTARTED, WORKER_STOPPED, Outcome, OutcomeKind
from django_delayq.job.progress import Progress
from django_delayq.logs import job_fields, logger
from django_delayq.processes.service import Runnable, Service
from django_delayq.store.claims import HeartbeatReply
from django_delayq.worker.claiming.worker_notification import WorkerNotification
from django_delayq.worker.outcome_buffer import OutcomeBuffer
from django_delayq.worker.pools.base import Pool

#: Share of a lease for which the worker trusts it; the rest allows for clock differences and slow replies.
_TRUST = 0.9
#: Seconds after which the lease of a claim whose code has not begun is no longer renewed. A child process has a minute
#: to start, and the pause after a failed start is at most half a minute.
_LATEST_BEGIN = 120.0
#: Seconds between two writes of progress.
_PROGRESS_EVERY = 0.5
#: A repeated stop reaches the pool only if it changes the end of the code by more than these seconds.
_TOLERANCE = 0.5
_INTERRUPTED = Outcome(kind=OutcomeKind.INTERRUPTED, error=WORKER_STOPPED)


class Heartbeat(Protocol):
    """`Claims.heartbeat`."""

    def __call__(
        self, leases: list[bytes], queues: Collection[str], progress: Mapping[bytes, Progress], /
    ) -> HeartbeatReply:
        """Send a heartbeat."""


class HeldClaims(Runnable):
    """The claims that a worker has not settled; a service of their own renews their leases.

    Its thread also stores the progress of their jobs, and learns which of them to stop.
    """

    def __init__(
        self,
        heartbeat: Heartbeat,
        is_stuck: Callable[[float], bool] = lambda _: False,
        *,
        lease_us: int,
        name: str = "",
        ended: Callable[[], object] = lambda: None,
        stop_claim: Callable[[bytes, float], object] = lambda *_: None,
        quiet: Callable[[bool], object] = lambda _: None,
        notification: WorkerNotification | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`is_stuck` is `Pool.is_stuck`, `stop_claim` is `Pool.stop`, `quiet` is `Worker.quiet`.

        The heartbeat thread calls `ended` when it ends. Without a `notification` only heartbeats show what to stop.
        """
        self._heartbeat = heartbeat
        self._is_stuck = is_stuck
        self._stop_claim = stop_claim
        self._quiet = quiet
        self._notification = notification
        self._clock = clock
        self._lease = lease_us / SECOND_US
        self._lock = threading.Lock()
        #: Includes claims whose lease was lost: they continue to run, and their outcomes are sent like others.
        self._claims: dict[bytes, Claim] = {}
        #: lease -> moment of `lease_time()` until which it is trusted; without those that were lost
        self._trusted_until: dict[bytes, float] = {}
        #: lease -> monotonic moment when its code began
        self._began: dict[bytes, float] = {}
        #: Leases whose outcomes are in flight: the reply shows whether they were lost.
        self._settling: set[bytes] = set()
        #: lease -> monotonic moment at which its code must have ended, of jobs that somebody asked to stop
        self._stopping: dict[bytes, float] = {}
        #: lease -> progress that is not stored yet
        self._progress: dict[bytes, Progress] = {}
        #: Monotonic moments of the next heartbeat, and before which no progress is written.
        self._beat_at, self._write_at = 0.0, 0.0
        #: The worker was notified since the last heartbeat, so one is sent even without claims.
        self._notified = False
        # In a thread of its own: heartbeats must not wait for an exchange, nor for user code. After an outage they must
        # not pause for longer than the dispatcher spares their leases.
        longest_wait = longest_wait_us(lease_us) / SECOND_US
        self._heartbeats = Service(self, name=f"Heartbeats of {name}", longest_wait=longest_wait)
        self._on_ended = ended

    def __len__(self) -> int:
        return len(self._claims)

    def __iter__(self) -> Iterator[Claim]:
        """Iterate over a copy; safe in another thread."""
        return iter(list(self._claims.values()))

    def start(self) -> None:
        """Start the thread that sends heartbeats."""
        threading.Thread(target=self._renew, name="delayq-heartbeats", daemon=True).start()

    def step(self) -> float | None:
        """Send a heartbeat for the held leases if it is time, or write progress; return the seconds until the next.

        Heartbeats are a third of a lease apart. Raises SystemExit, which ends the worker, if every slot has been past
        its job's hard limit for a whole lease.
        """
        if self.stopped:
            return None
        now = self._clock()
        if now >= self._beat_at:
            self.beat()
            self._beat_at = now + self._lease / 3
            if self._is_stuck(self._lease):
                raise SystemExit("every slot has a job beyond its hard limit, and no thread can be ended")
        elif self._progress and now >= self._write_at:
            self.beat(of_progress=True)
        next_at = min(self._beat_at, self._write_at) if self._progress else self._beat_at
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

    def add(self, claims: Iterable[Claim]) -> None:
        """Hold these claims; their leases count from the moment the request was sent."""
        with self._lock:
            for claim in claims:
                self._claims[claim.lease] = claim
                self._trusted_until[claim.lease] = claim.sent_at + self._lease * _TRUST

    def settling(self, leases: Iterable[bytes]) -> None:
        """Mark leases whose outcomes are in flight: a heartbeat that arrives later finds no lease, yet none is lost."""
        with self._lock:
            self._settling.update(leases)

    def settled(self, leases: Iterable[bytes]) -> None:
        """Remove claims that were settled or lost."""
        with self._lock:
            for lease in leases:
                self._claims.pop(lease, None)
                self._trusted_until.pop(lease, None)
                self._began.pop(lease, None)
                self._settling.discard(lease)
                self._stopping.pop(lease, None)
                self._progress.pop(lease, None)

    def interrupt_all(self, outcomes: OutcomeBuffer, pool: Pool, *, settling: Iterable[bytes]) -> None:
        """Buffer an outcome for each claim that has none: interrupted, or unstarted if its code has not begun."""
        known = outcomes.leases().union(settling)
        if left := [claim for claim in self if claim.lease not in known]:
            # First: a claim that waits in the pool must not begin after it was settled as unstarted.
            pool.close()
        for claim in left:
            outcomes.add(claim, _INTERRUPTED if pool.has_begun(claim) else UNSTARTED)

    def beat(self, *, of_progress: bool = False) -> frozenset[bytes]:
        """Renew the leases of jobs within their hard time limit; removes and returns the leases that were lost.

        A job beyond its limit keeps running in its thread, but its lease is not renewed, so that another worker can
        claim the job. With `of_progress` only those whose progress is to be stored are renewed.
        """
        with self._lock:
            leases = (
                [each for each in self._progress if each in self._trusted_until]
                if of_progress
                else [*self._trusted_until]
            )
            claims = [(self._claims[lease], self._began.get(lease)) for lease in leases]
            progress, self._progress = self._progress, {}
        sent_at, now = lease_time(), monotonic()
        due = [claim for claim, began in claims if not _is_overdue(claim, began, now)]
        queues = {claim.queue for claim in due}
        reply = HeartbeatReply()
        if due or self._notified:
            self._write_at = self._clock() + _PROGRESS_EVERY
            try:
                reply = self._heartbeat([claim.lease for claim in due], queues, progress)
            except BaseException:
                with self._lock:
                    self._progress = {**progress, **self._progress}
                raise
            self._notified = False
            self._quiet(reply.quiet)
        lost = reply.lost
        with self._lock:
            for claim in due:
                if claim.lease in self._trusted_until and claim.lease not in lost:
                    self._trusted_until[claim.lease] = sent_at + self._lease * _TRUST
            lost = frozenset(lease for lease in lost if lease in self._trusted_until and lease not in self._settling)
            # Before anything is logged: a thread of the pool may call `trusts()` meanwhile.
            for lease in lost:
                del self._trusted_until[lease]
                self._began.pop(lease, None)
        for claim in due:
            if claim.lease in lost:
                fields = job_fields(claim.id, claim.job, claim.attempt)
                text = "Job %s: lease lost; it may run again elsewhere while it still runs here"
                logger.warning(text, claim.id, extra=fields)
        for lease, left_us in reply.stops.items():
            self._stop(lease, left_us / SECOND_US)
        return lost

    def report_progress(self, lease: bytes, progress: Progress) -> None:
        """Store the progress of a held claim within half a second; called by its code."""
        with self._lock:
            if lease not in self._trusted_until:
                return
            is_first = not self._progress
            self._progress[lease] = progress
        if is_first:
            self._heartbeats.wake()

    def is_stopping(self, lease: bytes) -> bool:
        """Return whether somebody asked the job of a held claim to stop."""
        # Without the lock: one look-up in a dict that is mostly empty, for each job.
        return lease in self._stopping

    def _stop(self, lease: bytes, seconds: float) -> None:
        until = monotonic() + seconds
        with self._lock:
            claim, known = self._claims.get(lease), self._stopping.get(lease)
            if claim is None or (known is not None and _is_same_end(known, until, seconds)):
                return
            self._stopping[lease] = until
        if known is None:
            fields = job_fields(claim.id, claim.job, claim.attempt)
            logger.info("Job %s: asked to stop within %.1f s", claim.id, seconds, extra=fields)
        self._stop_claim(lease, seconds)

    def trusts(self, lease: bytes) -> bool:
        """Return whether the lease is surely still held, by this process's own clock."""
        # Without the lock: one look-up in a dict, for each job.
        until = self._trusted_until.get(lease)
        return until is not None and lease_time() < until

    def begin(self, lease: bytes) -> bool:
        """Start the hard limit. Returns False if the code must not run: lease maybe lost, or job asked to stop."""
        with self._lock:
            if not self.trusts(lease) or lease in self._stopping:
                return False
            self._began[lease] = monotonic()
            return True

    def check(self) -> None:
        """Raise SystemExit if the heartbeat thread died: every job longer than LEASE would run twice."""
        if self._heartbeats.ended.is_set() and not self._heartbeats.stopped:
            error = self._heartbeats.error
            raise SystemExit(f"The thread of {self._heartbeats.name} died: {error!r}") from error

    def end_heartbeats(self) -> None:
        """End the thread."""
        self._heartbeats.stop()

    def _renew(self) -> None:
        try:
            self._heartbeats.run()
        finally:
            self._on_ended()


def _is_same_end(known: float, until: float, seconds: float) -> bool:
    # Every heartbeat repeats a stop. Once its end is over, the end is always now.
    return abs(until - known) <= _TOLERANCE or (seconds <= 0 and known <= until)


def _is_overdue(claim: Claim, began: float | None, now: float) -> bool:
    if began is None:
        return now > claim.received_at + _LATEST_BEGIN
    return now > began + claim.hard_limit
