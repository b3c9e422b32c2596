"""Leases: heartbeats what a worker holds, as a part run by a service of its own; tells which leases are lost."""

import threading
from collections.abc import Callable, Iterable, Iterator
from time import monotonic

from django_delayq.clock import SECOND_US, lease_time
from django_delayq.conf.config import longest_wait_us
from django_delayq.job.job import Claim
from django_delayq.job.outcome import STOPPED, UNSTARTED, Outcome, OutcomeKind
from django_delayq.log import logger
from django_delayq.processes.service import PeriodicRunnable, Service
from django_delayq.worker.outcome_buffer import OutcomeBuffer
from django_delayq.worker.pools.base import Pool

#: Share of a lease after which the worker itself takes it for lost: clocks and answers take time.
_TRUST = 0.9
#: Seconds after which a claim whose code has not begun is renewed no longer. Its own process has a minute to start, and
#: the pause after one that failed is half a minute at most.
_LATEST_BEGIN = 120.0


class Leases(PeriodicRunnable):
    """The leases one worker holds on one shard."""

    def __init__(
        self,
        heartbeat: Callable[[list[bytes], set[str]], frozenset[bytes]],
        is_stuck: Callable[[float], bool] = lambda _: False,
        *,
        lease_us: int,
    ) -> None:
        self._heartbeat = heartbeat
        self._is_stuck = is_stuck
        self._lease = lease_us / SECOND_US
        self._lock = threading.Lock()
        #: lease -> (claim, moment of `lease_time()` until which it is trusted)
        self._held: dict[bytes, tuple[Claim, float]] = {}
        #: lease -> monotonic moment when its code began
        self._began: dict[bytes, float] = {}
        #: Leases whose outcome is on its way: the exchange tells whether they were lost.
        self._settling: set[bytes] = set()

    def step(self) -> float | None:
        """Send a heartbeat for what is held; return the seconds until the next, a third of a lease.

        Raises SystemExit, which ends the worker, where every slot has been past its job's hard limit for a lease.
        """
        if self.stopped:
            return None
        self.beat()
        if self._is_stuck(self._lease):
            raise SystemExit("every slot is held by a job beyond its hard limit, and no thread can be ended")
        return self._lease / 3

    def add(self, claims: Iterable[Claim]) -> None:
        """Hold these from now on; their leases count from before the claim was sent."""
        with self._lock:
            for claim in claims:
                self._held[claim.lease] = (claim, claim.sent_at + self._lease * _TRUST)

    def settling(self, leases: Iterable[bytes]) -> None:
        """Hand the outcomes of these in: a heartbeat that arrives after them finds no lease, and nothing is lost."""
        with self._lock:
            self._settling.update(leases)

    def drop(self, leases: Iterable[bytes]) -> None:
        """Hold these no longer."""
        with self._lock:
            for lease in leases:
                self._held.pop(lease, None)
                self._began.pop(lease, None)
                self._settling.discard(lease)

    def beat(self) -> frozenset[bytes]:
        """Push on the leases of jobs that are within their hard time limit; returns and drops those that are lost.

        A job beyond its limit keeps running in its thread, but its lease is let go, so that it is tried again
        elsewhere.
        """
        with self._lock:
            claims = [(claim, self._began.get(lease)) for lease, (claim, _) in self._held.items()]
        sent_at, now = lease_time(), monotonic()
        due = [claim for claim, began in claims if not _given_up(claim, began, now)]
        queues = {claim.queue for claim in due}
        lost = self._heartbeat([claim.lease for claim in due], queues) if due else frozenset()
        with self._lock:
            for claim in due:
                if claim.lease in self._held and claim.lease not in lost:
                    self._held[claim.lease] = (claim, sent_at + self._lease * _TRUST)
            lost = frozenset(lease for lease in lost if lease in self._held and lease not in self._settling)
            # Before anything is logged: a pool thread may ask meanwhile.
            for lease in lost:
                del self._held[lease]
                self._began.pop(lease, None)
        for claim in due:
            if claim.lease in lost:
                logger.warning("Job %s: lease lost, it is tried again elsewhere while it still runs here", claim.id)
        return lost

    def trusts(self, lease: bytes) -> bool:
        """Whether the lease is surely still held, by this process's own clock."""
        # Without the lock: one look at the dict, for each job.
        held = self._held.get(lease)
        return held is not None and lease_time() < held[1]

    def begin(self, lease: bytes) -> bool:
        """Count the job's hard limit from now; false if the lease is not surely held, and its code must not run."""
        with self._lock:
            if not self.trusts(lease):
                return False
            self._began[lease] = monotonic()
            return True


