"""Tests of the checker: it finds each kind of violation in a case that has it, and none in a correct case."""

from dataclasses import replace
from typing import Any

import pytest

from tests.chaos.harness.case import AcceptedJob, Case, Dead, Death, Outage, Run
from tests.chaos.harness.checker import check
from tests.chaos.harness.report import longest_pause, read_runs

WORKER, OTHER, CHILD = 100, 200, 300
STARTED = 0.0


def accepted(**facts: Any) -> AcceptedJob:
    return AcceptedJob(**{"id": "a", "due": 10.0, **facts})


def run(start: float = 10.5, end: float | None = 11.0, how: str = "done", **facts: Any) -> Run:
    facts = {"id": "a", "attempt": 1, "pid": WORKER, **facts}
    return Run(start=start, end=end, how=how if end is not None else "", **facts)


def again(start: float = 13.5, end: float | None = 14.0, **facts: Any) -> Run:
    return run(start, end, **{"attempt": 2, "pid": OTHER, **facts})


def case(*runs: Run, **facts: Any) -> Case:
    return Case(**{"accepted_jobs": [accepted()], "runs": runs, **facts})


def killed(at: float, pid: int = WORKER, started_at: float = STARTED) -> dict[str, Any]:
    return {"deaths": [Death(pid=pid, started_at=started_at, at=at, gone=at + 0.02)]}


POISON = accepted(poison=True, max_attempts=3)
CRASHES = [run(at, at, how="crashed", attempt=number, pid=number) for number, at in enumerate((11.0, 14.0, 17.0), 1)]

CORRECT = {
    "it runs once": case(run()),
    "it starts exactly when it is due": case(run(10.0)),
    "its worker is killed, and it runs again": case(run(end=None), again(), **killed(10.7)),
    "it starts while its worker is being killed": case(run(10.505, end=None), again(), **killed(10.5)),
    "its worker is killed before the reply": case(run(), again(), **killed(11.01)),
    "it runs in a child of the killed worker": case(run(end=None, pid=CHILD, parent=WORKER), again(), **killed(10.7)),
    "it starts in a child whose worker is dead": case(run(end=None, pid=CHILD, parent=WORKER), again(), **killed(10.4)),
    "its worker's process id is reused before and after": case(
        run(end=None),
        again(),
        deaths=[
            Death(pid=WORKER, started_at=started_at, at=at, gone=at) for started_at, at in ((0, 1), (2, 10.7), (12, 20))
        ],
    ),
    "it fails, and runs again": case(run(how="failed"), again(11.1, 11.2)),
    "its claim is killed before it starts": case(again(), **killed(12)),
    "its worker is frozen, and it runs elsewhere meanwhile": case(
        run(10.5, 15.0), again(13.0, 13.5), outages=[Outage(begin=10.6, end=14.9, pid=WORKER)]
    ),
    "all processes are disconnected for longer than the lease": case(
        run(10.5, 15.0), again(13.0, 13.5), outages=[Outage(begin=10.6, end=12.9)]
    ),
    "its confirmation falls into an outage": case(
        run(end=None), again(attempt=1), outages=[Outage(begin=10.4, end=10.6)], **killed(10.7)
    ),
    "its confirmation and its outcome fall into an outage": case(
        run(), again(attempt=1), outages=[Outage(begin=10.4, end=13.0)]
    ),
    "its confirmation falls into a cut": case(
        run(end=None), again(attempt=1), cuts=[Outage(begin=10.49, end=10.51)], **killed(10.7)
    ),
    "the reply to its outcome falls into an outage": case(run(), again(), outages=[Outage(begin=11.0, end=13.0)]),
    "the reply to its outcome is late and falls into an outage": case(
        run(), again(), outages=[Outage(begin=12.9, end=15.4)]
    ),
    "its reply is late, and another run of that time is acknowledged": case(
        *(run(), again(), run(id="b", end=11.5, acknowledged=11.6)),
        accepted_jobs=[accepted(), accepted(id="b")],
        outages=[Outage(begin=12.9, end=15.4)],
    ),
    "its worker is killed while it waits for the reply": case(run(), again(), **killed(13.4)),
    "it runs in a child whose worker receives no reply": case(
        *(run(pid=CHILD, parent=WORKER), again(), run(id="b", pid=CHILD, end=12.5, acknowledged=12.6)),
        accepted_jobs=[accepted(), accepted(id="b")],
        **killed(13.4),
    ),
    "its lease is lost before its process has started": case(
        run(14.0, 14.1, claimed=10.5), again(14.5, 14.6), outages=[Outage(begin=10.6, end=12.9)]
    ),
    "it is cancelled and never runs": case(
        run(id="b"), accepted_jobs=[accepted(cancelled_at=10.2), accepted(id="b")], lease=2.0
    ),
    "it is cancelled while it waits for another attempt": case(
        run(end=None), accepted_jobs=[accepted(cancelled_at=14.0)], **killed(10.7)
    ),
    "the outcome of its cancel is unknown": case(
        run(id="b"), accepted_jobs=[accepted(cancel_doubtful=True), accepted(id="b")]
    ),
    "it is rescheduled before it runs": case(run(20.0, 21.0), accepted_jobs=[accepted(moved=(9.0, 20.0))]),
    "it is stored twice and runs twice": case(run(), again(attempt=1), accepted_jobs=[accepted(sends=2)]),
    "it is stored twice and fails once each time": case(
        *(
            run(at, at + 0.1, "failed" if n == 1 else "done", attempt=n)
            for at, n in ((11, 1), (12, 2), (13, 1), (14, 2))
        ),
        accepted_jobs=[accepted(sends=2)],
    ),
    "a job of unknown outcome is stored": case(run(), run(id="b"), doubtful={"b"}),
    "a poison job is dead after its attempts": case(
        *CRASHES, accepted_jobs=[POISON], dead=[Dead(id="a", ended=3, endings=("crashed",) * 3)]
    ),
}


