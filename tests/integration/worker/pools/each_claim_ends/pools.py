"""Pools: a ledger of each claim's outcome, a thread pool and coroutines, for the tests of pools."""

import asyncio
from collections.abc import Callable

from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome
from django_delayq.worker.pools.recovery import RecoveryRunner
from django_delayq.worker.pools.threads import ThreadPool
from tests.subprocesses import until

Make = Callable[..., Claim]


class Ledger:
    """A client of pools that lets every claim begin and records its outcome."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[Claim, Outcome]] = []

    def may_begin(self, claim: Claim) -> bool:
        return True

    def finished(self, claim: Claim, outcome: Outcome) -> None:
        self.outcomes.append((claim, outcome))

    def of(self, claim: Claim) -> Outcome:
        """Wait for a claim's outcome."""
        until(lambda: any(ended is claim for ended, _ in self.outcomes), what="the end of a claim")
        return next(outcome for ended, outcome in self.outcomes if ended is claim)


def threads_of(size: int) -> ThreadPool:
    """Return a pool of threads, as run_worker makes it."""
    return ThreadPool(size, recovery=RecoveryRunner())


def quick() -> None:
    """End at once."""


async def wait() -> None:
    """Wait forever."""
    await asyncio.Event().wait()


async def pause() -> None:
    """Wait a few turns of the loop."""
    # By timers, so that the loop sleeps in between, and an exception is raised in its selector too.
    for _ in range(5):
        await asyncio.sleep(0.01)
