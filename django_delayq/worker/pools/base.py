"""Pool: what a worker needs of whatever runs its claims. Only plain values cross: a Claim in, an Outcome out."""

from collections.abc import Sequence
from typing import Protocol

from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome
from django_delayq.worker.pools.recovery import RecoveryRunner


class PoolClient(Protocol):
    """Who hands claims in; called in any thread."""

    def may_begin(self, claim: Claim) -> bool:
        """Whether the claim's lease is surely held: a worker that was frozen must not begin what is another's now.

        Called right before the code begins; its hard limit counts from then.
        """

    def finished(self, claim: Claim, outcome: Outcome) -> None:
        """Take the outcome of a claim; called once for each."""


class Pool(Protocol):
    """Run claims, some at once."""

    #: Claims that run at once.
    size: int

    @property
    def recovery(self) -> RecoveryRunner | None:
        """The processes for jobs that came back from a crash; None where it runs no task, and these are like others."""

    @property
    def finished_count(self) -> int:
        """Claims finished so far."""

    @property
    def held(self) -> int:
        """Claims taken in and not finished."""

    @property
    def queued(self) -> int:
        """Claims taken in that wait to begin and can be withdrawn."""

    def submit(self, claims: Sequence[Claim], owner: PoolClient) -> None:
        """Take claims in; their owner is told when each has finished."""

    def oldest_wait(self) -> float:
        """Return for how many seconds the oldest claim has waited to begin."""

    def has_begun(self, claim: Claim) -> bool:
        """Whether a claim's code may have begun; certain once the pool is closed."""

    def is_stuck(self, seconds: float) -> bool:
        """Whether no slot is left: each job is beyond its hard limit by so many seconds, and cannot be ended."""

    def release_queued(self) -> None:
        """Finish all claims that wait to begin as unstarted."""

    def close(self) -> None:
        """Begin nothing more, and end what can be ended; what cannot goes on until the process ends."""