@pytest.mark.parametrize("name", CORRECT)
def test_correct_run_has_no_violation(name: str) -> None:
    assert check(CORRECT[name]).violations == {}


VIOLATIONS = [
    ("lost", "it never runs", case(run(id="b"), accepted_jobs=[accepted(), accepted(id="b")])),
    ("lost", "its only run is cut short", case(run(end=None), **killed(10.7))),
    ("lost", "it fails and is not retried", case(run(how="failed"))),
    ("lost", "a job that is no poison is dead", case(run(end=None), dead=[Dead(id="a", ended=5)], **killed(10.7))),
    ("early", "it starts before it is due", case(run(9.999_999))),
    ("early", "it starts before its new due time", case(run(15.0, 16.0), accepted_jobs=[accepted(moved=(9.0, 20.0))])),
    ("overlapping", "two runs overlap", case(run(10.5, 14.0), again(13.0))),
    ("overlapping", "a run continues after its worker's death", case(run(10.5, 14.0), again(13), **killed(11))),
    (
        "overlapping",
        "the second run starts before the lease can have ended",
        case(run(10.5, 12), again(11), outages=[Outage(begin=10.6, end=13)]),
    ),
    (
        "overlapping",
        "another worker is frozen",
        case(run(10.5, 15.0), again(13.0, 13.5), outages=[Outage(begin=10.6, end=14.9, pid=OTHER)]),
    ),
    ("overlapping", "the first run never ends", case(run(end=None), again())),
    ("duplicates", "it succeeds and runs again", case(run(), again())),
    ("duplicates", "a cut without an outage", case(run(), again(), cuts=[Outage(begin=10.6, end=10.7)])),
    ("duplicates", "it is claimed after the outage", case(run(), again(), outages=[Outage(begin=8, end=10.4)])),
    ("duplicates", "its worker is killed much later", case(run(), again(20.0, 20.5), **killed(16.5))),
    ("duplicates", "its worker is killed after the second run starts", case(run(), again(), **killed(13.6))),
    ("duplicates", "the outage comes after the second run", case(run(), again(), outages=[Outage(begin=13.6, end=15)])),
    (
        "duplicates",
        "it is acknowledged before its worker is killed",
        case(run(acknowledged=11.01), again(), **killed(11.02)),
    ),
    (
        "duplicates",
        "it is acknowledged during the outage",
        case(run(acknowledged=11.6), again(), outages=[Outage(begin=10.9, end=13.0)]),
    ),
    (
        "duplicates",
        "a later run of its worker is acknowledged without a fault",
        case(
            *(run(), again(), run(id="b", end=12.1, acknowledged=12.2)),
            accepted_jobs=[accepted(), accepted(id="b")],
            outages=[Outage(begin=12.9, end=15.4)],
        ),
    ),
    (
        "duplicates",
        "the worker of its child acknowledges later runs",
        case(
            *(run(pid=CHILD, parent=WORKER), again(), run(id="b", end=12.1, acknowledged=12.2)),
            accepted_jobs=[accepted(), accepted(id="b")],
            **killed(12.9),
        ),
    ),
    (
        "overlapping",
        "an acknowledged run held its lease all the time",
        case(run(10.5, 15.0, acknowledged=15.1), again(13, 13.5), outages=[Outage(begin=10.6, end=14.9)]),
    ),
    (
        "early",
        "it is acknowledged, so only its new due time counts",
        case(
            run(15.0, 16.0, acknowledged=16.1),
            accepted_jobs=[accepted(moved=(9.0, 20.0))],
            outages=[Outage(begin=15.5, end=16)],
        ),
    ),
    ("duplicates", "only an earlier process with its worker's id is killed", case(run(), again(), **killed(5))),
    (
        "duplicates",
        "it runs more often than it is stored",
        case(run(), again(), again(15, 16, attempt=3), accepted_jobs=[accepted(sends=2)]),
    ),
    ("miscounted", "two runs have one number", case(run(end=None), again(attempt=1), **killed(10.7))),
    (
        "miscounted",
        "two runs have one number, and an outage comes much later",
        case(run(end=None), again(attempt=1), outages=[Outage(begin=14, end=15)], **killed(10.7)),
    ),
    (
        "miscounted",
        "two runs have one number, and a cut comes before the claim",
        case(run(end=None, claimed=10.4), again(attempt=1), cuts=[Outage(begin=10.2, end=10.3)], **killed(10.7)),
    ),
    ("miscounted", "its first run is attempt 2", case(run(attempt=2))),
    ("miscounted", "there are more attempts than deaths", case(run(end=None), again(attempt=4), **killed(10.7))),
    (
        "miscounted",
        "it exceeds max_attempts",
        case(run(how="failed"), again(), accepted_jobs=[accepted(max_attempts=1)]),
    ),
    ("miscounted", "it is dead too early", case(*CRASHES[:2], accepted_jobs=[POISON], dead=[Dead(id="a", ended=2)])),
    ("miscounted", "it is dead too late", case(*CRASHES, accepted_jobs=[POISON], dead=[Dead(id="a", ended=4)])),
    ("lost", "a poison job disappears", case(*CRASHES, accepted_jobs=[POISON])),
    ("unexpected", "it runs although it is cancelled", case(run(), accepted_jobs=[accepted(cancelled_at=10.2)])),
    (
        "unexpected",
        "it is dead although it is cancelled",
        case(run(id="b"), accepted_jobs=[accepted(cancelled_at=10.2), accepted(id="b")], dead=[Dead(id="a", ended=5)]),
    ),
    ("unexpected", "a job runs that was never accepted", case(run(), run(id="b"))),
    ("empty", "no jobs", case(accepted_jobs=[])),
    ("empty", "no deliveries", case()),
]


