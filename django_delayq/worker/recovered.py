"""Recovered: whether a worker's next exchange may bring a job that came back from a crash, and the process for it."""

from collections.abc import Callable

from django_delayq.job.job import Claim
from django_delayq.store.exchange import ExchangeReply
from django_delayq.worker.pools.recovery import RecoveryRunner


class RecoveryGate:
    """What one worker knows of the recovered jobs of its shard."""

    def __init__(self, recovery: RecoveryRunner | None, wake: Callable[[], object]) -> None:
        """Without `recovery` the pool runs no task: a recovered job is claimed like any other."""
        self._recovery = recovery
        self._wake = wake
        #: The last exchange left some behind.
        self.left = False
        #: A process is reserved for what the exchange under way brings.
        self._reserved = False

    @property
    def due(self) -> bool:
        """Whether an exchange would bring one now; where a process is missing, one is started for it."""
        if self._recovery is None:
            return self.left
        if not self.left:
            self._recovery.rest()
        elif not self._recovery.free:
            self._recovery.start(self._wake)
        return self.left and self._recovery.free

    def may_claim(self) -> bool:
        """Return whether the next exchange may bring one: a process is up, and kept for it."""
        if self._recovery is None:
            return True
        if not self._reserved:
            self._reserved = self._recovery.reserve()
        return self._reserved

    def unanswered(self) -> None:
        """Let others have the process that was kept: the answer may take as long as an outage."""
        if self._reserved and self._recovery:
            self._recovery.release()
        self._reserved = False

    def record_reply(self, answer: ExchangeReply) -> bool:
        """Take down what an exchange brought and left behind; false if that must be given back: it has no process.

        An exchange is sent again word for word, also where others have the process that was kept for it.
        """
        came, runs = any(claim.attempts.crash_suspected for claim in answer.claims), True
        if not came:
            self.unanswered()
        elif self._recovery and not self._reserved:
            runs = self._recovery.reserve(came=True)
        self._reserved = False
        if answer.claimed:
            self.left = answer.recovered or not runs
        return runs

    def ended(self, claim: Claim) -> None:
        """Let go of a claim's process."""
        if self._recovery and claim.attempts.crash_suspected:
            self._recovery.release()
