"""Run: which jobs of a schedule have begun."""

import pytest

from django_delayq.recurring.run import Run, RunOutcome


@pytest.mark.parametrize(
    ("outcome", "took_ms", "has_begun"),
    [
        (RunOutcome.DONE, 0, True),
        (RunOutcome.FAILED, 0, True),
        (RunOutcome.CANCELLED, 2_000, True),
        (RunOutcome.CANCELLED, 0, False),
        (RunOutcome.EXPIRED, 0, False),
        (RunOutcome.SKIPPED, 0, False),
    ],
)
def test_a_job_that_was_stopped_has_begun(outcome: RunOutcome, took_ms: int, has_begun: bool) -> None:
    assert Run(outcome, took_ms).has_begun is has_begun
