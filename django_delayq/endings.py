"""Endings: how attempts ended, from the pool's threads until the worker hands them in."""

from collections import deque
from collections.abc import Iterable
from time import monotonic

from django_delayq.job import Claim
from django_delayq.outcome import Ending, Outcome

#: Seconds an outcome may wait for company before it is handed in.
_HAND_IN = 0.005
#: Outcomes in one exchange, at most.
_OUTCOMES = 256


class Endings:
    """Outcomes that wait to be handed in; added by any thread, taken by one."""

    def __init__(self) -> None:
        self._ended: deque[tuple[Claim, Outcome]] = deque()
        self._first_at = 0.0

    def __len__(self) -> int:
        return len(self._ended)

    @property
    def wait(self) -> float:
        """Seconds until the oldest has waited long enough."""
        return self._first_at + _HAND_IN - monotonic()

    def add(self, claim: Claim, outcome: Outcome) -> bool:
        """Take an outcome down; true for the first that waits."""
        # Looked at before: of two threads that come at once at least one finds it empty, and one too many only wakes.
        first = not self._ended
        if first:
            self._first_at = monotonic()
        self._ended.append((claim, outcome))
        return first

    def put_back(self, ended: Iterable[tuple[Claim, Outcome]]) -> None:
        """Let outcomes wait again that could not be handed in."""
        self._ended.extend(ended)

    def take(self) -> list[tuple[Claim, Outcome]]:
        """Return the oldest for one exchange, one of a lease.

        A job given back may end after all, before that is told: then the task's own outcome stands.
        """
        ended = [self._ended.popleft() for _ in range(min(len(self._ended), _OUTCOMES))]
        ended.sort(key=lambda item: item[1].ending is not Ending.INTERRUPTED)
        if self._ended:
            self._first_at = monotonic()
        return list({claim.lease: (claim, outcome) for claim, outcome in ended}.values())

    def leases(self) -> set[bytes]:
        """Return the leases whose outcomes wait."""
        return {claim.lease for claim, _ in list(self._ended)}
