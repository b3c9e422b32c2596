"""Runner: run what is ready on one shard, one job after another in rank order, in this thread.

By the scripts, the decisions and the signals of a real worker; only threads, sleep and heartbeats are left out.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal
from unittest.mock import patch

from django_delayq.dispatcher import Dispatcher
from django_delayq.exceptions import DelayQError
from django_delayq.job.outcome import Outcome, OutcomeKind
from django_delayq.metrics import MetricsBuffer
from django_delayq.processes.emitter import emit_now
from django_delayq.store.claims import ExchangeReply, Settlement
from django_delayq.store.shard import Shard
from django_delayq.store.store import Store
from django_delayq.testing.job_views import JobRun
from django_delayq.worker import execution
from django_delayq.worker.fallback_dispatcher import FallbackDispatcher
from django_delayq.worker.settlement import decide_settlement, emit_all

#: What becomes of an exception in a task: it is raised in the test, or left to the task's retry policy.
Errors = Literal["raise", "retry"]
#: Endings that are the task's own wish, or nobody's fault.
_NO_ERROR = (OutcomeKind.SUCCEEDED, OutcomeKind.RETRY_REQUESTED, OutcomeKind.REJECTED)
#: Of what a retry may wait, tests wait all: the longest is the only wait that does not depend on chance.
_LONGEST = 1.0


class TaskFailed(DelayQError, AssertionError):
    """A job could not be run: its task is unknown here, or its stored form cannot be read."""


class InlineWorker:
    """A worker and a dispatcher of one shard that work when they are told to."""

    def __init__(self, store: Store, shard: Shard) -> None:
        self._shard = shard
        self._promotion = FallbackDispatcher(Dispatcher(shard, store.promotion(shard), emit=emit_now))
        self._claims = store.claims(shard, worker_id=os.urandom(8))
        self._queues: list[str] = []
        self._version = b""

    def run(self, *, errors: Errors) -> Iterator[JobRun]:
        """Run what is due or ready until nothing is; tell of each attempt once it is settled.

        Raises what a task raised, after it was settled, unless errors are left to the retry policy.
        """
        self._promotion.promote()
        # Known before each claim: a queue that is new may have what comes first.
        self._queues = self._shard.read_served_queues()
        while True:
            claims = self._exchange(want=1).claims
            if not claims:
                return
            [claim] = claims
            with _witnessed() as raised:
                outcome = execution.run(claim)
            settlement = decide_settlement(claim, outcome, worker="the test", jitter=_LONGEST)
            lost = self._exchange(settlement).lost
            emit_all([(settlement, outcome)], lost=lost, tally=MetricsBuffer(), emit=emit_now)
            ran = JobRun.of(claim, outcome, settlement.decision)
            yield ran
            _raise(outcome, ran, raised[-1] if raised else None, errors)

    def _exchange(self, *settlements: Settlement, want: int = 0) -> ExchangeReply:
        description = f"test in process {os.getpid()}"
        exchange = self._claims.prepare(
            queues=self._queues, want=want, settlements=settlements, worker_name=description
        )
        answer = self._claims.settle_and_claim(exchange)
        if answer.queues_version != self._version:
            self._version, self._queues = answer.queues_version, self._shard.read_served_queues()
        return answer


@contextmanager
def _witnessed() -> Iterator[list[BaseException]]:
    raised: list[BaseException] = []
    # Around a job a worker closes old connections and forgets queries, as Django around a request: in a test that would
    # be the test's own connection, and queries that somebody counts. Django's test client leaves both out too.
    with (
        patch.object(execution, "on_task_exception", raised.append),
        patch.object(execution, "_clean_here", _clean_nothing),
    ):
        yield raised


async def _clean_nothing() -> None:
    pass


def _raise(outcome: Outcome, ran: JobRun, error: BaseException | None, errors: Errors) -> None:
    if error is not None and not isinstance(error, Exception):
        # Ctrl-C, or pytest's own way out of a test, which a worker would survive.
        raise error
    if errors == "retry" or outcome.kind in _NO_ERROR:
        return
    if error is None:
        raise TaskFailed(f"{ran!r}: {outcome.error}")
    error.add_note(f"This ended a job: {ran!r}; errors='retry' leaves that to its retry policy.")
    raise error
