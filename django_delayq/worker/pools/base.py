"""Pool: runs claims for workers. Only plain values cross: a Claim in, an Outcome out."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from django_delayq.job.job import Claim
from django_delayq.worker.pools.claim_queue import ClaimQueue, PoolClient
from django_delayq.worker.pools.recovery import RecoveryRunner


class Pool(ABC):
    """Run claims, several at once. All methods may be called in any thread."""

    def __init__(self, size: int, *, recovery: RecoveryRunner | None, queues: Sequence[ClaimQueue]) -> None:
        """Each submitted claim is in one of the `queues` until it ends."""
        #: Claims that run at once.
        self.size = size
        #: The processes for jobs whose last attempt crashed; None if the pool runs no tasks and needs none.
        self.recovery = recovery
        self.queues = queues

    @property
    def finished_count(self) -> int:
        """Claims finished so far."""
        return sum(queue.finished_count for queue in self.queues)

    @property
    def held(self) -> int:
        """Claims submitted and not finished."""
        # A list: a generator costs twice as much, and the end of each job reads this.
        return sum([queue.held for queue in self.queues])

    @property
    def queued(self) -> int:
        """Claims submitted that nothing has taken yet, so that they can be released."""
        return sum(queue.queued for queue in self.queues)

    def oldest_wait(self) -> float:
        """Return the seconds for which the oldest queued claim has waited, 0 if there is none."""
        return max(queue.oldest_wait() for queue in self.queues)

    def has_begun(self, claim: Claim) -> bool:
        """Return whether a claim's code may have begun; certain once the pool is closed."""
        return all(queue.has_begun(claim) for queue in self.queues)

    def release_queued(self) -> None:
        """Finish all queued claims as unstarted."""
        for queue in self.queues:
            queue.release_queued()

    @abstractmethod
    def submit(self, claims: Sequence[Claim], owner: PoolClient) -> None:
        """Queue claims; their owner gets each outcome from the thread that ran it, or from `release_queued()`."""

    @abstractmethod
    def stop(self, lease: bytes, seconds: float) -> None:
        """Ask the code of a claim to stop, and end it by force after that many seconds if that is possible.

        Does nothing if the claim has ended.
        """

    @abstractmethod
    def is_stuck(self, seconds: float) -> bool:
        """Return whether no job can go on, because of jobs past their hard limits by that many seconds."""

    def overdue(self) -> float:
        """Return for how many seconds one job has kept all others from going on. For any thread."""
        return 0.0

    def end_processes(self) -> None:
        """Let child processes run their exit handlers, and wait a moment for their end; no claim may run any more."""
        if self.recovery:
            self.recovery.end_processes()

    @abstractmethod
    def close(self) -> None:
        """Begin nothing more, and interrupt what can be interrupted; the rest runs until the process ends."""