def _given_up(claim: Claim, began: float | None, now: float) -> bool:
    if began is None:
        return now > claim.received_at + _LATEST_BEGIN
    return now > began + claim.hard_limit


_CUT_SHORT = Outcome(kind=OutcomeKind.INTERRUPTED, error=STOPPED)


class HeldClaims:
    """What a worker is to settle, and the leases it has for it."""

    def __init__(
        self,
        heartbeat: Callable[[list[bytes], set[str]], frozenset[bytes]],
        is_stuck: Callable[[float], bool],
        *,
        lease_us: int,
        name: str,
        ended: Callable[[], object],
    ) -> None:
        """`is_stuck` is `Pool.is_stuck`; the heartbeat thread calls `ended` when it ends, and `check()` raises why."""
        self.leases = Leases(heartbeat, is_stuck, lease_us=lease_us)
        #: Also those whose lease was lost: they run on, and their outcomes are handed in all the same.
        self._claims: dict[bytes, Claim] = {}
        # In a thread of its own: heartbeats must not wait for an exchange, nor for user code.
        # Nor may they sleep off an outage for longer than the dispatcher spares their leases.
        longest_wait = longest_wait_us(lease_us) / SECOND_US
        self._heartbeats = Service(self.leases, name=f"Heartbeats of {name}", longest_wait=longest_wait)
        self._tell_ended = ended
        threading.Thread(target=self._renew, name="delayq-heartbeats", daemon=True).start()

    def __len__(self) -> int:
        return len(self._claims)

    def __iter__(self) -> Iterator[Claim]:
        """Go through those of this moment; also from another thread."""
        return iter(list(self._claims.values()))

    def add(self, claims: Iterable[Claim]) -> None:
        """Hold these from now on."""
        self.leases.add(claims)
        self._claims.update((claim.lease, claim) for claim in claims)

    def settled(self, leases: Iterable[bytes]) -> None:
        """Hold these no longer: Redis knows how they ended, or they were lost."""
        ended = list(leases)
        self.leases.drop(ended)
        for lease in ended:
            self._claims.pop(lease, None)

    def interrupt_all(self, ended: OutcomeBuffer, pool: Pool, *, settling: Iterable[bytes]) -> None:
        """Let what has not ended end as interrupted, or as unstarted; its lease stays until that is handed in."""
        known = ended.leases().union(settling)
        if left := [claim for claim in self if claim.lease not in known]:
            pool.close()  # Else jobs of another shard may still run there.
        for claim in left:
            ended.add(claim, _CUT_SHORT if pool.has_begun(claim) else UNSTARTED)
            del self._claims[claim.lease]

    def check(self) -> None:
        """Raise SystemExit, which ends a service, if the thread died: each job longer than LEASE would run twice."""
        if self._heartbeats.ended.is_set() and not self._heartbeats.stopped:
            error = self._heartbeats.error
            raise SystemExit(f"The thread of {self._heartbeats.name} died: {error!r}") from error

    def close(self) -> None:
        """End the thread."""
        self._heartbeats.stop()

    def _renew(self) -> None:
        try:
            self._heartbeats.run()
        finally:
            self._tell_ended()
