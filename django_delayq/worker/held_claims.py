"""Held: the claims of one worker, from the answer that brought them until they are settled; a thread renews them."""

import threading
from collections.abc import Callable, Iterable, Iterator

from django_delayq.clock import SECOND_US
from django_delayq.conf.config import longest_wait_us
from django_delayq.job.job import Claim
from django_delayq.job.outcome import STOPPED, UNSTARTED, Outcome, OutcomeKind
from django_delayq.processes.service import Service
from django_delayq.worker.leases import Leases
from django_delayq.worker.outcome_buffer import OutcomeBuffer
from django_delayq.worker.pools.base import Pool

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
