"""Inline worker: run the ready jobs of one shard in this thread, one after the other, in the order of their rank.

Scripts, decisions and signals are those of a real worker; only threads, sleep and heartbeats are missing.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

from django_delayq import runtime
from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.exceptions import DelayQError
from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome, OutcomeKind, stopped
from django_delayq.job.progress import Progress
from django_delayq.metrics import MetricsBuffer
from django_delayq.processes.emitter import emit_now
from django_delayq.store.claims import Claims, ExchangeReply, Settlement
from django_delayq.store.promotion import Promotion
from django_delayq.store.shard import Shard
from django_delayq.store.store import Store
from django_delayq.testing.job_views import JobRun
from django_delayq.worker import execution
from django_delayq.worker.claiming.turned_away import turn_away
from django_delayq.worker.fallback_dispatcher import FallbackDispatcher
from django_delayq.worker.settlement import decide_settlement, emit_all

#: Whether an exception in a task is raised in the test, or left to the retry policy of the task.
Errors = Literal["raise", "retry"]
#: Outcomes that are no error: success, or a decision of the task.
_NO_ERROR = (
    *(OutcomeKind.SUCCEEDED, OutcomeKind.RETRY_REQUESTED, OutcomeKind.SNOOZED, OutcomeKind.REJECTED),
    *(OutcomeKind.STOPPED, OutcomeKind.EXPIRED, OutcomeKind.DROPPED),
)
#: Tests use the longest delay of a retry, the only one that does not depend on chance.
_FULL_JITTER = 1.0


class TaskFailed(DelayQError, AssertionError):
    """A job could not be run: its task is unknown here, or its stored body cannot be read."""


class _InlineLink:
    """The link of a running job of a test. Without heartbeats, each read of `should_stop` reads Redis."""

    def __init__(self, claims: Claims, claim: Claim) -> None:
        self._claims, self._lease = claims, claim.lease
        #: What it reported, oldest first.
        self.progress: list[Progress] = []

    @property
    def should_stop(self) -> bool:
        """Whether the job was asked to stop."""
        return self._lease in self._claims.heartbeat([self._lease]).stops

    def report_progress(self, progress: Progress) -> None:
        """Store the progress at once."""
        self.progress.append(progress)
        self._claims.heartbeat([self._lease], (), {self._lease: progress})


class InlineWorker:
    """A worker and a dispatcher of one shard without a loop."""

    def __init__(self, store: Store, shard: Shard) -> None:
        self._shard = shard
        if shard.config.tasks.limits:
            store.store_limits()
        self._promotion = FallbackDispatcher(Dispatcher(shard, Promotion(shard), emit=emit_now))
        self._claims = Claims(shard)
        self._longest_wait_us = shard.config.worker.unknown_task_ttl_us
        self._queues: list[str] = []
        self._version = b""

    def run(self, *, errors: Errors) -> Iterator[JobRun]:
        """Run the jobs that are due or ready until none is left; yields each attempt after it is settled.

        Raises the exception of a task, after it is settled, unless `errors` is "retry".
        """
        self._promotion.promote()
        # Before each claim: a new queue may have the first job.
        self._queues = self._shard.read_served_queues()
        while True:
            answer = self._exchange(want=1)
            if not answer.claims:
                return
            [claim], (_, others) = answer.claims, turn_away(answer)
            link = _InlineLink(self._claims, claim)
            with _observed() as raised:
                outcome = others[0][1] if others else execution.run(claim, link)
            if outcome.kind is not OutcomeKind.SUCCEEDED and link.should_stop:
                outcome = stopped(outcome)
            settlement = decide_settlement(
                claim, outcome, worker="the test", longest_wait_us=self._longest_wait_us, jitter=_FULL_JITTER
            )
            lost = self._exchange(settlement).lost
            emit_all([(settlement, outcome)], lost=lost, metrics=MetricsBuffer(), emit=emit_now)
            ran = JobRun.of(claim, outcome, settlement.decision, progress=link.progress)
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
def _observed() -> Iterator[list[BaseException]]:
    raised: list[BaseException] = []
    # A worker closes old connections and resets queries around a job, as Django does around a request. In a test that
    # would be the connection of the test, and queries that a test counts. Django's test client does neither.
    with runtime.override(on_task_exception=raised.append, clean_connections=False):
        yield raised


def _raise(outcome: Outcome, ran: JobRun, error: BaseException | None, errors: Errors) -> None:
    if error is not None and not isinstance(error, Exception):
        # Ctrl-C, or the exception that ends a test in pytest; a worker would survive them.
        raise error
    if errors == "retry" or outcome.kind in _NO_ERROR:
        return
    if error is None:
        raise TaskFailed(f"{ran!r}: {outcome.error}")
    error.add_note(f"This ended a job: {ran!r}; errors='retry' leaves it to the retry policy.")
    raise error
