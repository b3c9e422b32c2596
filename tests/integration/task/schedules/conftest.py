"""The queue of a test at nine on a Monday, and a worker that the test moves by hand."""

from collections.abc import Iterator
from typing import Any

import pytest

from django_delayq import get_store
from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.job.job import Claim
from django_delayq.job.outcome import Action
from django_delayq.processes.emitter import emit_now
from django_delayq.recurring.run import RunOutcome
from django_delayq.testing import DelayQ
from django_delayq.testing.server import server_url
from django_delayq.worker.fallback_dispatcher import FallbackDispatcher
from tests.shard_apis import NINE, ShardApis


@pytest.fixture
def delayq(settings: Any) -> Iterator[DelayQ]:
    """A queue of this test, at nine on a Monday."""
    with DelayQ() as queue:
        queue.advance_to(NINE)
        yield queue


class Worker:
    """A worker of the test's queue that holds its jobs until the test ends them, and a dispatcher."""

    def __init__(self, delayq: DelayQ) -> None:
        self.apis = ShardApis(server_url(), clock=delayq._clock, PREFIX=get_store().config.prefix)
        self._dispatcher = FallbackDispatcher(Dispatcher(self.apis.shard, self.apis.promotion, emit=emit_now))

    def begin(self) -> list[Claim]:
        """Promote and plant, claim what is ready, end what is to be dropped, and return the jobs that begin."""
        self._dispatcher.promote()
        claims = self.apis.worker().take(10).claims
        for claim in claims:
            if claim.is_dropped:
                self.end(claim, run_outcome=RunOutcome.SKIPPED)
        return [claim for claim in claims if not claim.is_dropped]

    def end(self, claim: Claim, how: Action = Action.ACKNOWLEDGE, **options: Any) -> None:
        """End a job that has begun."""
        assert not self.apis.worker().settle(claim, how, **options).lost

    def waiting(self) -> int:
        """Return how many jobs wait anywhere."""
        return len(self.apis.scheduled()) + len(self.apis.ready()) + len(self.apis.parked())


@pytest.fixture
def worker(delayq: DelayQ) -> Iterator[Worker]:
    """A worker of the test's queue."""
    made = Worker(delayq)
    yield made
    made.apis.close()
