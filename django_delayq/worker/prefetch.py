"""Pace: how many claims a worker asks for, from how long its jobs have taken lately and who else uses its pool.

Enough for 50 ms of work, so that short jobs share round trips; never more than the free slots where jobs are long, so
that none waits here while another worker is free. When short jobs turn into long ones, what is held beyond the slots is
given back after 100 ms.

Workers of several shards share one pool. While only one of them has work, it has the whole pool; of those that wait for
room each has an equal share.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf

#: Seconds of work to hold.
_AHEAD = 0.05
#: Claims in one exchange, and held, at most: while Redis answers the next exchange, the pool runs the last one's.
MAX_CLAIMS, _MAX_HELD = 64, 128
#: Weight of the newest run in the average.
_NEWEST = 0.1
#: Seconds within which a claim begins though all slots are taken: another worker's short jobs hold them. A little less
#: than those after which it would be given back.
_SOON = 0.08
#: Seconds of a run as long as nobody knows better: nobody waits for its slot.
_UNKNOWN = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """How a pool is used by the workers that share it, as one of them sees it."""

    #: Claims that run at once, those that all workers hold or have asked for, and those that this one holds.
    size: int
    held: int
    mine: int
    #: Other workers that want more.
    rivals: int
    #: Seconds until one claim more would begin, about, if all slots are taken.
    wait: float
    #: Claims worth holding, and those left at which it is time to ask again, if this worker has the pool for itself.
    target: int
    low: int

    @property
    def share(self) -> int:
        """Slots for this worker as long as its rivals want the others, at least 1."""
        return -(-self.size // (1 + self.rivals))

    @property
    def claim_count(self) -> int:
        """Claims to ask for, 0 to 64."""
        free = min(self.size - self.held, self.share - self.mine)
        ahead = max(self.share, self.target // (1 + self.rivals)) - self.mine if self.wait < _SOON else 0
        return min(MAX_CLAIMS, max(free, ahead, 0))

    @property
    def has_slot(self) -> bool:
        """Whether a claim would begin at once, or soon since others hold more than their share."""
        return self.claim_count > 0 and (self.held < self.size or self.mine < self.share)

    @property
    def is_time(self) -> bool:
        """Whether `want` is worth a round trip: a slot would wait, or it is a batch."""
        return self.has_slot or (self.claim_count > 0 and self.mine <= self.low // (1 + self.rivals))


class PrefetchPolicy:
    """The measured pace of one worker."""

    def __init__(self, size: int, *, holds: Callable[[], int], sharing: "list[PrefetchPolicy] | None" = None) -> None:
        """`holds` tells how many claims this worker has in the pool; `sharing` has the paces of all that use it."""
        self._size = size
        self._holds = holds
        self._sharing = [] if sharing is None else sharing
        self._sharing.append(self)
        #: Average seconds of a run; None before the first.
        self._average: float | None = None
        #: Claims that the exchange under way asks for.
        self.asked = 0
        #: Its worker wants more.
        self.wants = False
        #: Its worker does not listen: no slot was left for it when it last looked.
        self.deaf = False

    def observe(self, *runs_us: int) -> None:
        """Count runs in."""
        for run_us in runs_us:
            seconds = run_us / 1_000_000
            self._average = seconds if self._average is None else self._average + _NEWEST * (seconds - self._average)

    def back_off(self) -> None:
        """Stop claiming ahead until short runs are measured again: claims waited too long and were given back.

        The pool does not know whose runs are long, so this holds for all workers that share it.
        """
        for each in self._sharing:
            each._average = max(each._average or 0.0, _UNKNOWN)

    @property
    def target(self) -> int:
        """Claims worth holding: what 50 ms of work take, 1 to 128."""
        if self._average is None:
            return self._size
        return max(1, min(_MAX_HELD, int(self._size * _AHEAD / max(self._average, 1e-6))))

    @property
    def refill_at(self) -> int:
        """Claims left at which it is time to ask again, before the pool runs dry."""
        return max(self.target // 4, self.target - MAX_CLAIMS)

    @property
    def rivals(self) -> int:
        """How many other workers want more."""
        return sum(each.wants for each in self._sharing if each is not self)

    def leave_room(self, *, wants: bool, held: int) -> bool:
        """Ask for nothing more until the next exchange; returns whether another worker waits for the room.

        So does one that does not listen, where `held` claims leave a slot free.
        """
        self.asked, self.wants = 0, wants
        others = [each for each in self._sharing if each is not self]
        return any(each.wants for each in others) or (held < self._size and any(each.deaf for each in others))

    def load(self, held: int) -> Load:
        """Return how the pool is used while `held` claims are in it."""
        return Load(
            size=self._size,
            held=held + sum(each.asked for each in self._sharing),
            mine=self._holds(),
            rivals=self.rivals,
            wait=self._wait(),
            target=self.target,
            low=self.refill_at,
        )

    def _wait(self) -> float:
        # A worker's long jobs keep their slots, and those of others wait for the other slots.
        slots, work = self._size, 0.0
        for each in self._sharing:
            average = _UNKNOWN if each._average is None else each._average
            claims = each._holds() + each.asked
            if average < _SOON:
                work += claims * average
            else:
                slots -= claims
        return work / slots if slots > 0 else inf
