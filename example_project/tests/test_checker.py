"""The checker of the demo finds every broken promise."""

from datetime import UTC, datetime, timedelta

import pytest

from demo.checker import Finding, check
from demo.plan import ExpectedOutcome, PlannedJob
from market.run_log import RunOutcome, TaskRun

DUE = datetime(2030, 1, 1, 12, tzinfo=UTC)


def run(attempt=1, *, outcome=RunOutcome.DONE, late=1.0, due=DUE, recovered=False, job_id="a"):
    started = due + timedelta(milliseconds=late)
    return TaskRun(
        task="greet", subject="ann", job_id=job_id, attempt=attempt, due=due, started=started, outcome=outcome,
        recovered=recovered,
    )  # fmt: skip


def problems(expected, *runs, attempts=1):
    [finding] = check([PlannedJob("greet", "ann", DUE, expected, attempts=attempts)], runs)
    assert isinstance(finding, Finding)
    return finding.problems


LOST = {"outcome": RunOutcome.NONE}
FAILED = {"outcome": RunOutcome.FAILED}


@pytest.mark.parametrize(
    "expected, runs",
    [
        (ExpectedOutcome.DONE, [run()]),
        (ExpectedOutcome.MOVED, [run()]),
        (ExpectedOutcome.CALLED_OFF, []),
        (ExpectedOutcome.RETRIED, [run(1, **FAILED), run(2)]),
        (ExpectedOutcome.DEAD, [run(1, **FAILED), run(2, **FAILED), run(3, **FAILED)]),
        (ExpectedOutcome.KILLED, [run(1, **LOST), run(2, recovered=True)]),
        # Other jobs of the killed worker lose it too.
        (ExpectedOutcome.DONE, [run(1, **LOST), run(2, recovered=True)]),
        (ExpectedOutcome.RETRIED, [run(1, **LOST), run(2, recovered=True)]),
        (ExpectedOutcome.RETRIED, [run(1, **FAILED), run(2, **LOST), run(3, recovered=True)]),
        # The worker died before it wrote the run log.
        (ExpectedOutcome.DONE, [run(2, recovered=True)]),
        (ExpectedOutcome.DEAD, [run(1, **LOST), run(2, recovered=True, **FAILED), run(3, **FAILED)]),
    ],
)
def test_expected_runs_have_no_problems(expected, runs):
    assert problems(expected, *runs, attempts=3) == []


@pytest.mark.parametrize(
    "expected, runs, problem",
    [
        (ExpectedOutcome.DONE, [], "never ran"),
        (ExpectedOutcome.DONE, [run(late=-0.001)], "early"),
        (ExpectedOutcome.DONE, [run(due=DUE - timedelta(seconds=1))], "early"),
        (ExpectedOutcome.MOVED, [run(due=DUE + timedelta(seconds=1))], "was due"),
        (ExpectedOutcome.DONE, [run(**FAILED)], "ended as failed"),
        (ExpectedOutcome.DONE, [run(), run(2)], "ended as done, done"),
        (ExpectedOutcome.DONE, [run(), run(2, job_id="b")], "more than one job"),
        (ExpectedOutcome.DONE, [run(2)], "follows none"),
        (ExpectedOutcome.DONE, [run(1, **LOST), run(2)], "follows none"),
        (ExpectedOutcome.DEAD, [run(1, **FAILED), run(1, **FAILED), run(2, **FAILED)], "twice"),
        (ExpectedOutcome.DONE, [run(**LOST)], "ended as"),
        (ExpectedOutcome.CALLED_OFF, [run()], "called off"),
        (ExpectedOutcome.RETRIED, [run()], "ended as done"),
        (ExpectedOutcome.RETRIED, [run(**FAILED)], "ended as failed"),
        (ExpectedOutcome.DEAD, [run(**FAILED)], "ended as failed"),
        (ExpectedOutcome.DEAD, [run(1, **FAILED), run(2, **FAILED), run(3)], "ended as"),
        (ExpectedOutcome.KILLED, [run()], "recovered"),
        (ExpectedOutcome.KILLED, [run(1, **LOST), run(2)], "recovered"),
    ],
)
def test_every_broken_promise_is_found(expected, runs, problem):
    assert problem in "; ".join(problems(expected, *runs, attempts=3))


def test_runs_of_other_jobs_do_not_count():
    other = run()
    other.subject = "ben"
    assert problems(ExpectedOutcome.DONE, other) == ["never ran"]