@pytest.mark.parametrize(("kind", "name", "case"), VIOLATIONS, ids=[f"{kind}: {name}" for kind, name, _ in VIOLATIONS])
def test_violation_is_found(kind: str, name: str, case: Case) -> None:
    assert kind in check(case).violations


def test_result_counts_jobs_and_deliveries() -> None:
    result = check(replace(case(run(end=None), again(), **killed(10.7)), dead=[]))
    assert (result.accepted, result.deliveries, result.finished, result.dead) == (1, 2, 1, 0)
    assert (result.cut_short, result.repeated) == (1, 1)


def test_longest_pause_is_longest_time_without_fault_and_without_job() -> None:
    faults = [("cut", 10.0, 11.0), ("hold", 12.0, 15.0), ("kill", 15.5, 15.5), ("busy", 18.0, 20.0)]
    assert longest_pause(faults[:1], [10.5, 13.5, 14.0]) == 2.5
    # Of the 9.5 s from the cut to the job, these are the longest without a fault.
    assert longest_pause(faults, [10.5, 20.5]) == 2.5
    assert longest_pause(faults, [10.5, 16.0]) == 1.0
    assert longest_pause(faults[:2], [14.0, 15.1]) == 1.0
    assert longest_pause(faults, [9.0]) == 2.5
    assert longest_pause(faults[:1], [9.0]) == longest_pause([], [9.0]) == 0.0


def test_runs_are_read_from_ledger() -> None:
    facts = {"id": "a", "attempt": 1, "pid": WORKER, "parent": 0}
    again = [{**facts, "word": "run", "at": 3.0}, {**facts, "word": "end", "at": 4.0, "failed": False}]
    ledger = [
        *({**facts, "word": "run", "at": 1.0, "claimed": 0.5}, {**facts, "word": "end", "at": 2.0, "failed": True}),
        *(*again, {**facts, "id": "b", "word": "run", "at": 5.0}),
        {**facts, "id": "c", "word": "run", "at": 6.0, "how": "kill"},
    ]
    actual = [(item.id, item.begin, item.start, item.end, item.how) for item in read_runs(ledger)]
    assert actual == [
        ("a", 0.5, 1.0, 2.0, "failed"),
        ("a", 3.0, 3.0, 4.0, "done"),
        ("b", 5.0, 5.0, None, ""),
        ("c", 6.0, 6.0, 6.0, "crashed"),
    ]


def test_acknowledgements_are_matched_with_runs_of_any_process() -> None:
    here, there = {"id": "a", "attempt": 1, "pid": WORKER}, {"id": "b", "attempt": 2, "pid": CHILD}
    ledger = [
        *({**here, "word": "run", "at": 1.0, "parent": 0}, {**here, "word": "end", "at": 2.0, "failed": False}),
        *({**there, "word": "run", "at": 1.5, "parent": WORKER}, {**there, "word": "end", "at": 2.5, "failed": False}),
        {**here, "word": "run", "at": 3.0, "attempt": 2, "parent": 0},
        {**here, "word": "acknowledged", "at": 2.1},
        {**there, "word": "acknowledged", "at": 2.6, "pid": WORKER},
    ]
    actual = [(item.id, item.worker, item.end, item.acknowledged) for item in read_runs(ledger)]
    assert actual == [("a", WORKER, 2.0, 2.1), ("b", WORKER, 2.5, 2.6), ("a", WORKER, None, None)]
