"""What the tests of pools share: the record of how each claim ended, and coroutines to run."""

import asyncio
from collections.abc import Callable

from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome
from django_delayq.worker.pools.recovery import RecoveryRunner
from django_delayq.worker.pools.threads import ThreadPool
from tests.subprocesses import until

Make = Callable[..., Claim]


class Ledger:
    """An owner of claims that lets all begin and keeps their outcomes."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[Claim, Outcome]] = []

    def may_begin(self, claim: Claim) -> bool:
        return True

    def finished(self, claim: Claim, outcome: Outcome) -> None:
        self.outcomes.append((claim, outcome))

    def of(self, claim: Claim) -> Outcome:
        """Wait for a claim's outcome."""
        until(lambda: any(ended is claim for ended, _ in self.outcomes), what="the end of a claim", patience=10)
        return next(outcome for ended, outcome in self.outcomes if ended is claim)


def threads_of(size: int) -> ThreadPool:
    """Return a pool of threads, as run_worker makes it."""
    return ThreadPool(size, recovery=RecoveryRunner())


def quick() -> None:
    """End at once."""


async def wait() -> None:
    """Wait for ever."""
    await asyncio.Event().wait()


async def pause() -> None:
    """Wait a few turns of the loop."""
    # By timers, so that the loop sleeps in between and its selector is among the lines that are struck.
    for _ in range(5):
        await asyncio.sleep(0.01)
