"""Leases: the claims that a worker holds."""

import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from time import monotonic

from django_delayq.clock import SECOND_US, lease_time
from django_delayq.job.job import Claim
from django_delayq.job.outcome import UNSTARTED, WORKER_STOPPED, Outcome, OutcomeKind
from django_delayq.job.progress import Progress
from django_delayq.logs import job_fields, logger
from django_delayq.worker.outcome_buffer import OutcomeBuffer
from django_delayq.worker.pools.base import Pool

#: Share of a lease for which the worker trusts it; the rest allows for clock differences and slow replies.
_TRUST = 0.9
#: Seconds after which the lease of a claim whose code has not begun is no longer renewed. A child process has a minute
#: to start, and the pause after a failed start is at most half a minute.
_LATEST_BEGIN = 120.0
#: A repeated stop reaches the pool only if it changes the end of the code by more than these seconds.
_TOLERANCE = 0.5
_INTERRUPTED = Outcome(kind=OutcomeKind.INTERRUPTED, error=WORKER_STOPPED)


class HeldClaims:
    """The claims that a worker has not settled, and what is known of each. Used by any thread."""

    def __init__(self, *, lease_us: int, stop_claim: Callable[[bytes, float], object] = lambda *_: None) -> None:
        """`stop_claim` is `Pool.stop`."""
        self._stop_claim = stop_claim
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
        #: The jobs that somebody stopped: lease -> monotonic moment by which the code must end. Other classes read it
        #: without the lock.
        self.stopping: dict[bytes, float] = {}
        #: lease -> progress that is not stored yet
        self._progress: dict[bytes, Progress] = {}

    def __len__(self) -> int:
        return len(self._claims)

    def __iter__(self) -> Iterator[Claim]:
        """Iterate over a copy; safe in another thread."""
        return iter(list(self._claims.values()))

    def without(self, settled: Iterable[Claim]) -> list[Claim]:
        """Return all claims but these, whose outcomes the next request has."""
        leases = {claim.lease for claim in settled}
        return [claim for claim in self if claim.lease not in leases]

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
                # Both are mostly empty; the test costs a fifth of the removal.
                if self.stopping:
                    self.stopping.pop(lease, None)
                if self._progress:
                    self._progress.pop(lease, None)

    def interrupt_all(self, outcomes: OutcomeBuffer, pool: Pool, *, settling: Iterable[bytes]) -> None:
        """Buffer an outcome for each claim that has none: interrupted, or unstarted if its code has not begun."""
        known = outcomes.leases().union(settling)
        if left := [claim for claim in self if claim.lease not in known]:
            # First: a claim that waits in the pool must not begin after it was settled as unstarted.
            pool.close()
        for claim in left:
            outcomes.add(claim, _INTERRUPTED if pool.has_begun(claim) else UNSTARTED)

    def trusts(self, lease: bytes) -> bool:
        """Return whether the lease is surely still held, by this process's own clock."""
        # Without the lock: one look-up in a dict, for each job.
        until = self._trusted_until.get(lease)
        return until is not None and lease_time() < until

    def begin(self, lease: bytes) -> bool:
        """Start the hard limit. Return False if the code must not run: lease maybe lost, or job asked to stop."""
        with self._lock:
            if not self.trusts(lease) or lease in self.stopping:
                return False
            self._began[lease] = monotonic()
            return True

    @property
    def has_progress(self) -> bool:
        """Whether a progress is not stored yet."""
        return bool(self._progress)

    def keep_progress(self, lease: bytes, progress: Progress) -> bool:
        """Keep the progress of a claim for the next write; return whether it is the only one."""
        with self._lock:
            if lease not in self._trusted_until:
                return False
            is_first = not self._progress
            self._progress[lease] = progress
            return is_first

    def take_due(self, *, progress_only: bool) -> tuple[list[Claim], dict[bytes, Progress]]:
        """Return the claims whose leases are to be renewed, and take the progress that is to be stored.

        A job beyond its hard limit keeps running in its thread, but its lease is not renewed, so that another worker
        can claim the job. With `progress_only`, only the leases of claims whose progress is taken are renewed.
        """
        with self._lock:
            progress, self._progress = self._progress, {}
            leases = (
                [each for each in progress if each in self._trusted_until] if progress_only else self._trusted_until
            )
            claims = [(self._claims[lease], self._began.get(lease)) for lease in leases]
        now = monotonic()
        return [claim for claim, began in claims if not _is_overdue(claim, began, now)], progress

    def put_back(self, progress: dict[bytes, Progress]) -> None:
        """Keep what `take_due()` took, since it was not stored; a later progress stays."""
        with self._lock:
            self._progress = {**progress, **self._progress}

    def renewed(self, claims: Iterable[Claim], *, sent_at: float, lost: Collection[bytes]) -> frozenset[bytes]:
        """Trust renewed leases from `sent_at` (`lease_time()`) on; remove and return those that were lost."""
        with self._lock:
            for claim in claims:
                if claim.lease in self._trusted_until and claim.lease not in lost:
                    self._trusted_until[claim.lease] = sent_at + self._lease * _TRUST
            gone = frozenset(lease for lease in lost if lease in self._trusted_until and lease not in self._settling)
            # Before anything is logged: a thread of the pool may call `trusts()` meanwhile.
            for lease in gone:
                del self._trusted_until[lease]
                self._began.pop(lease, None)
        return gone

    def stop(self, lease: bytes, seconds: float) -> None:
        """Ask the code of a claim to end within that many seconds. A request with the same end has no effect."""
        until = monotonic() + seconds
        with self._lock:
            claim, known = self._claims.get(lease), self.stopping.get(lease)
            if claim is None or (known is not None and _is_same_end(known, until, seconds)):
                return
            self.stopping[lease] = until
        if known is None:
            fields = job_fields(claim.id, claim.job, claim.attempt)
            logger.info("Job %s: asked to stop within %.1f s", claim.id, seconds, extra=fields)
        self._stop_claim(lease, seconds)


def _is_same_end(known: float, until: float, seconds: float) -> bool:
    # Every heartbeat repeats a stop. Once its end is over, the end is always now.
    return abs(until - known) <= _TOLERANCE or (seconds <= 0 and known <= until)


def _is_overdue(claim: Claim, began: float | None, now: float) -> bool:
    if began is None:
        return now > claim.received_at + _LATEST_BEGIN
    return now > began + claim.hard_limit
