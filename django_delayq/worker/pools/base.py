"""Pool: what a worker needs of whatever runs its claims. Only plain values cross: a Claim in, an Outcome out."""

from collections.abc import Sequence
from typing import Protocol

from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome
from django_delayq.worker.pools.recovery import RecoveryRunner


class PoolClient(Protocol):
    """The owner of submitted claims: a worker. Its methods are called in any thread of the pool."""

    def may_begin(self, claim: Claim) -> bool:
        """Return whether the claim's lease is surely held: after a freeze, another worker may have the job.

        Called right before the code begins. The job's hard limit counts from this call.
        """

    def finished(self, claim: Claim, outcome: Outcome) -> None:
        """Record the outcome of a claim; called once for each claim."""


class Pool(Protocol):
    """Run claims, several at once. All methods may be called in any thread."""

    #: Claims that run at once.
    size: int

    @property
    def recovery(self) -> RecoveryRunner | None:
        """The processes for jobs whose last attempt crashed; None if the pool runs no tasks and needs none."""

    @property
    def finished_count(self) -> int:
        """Claims finished so far."""

    @property
    def held(self) -> int:
        """Claims submitted and not finished."""

    @property
    def queued(self) -> int:
        """Claims submitted that nobody has taken yet, so that they can be released."""

    def submit(self, claims: Sequence[Claim], owner: PoolClient) -> None:
        """Queue claims; their owner gets the outcome of each."""

    def oldest_wait(self) -> float:
        """Return the seconds for which the oldest queued claim has waited, 0 if there is none."""

    def has_begun(self, claim: Claim) -> bool:
        """Return whether a claim's code may have begun; certain once the pool is closed."""

    def is_stuck(self, seconds: float) -> bool:
        """Return whether every thread runs a job that is past its hard limit by that many seconds and cannot end."""

    def release_queued(self) -> None:
        """Finish all queued claims as unstarted."""

    def close(self) -> None:
        """Begin nothing more, and interrupt what can be interrupted; the rest runs until the process ends."""
