"""The judge of the demo: it must see each way in which a promise can be broken."""

from datetime import UTC, datetime, timedelta

import pytest

from market.ledger import Ending, LedgerEntry
from stage.judge import Finding, judge
from stage.plan import Fate, Plan

DUE = datetime(2030, 1, 1, 12, tzinfo=UTC)


def run(attempt=1, *, ending=Ending.DONE, late=1.0, due=DUE, recovered=False, job_id="a"):
    started = due + timedelta(milliseconds=late)
    return LedgerEntry(
        task="greet", subject="ann", job_id=job_id, attempt=attempt, due=due, started=started, ending=ending,
        recovered=recovered,
    )  # fmt: skip


def wrong(fate, *runs, attempts=1):
    [finding] = judge([Plan("greet", "ann", DUE, fate, attempts=attempts)], runs)
    assert isinstance(finding, Finding)
    return finding.wrong


LOST = {"ending": Ending.NONE}
FAILED = {"ending": Ending.FAILED}


@pytest.mark.parametrize(
    "fate, runs",
    [
        (Fate.DONE, [run()]),
        (Fate.MOVED, [run()]),
        (Fate.CALLED_OFF, []),
        (Fate.RETRIED, [run(1, **FAILED), run(2)]),
        (Fate.DEAD, [run(1, **FAILED), run(2, **FAILED), run(3, **FAILED)]),
        (Fate.KILLED, [run(1, **LOST), run(2, recovered=True)]),
        # Whatever runs beside the job that loses its worker loses it too.
        (Fate.DONE, [run(1, **LOST), run(2, recovered=True)]),
        (Fate.RETRIED, [run(1, **LOST), run(2, recovered=True)]),
        (Fate.RETRIED, [run(1, **FAILED), run(2, **LOST), run(3, recovered=True)]),
        # It died before the ledger heard of the run.
        (Fate.DONE, [run(2, recovered=True)]),
        (Fate.DEAD, [run(1, **LOST), run(2, recovered=True, **FAILED), run(3, **FAILED)]),
    ],
)
def test_what_happened_as_promised_passes(fate, runs):
    assert wrong(fate, *runs, attempts=3) == []


@pytest.mark.parametrize(
    "fate, runs, fault",
    [
        (Fate.DONE, [], "never ran"),
        (Fate.DONE, [run(late=-0.001)], "early"),
        (Fate.DONE, [run(due=DUE - timedelta(seconds=1))], "early"),
        (Fate.MOVED, [run(due=DUE + timedelta(seconds=1))], "was due"),
        (Fate.DONE, [run(**FAILED)], "ended as failed"),
        (Fate.DONE, [run(), run(2)], "ended as done, done"),
        (Fate.DONE, [run(), run(2, job_id="b")], "more than one job"),
        (Fate.DONE, [run(2)], "follows none"),
        (Fate.DONE, [run(1, **LOST), run(2)], "follows none"),
        (Fate.DEAD, [run(1, **FAILED), run(1, **FAILED), run(2, **FAILED)], "twice"),
        (Fate.DONE, [run(**LOST)], "ended as"),
        (Fate.CALLED_OFF, [run()], "called off"),
        (Fate.RETRIED, [run()], "ended as done"),
        (Fate.RETRIED, [run(**FAILED)], "ended as failed"),
        (Fate.DEAD, [run(**FAILED)], "ended as failed"),
        (Fate.DEAD, [run(1, **FAILED), run(2, **FAILED), run(3)], "ended as"),
        (Fate.KILLED, [run()], "recovered"),
        (Fate.KILLED, [run(1, **LOST), run(2)], "recovered"),
    ],
)
def test_every_broken_promise_is_seen(fate, runs, fault):
    assert fault in "; ".join(wrong(fate, *runs, attempts=3))


def test_runs_of_other_jobs_do_not_count():
    other = run()
    other.subject = "ben"
    assert wrong(Fate.DONE, other) == ["never ran"]
