"""Pool: what a worker needs of whatever runs its claims. Only plain values cross: a Claim in, an Outcome out."""

from collections.abc import Callable
from typing import Protocol

from django_delayq.job import Claim
from django_delayq.outcome import Outcome

#: Called when a claim ended, in any thread.
Finished = Callable[[Claim, Outcome], None]


class Pool(Protocol):
    """Run claims, some at once."""

    #: Claims that run at once.
    size: int

    @property
    def held(self) -> int:
        """Claims taken in and not finished."""

    @property
    def unbegun(self) -> int:
        """Claims taken in whose code has not begun."""

    def submit(self, claim: Claim, finished: Finished) -> None:
        """Take a claim in; `finished` is called once."""

    def waited(self) -> float:
        """Return for how many seconds the oldest claim has waited to begin."""

    def withdraw(self) -> None:
        """Finish all claims that have not begun as unstarted."""

    def close(self) -> None:
        """End what can be ended; what cannot goes on until the process ends."""
