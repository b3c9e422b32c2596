"""Prefetch: how many claims a worker requests, given how long its recent jobs took and who else uses its pool.

Short jobs: enough claims for 50 ms of work, so that many jobs share one round trip. Long jobs: never more than the free
slots, so that no job waits here while another worker is free. If short jobs turn into long ones, the worker releases
the claims that got no slot within 100 ms.

Workers of several shards share one pool. A worker that alone has jobs uses the whole pool. If several have jobs, each
has an equal share.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import inf

from django_delayq.job.job import Claim

#: Seconds of work to hold.
_PREFETCH = 0.05
#: Most claims in one exchange, and most claims held: the pool runs the last claims while Redis replies to the next
#: request.
MAX_CLAIMS, _MAX_HELD = 64, 128
#: Most claims of fair queues beyond the free slots: a job of another tenant that comes next waits behind these.
_FAIR_AHEAD = 8
#: Weight of the newest run in the moving average.
_WEIGHT = 0.1
#: Longest wait, in seconds, for a slot that another worker's short jobs have. Less than the time after which a waiting
#: claim is released.
_SOON = 0.08
#: Assumed seconds of a run before the first is measured: too long to wait for its slot.
_UNKNOWN = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How busy a pool is, as seen by one of the workers that share it."""

    #: Claims that can run at once, claims that all workers hold or have requested, and claims that this worker holds.
    size: int
    held: int
    own: int
    #: Claims of fair queues that all workers held when they last made a request.
    held_fair: int = 0
    #: The same of jobs with limits.
    held_limited: int = 0
    #: Number of other workers that want more claims.
    contenders: int
    #: Approximate seconds until one more claim would begin, if all slots are taken.
    wait: float
    #: Claims to hold, and the number left at which to request more, if this worker were alone.
    target: int
    refill_at: int
    #: There are more jobs, but the last request got none of them: each must wait for a free slot.
    must_wait: bool = False

    @property
    def share(self) -> int:
        """Slots for this worker if other workers want slots too; at least 1."""
        return -(-self.size // (1 + self.contenders))

    @property
    def claim_count(self) -> int:
        """Claims to request, 0 to 64."""
        free = min(self.size - self.held, self.share - self.own)
        ahead = max(self.share, self.target // (1 + self.contenders)) - self.own if self.wait < _SOON else 0
        return min(MAX_CLAIMS, max(free, ahead, 0))

    @property
    def fair_count(self) -> int:
        """Most claims of fair queues among them.

        Claims of other queues that are held do not count: beside many short jobs of those a fair queue would starve.
        """
        return max(0, min(self.claim_count, self.size + _FAIR_AHEAD - self.held_fair))

    @property
    def limited_count(self) -> int:
        """Most claims of jobs with limits among them: such a job never waits here, since it has its slots already."""
        return max(0, min(self.claim_count, self.size - self.held_limited))

    @property
    def has_slot(self) -> bool:
        """Whether a claim would begin at once, or soon because others hold more than their share."""
        return self.claim_count > 0 and (self.held < self.size or self.own < self.share)

    @property
    def should_refill(self) -> bool:
        """Whether `claim_count` is worth a round trip: a slot is free, or the claims make a batch."""
        if self.has_slot or self.must_wait:
            return self.has_slot
        return self.claim_count > 0 and self.own <= self.refill_at // (1 + self.contenders)


class PrefetchPolicy:
    """Decides for one worker, from the measured length of its jobs."""

    def __init__(self, size: int, *, holds: Callable[[], int], sharing: "list[PrefetchPolicy] | None" = None) -> None:
        """`holds` returns how many claims this worker has in the pool; `sharing` has the policies of all its users."""
        self._size = size
        self._holds = holds
        self._sharing = [] if sharing is None else sharing
        self._sharing.append(self)
        #: Only fair queues have more jobs, or those have limits, so few of them are claimed at a time.
        self.only_bounded = False
        #: There are more jobs, and the last request got none.
        self.must_wait = False
        #: Average seconds of a run; None before the first.
        self._average: float | None = None
        #: Claims to hold: 50 ms of work, 1 to 128.
        self.target = size
        #: Number of claims left at which to request more, before the pool is idle.
        self.refill_at = 0
        self._update_target()
        #: Number of claims in the request in flight, and of those of fair queues, and with limits, that this worker
        #: held when it made it.
        self.requested = 0
        self.held_fair = self.held_limited = 0
        #: The worker wants more claims.
        self.wants_more = False
        #: The worker had no free slot when it last looked, so it does not listen for notifications.
        self.is_full = False

    def observe(self, *runs_us: int) -> None:
        """Add the lengths of runs to the average."""
        for run_us in runs_us:
            seconds = run_us / 1_000_000
            self._average = seconds if self._average is None else self._average + _WEIGHT * (seconds - self._average)
        self._update_target()

    def record_more(self, *, only_bounded: bool, must_wait: bool = False) -> None:
        """Record whether only fair queues have more jobs, or those have limits; and whether a request got none."""
        self.must_wait = must_wait
        if only_bounded != self.only_bounded:
            self.only_bounded = only_bounded
            self._update_target()

    def record_held(self, claims: Sequence[Claim], fair_queues: Collection[str]) -> None:
        """Count the claims that this worker holds of fair queues, and with limits."""
        self.held_fair = sum(claim.queue in fair_queues for claim in claims)
        self.held_limited = sum(claim.is_limited for claim in claims)

    def back_off(self) -> None:
        """Stop prefetching until short runs are measured again: claims waited too long and were released.

        The pool does not know whose runs are long, so this applies to all workers that share it.
        """
        for each in self._sharing:
            each._average = max(each._average or 0.0, _UNKNOWN)
            each._update_target()

    @property
    def contenders(self) -> int:
        """Number of other workers that want more claims."""
        return sum(each.wants_more for each in self._sharing if each is not self)

    def request_ended(self, *, wants_more: bool, held: int) -> bool:
        """Record that no request is in flight; returns whether another worker must be woken.

        That is a worker that wants more claims, or one that does not listen although `held` claims leave a slot.
        """
        self.requested, self.wants_more = 0, wants_more
        others = [each for each in self._sharing if each is not self]
        return any(each.wants_more for each in others) or (held < self._size and any(each.is_full for each in others))

    def load(self, held: int) -> Load:
        """Return how busy the pool is with `held` claims in it."""
        return Load(
            size=self._size,
            held=held + sum(each.requested for each in self._sharing),
            own=self._holds(),
            held_fair=sum(each.held_fair for each in self._sharing),
            held_limited=sum(each.held_limited for each in self._sharing),
            contenders=self.contenders,
            wait=self._wait(),
            target=self.target,
            refill_at=self.refill_at,
            must_wait=self.must_wait,
        )

    def _update_target(self) -> None:
        # Stored, not computed when read: the end of each job reads `refill_at`.
        if self._average is not None:
            self.target = max(1, min(_MAX_HELD, int(self._size * _PREFETCH / max(self._average, 1e-6))))
        self.refill_at = max(self.target // 4, self.target - MAX_CLAIMS)
        if self.only_bounded:
            self.refill_at = min(self.refill_at, self._size + _FAIR_AHEAD // 2)

    def _wait(self) -> float:
        # Long jobs keep their slots, so claims wait for the other slots.
        slots, work = self._size, 0.0
        for each in self._sharing:
            average = _UNKNOWN if each._average is None else each._average
            claims = each._holds() + each.requested
            if average < _SOON:
                work += claims * average
            else:
                slots -= claims
        return work / slots if slots > 0 else inf
