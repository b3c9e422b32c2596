"""Settlement: every settled outcome is emitted, whatever goes wrong while one of them is."""

import json
import logging
from time import monotonic
from typing import Any

import pytest

from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.ids import next_id
from django_delayq.job.job import Job
from django_delayq.job.outcome import FREE_INTERRUPTIONS, Outcome, OutcomeKind
from django_delayq.metrics import MetricsBuffer, Stats
from django_delayq.processes.emitter import emit_now, emitter
from django_delayq.signals import job_finished
from django_delayq.worker.settlement import decide_settlement, emit_all
from tests.factories import claim_for, numbered

FAILED = Outcome(kind=OutcomeKind.FAILED, error="ValueError: no")


def test_a_log_filter_that_raises_does_not_stop_signals_or_metrics(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="django_delayq")
    claims = [numbered(number << 150) for number in range(1, 5)]
    received, metrics = [], MetricsBuffer()

    def receive(job_id: str, **_: Any) -> None:
        received.append(job_id)

    def broken(record: logging.LogRecord) -> bool:
        if "lease lost" not in record.msg:
            raise RuntimeError("this filter is broken")
        return True

    logger = logging.getLogger("django_delayq")
    logger.addFilter(broken)
    job_finished.connect(receive)
    try:
        settled = [(decide_settlement(each, FAILED, worker="w"), FAILED) for each in claims]
        emit_all(settled, lost=frozenset([claims[1].lease]), metrics=metrics)
        assert emitter.flush()
    finally:
        job_finished.disconnect(receive)
        logger.removeFilter(broken)
    assert received == [claims[0].id, claims[2].id, claims[3].id]
    assert sum(Stats.of(row).retried for row in metrics.take().values()) == 3
    assert "lease lost" in caplog.text


def test_what_is_no_attempt_is_neither_a_failure_nor_a_retry_in_the_metrics() -> None:
    metrics = MetricsBuffer()
    outcomes = [Outcome(kind=kind) for kind in (OutcomeKind.SNOOZED, OutcomeKind.INTERRUPTED, OutcomeKind.UNKNOWN_TASK)]
    settled = [
        (decide_settlement(numbered(number << 150), outcome, worker="w"), outcome)
        for number, outcome in enumerate(outcomes, 1)
    ]
    emit_all(settled, lost=frozenset(), metrics=metrics, emit=emit_now)
    [row] = metrics.take().values()
    assert (Stats.of(row).snoozed, Stats.of(row).retried, Stats.of(row).finished) == (1, 0, 0)


def test_an_interruption_that_counts_is_recovered_too() -> None:
    attempts = AttemptHistory(interruptions=FREE_INTERRUPTIONS)
    claim = claim_for(Job(raw_id=next_id(), shard=0, task="t", queue="q"), attempts=attempts)
    found = decide_settlement(claim, Outcome(kind=OutcomeKind.INTERRUPTED), worker="w").attempts
    assert (found.ended, found.interruptions, found.recovered, found.crash_suspected) == (1, 20, True, False)


FIVE_MINUTES = 300.0


@pytest.mark.parametrize("kind", [OutcomeKind.SUCCEEDED, OutcomeKind.FAILED])
def test_an_attempt_that_is_settled_late_ended_when_its_code_ended(kind: OutcomeKind) -> None:
    """The code starts a second after its claim and runs for two, at the start of an outage."""
    job = Job(raw_id=next_id(), shard=0, task="shop.tasks.play", queue="default", args=[], result_ttl_us=10**9)
    received_at = monotonic() - FIVE_MINUTES
    claim = claim_for(job, claimed_us=10**15, received_at=received_at)
    result = "1" if kind is OutcomeKind.SUCCEEDED else None
    outcome = Outcome(kind=kind, began=received_at + 1, run_us=2_000_000, result=result)
    settlement = decide_settlement(claim, outcome, worker="w")
    attempt = json.loads(settlement.result) if settlement.result else settlement.attempts.history[-1]
    assert attempt["started_us"] == pytest.approx(10**15 + 1_000_000, abs=100, rel=0)
    assert attempt["ended_us"] == pytest.approx(10**15 + 3_000_000, abs=100, rel=0)


def test_an_attempt_whose_code_never_started_ended_when_it_is_settled() -> None:
    claim = claim_for(None, lease=bytes(30), claimed_us=10**15, received_at=monotonic() - FIVE_MINUTES)
    [attempt] = decide_settlement(claim, Outcome(kind=OutcomeKind.UNREADABLE), worker="w").attempts.history
    assert attempt["started_us"] == attempt["ended_us"] >= 10**15 + FIVE_MINUTES * 1_000_000
