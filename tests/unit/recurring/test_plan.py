"""Plan: which occurrences get a job after an outage, by `catch_up`."""

from typing import Any

import pytest

from django_delayq.clock import HOUR_US, SECOND_US
from django_delayq.recurring.plan import BATCH, latest_occurrence, make_plan
from django_delayq.recurring.rule import make_rule, occurrences
from django_delayq.recurring.schedule import Schedule

NOON = 1_800_000_000_000_000 // HOUR_US * HOUR_US
MINUTE = 60 * SECOND_US


def schedule(**options: Any) -> Schedule:
    rule = make_rule(every=3_600)
    return Schedule(name="report", rule=rule, **options)


def planned(
    subject: Schedule, now: float, *, last: float = 0, last_start: float = 0, is_waiting: bool = False
) -> list[float]:
    """Return the occurrences that get a job; all in hours since noon."""
    plan = make_plan(
        subject,
        last_us=at(last),
        last_start_us=at(last_start),
        is_waiting=is_waiting,
        now_us=at(now),
    )
    assert (plan.next_planting_us is None) is (subject.next_after(max([at(now), *plan.occurrences])) is None)
    assert plan.occurrences or plan.next_planting_us is None or at(now) < plan.next_planting_us
    return [(occurrence - NOON) / HOUR_US for occurrence in plan.occurrences]


def at(hours: float) -> int:
    return NOON + round(hours * HOUR_US)


@pytest.mark.parametrize("catch_up", ["none", "last", "all"])
def test_the_next_one_without_an_outage(catch_up: Any) -> None:
    assert planned(schedule(catch_up=catch_up, overlap="allow"), 0.05) == [1]
    assert planned(schedule(catch_up=catch_up, overlap="allow"), 0.999) == [1]


@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("catch_up", ["none", "last", "all"])
def test_one_job_is_planted_ahead_by_several_dispatchers(catch_up: Any, is_running: bool) -> None:
    subject = schedule(catch_up=catch_up, overlap="allow")
    first = make_plan(subject, last_us=NOON, last_start_us=0, is_waiting=False, is_running=is_running, now_us=at(0.1))
    assert first.occurrences == [at(1)]
    second = make_plan(subject, last_us=at(1), last_start_us=0, is_waiting=True, is_running=is_running, now_us=at(0.1))
    assert second == ([], first.next_planting_us)


def test_last() -> None:
    subject = schedule(catch_up="last")
    # Nothing stands for the hours 1 to 5.
    assert planned(subject, 5.5) == [5]
    # The job of hour 0 has not begun, or began after them: it stands for all.
    assert planned(subject, 5.5, is_waiting=True) == []
    assert planned(subject, 5.5, last_start=5.2) == [6]
    assert planned(subject, 5.5, last_start=4.9) == [5]
    assert planned(subject, 5.0) == [5]


def test_while_a_job_waits_no_other_is_planted_beside_it() -> None:
    subject = schedule()
    looks, now = [], at(0.01)
    while now < at(2):
        plan = make_plan(subject, last_us=NOON, last_start_us=0, is_waiting=True, now_us=now)
        assert plan.occurrences == []
        assert plan.next_planting_us is not None
        looks.append(now := plan.next_planting_us)
    # Also when the next one is due, and seldom in between.
    assert {at(1), at(2)} <= set(looks)
    assert len(looks) < 30
    # Another one runs: that is up to `overlap`.
    running = make_plan(subject, last_us=NOON, last_start_us=0, is_waiting=True, is_running=True, now_us=at(0.5))
    assert running.occurrences == [at(1)]
    # It begins before the next one is due.
    assert planned(subject, 0.9, last_start=0.8) == [1]
    assert planned(subject, 1.0, last_start=0.999) == [1]
    # It begins later.
    assert planned(subject, 1.5, last_start=1.2) == [2]
    assert make_plan(schedule(end_us=NOON), last_us=NOON - 1, last_start_us=0, is_waiting=True, now_us=at(1)) == (
        [],
        None,
    )


def test_with_jitter_a_job_waits_until_it_is_due() -> None:
    subject = schedule(jitter_us=HOUR_US - 1)
    late = subject.due_us(NOON) - NOON
    assert 0.1 * HOUR_US < late < 0.9 * HOUR_US
    due = late / HOUR_US
    plan = make_plan(subject, last_us=NOON, last_start_us=0, is_waiting=True, now_us=at(due) - SECOND_US)
    assert plan == ([], subject.planted_us(NOON, at(1)))
    assert at(due) <= subject.planted_us(NOON, at(1)) < at(due + 0.1)
    # It began as soon as it was due, after the next occurrence, or long after that was due.
    assert planned(subject, due + 0.01, last_start=due) == [1]
    assert planned(subject, 1.1, last_start=1.05) == [1]
    assert planned(subject, due + 1.01, last_start=due + 1) == [2]


def test_none() -> None:
    subject = schedule(catch_up="none", window_us=10 * MINUTE)
    assert planned(subject, 5.1) == [5]
    assert planned(subject, 5.2) == [6]
    assert planned(schedule(catch_up="none"), 5.9) == [5]


def test_a_job_that_has_expired_stands_for_no_other_once_it_has_ended() -> None:
    subject = schedule(catch_up="none", window_us=10 * MINUTE)
    assert make_plan(
        schedule(catch_up="none", end_us=at(5)), last_us=NOON, last_start_us=0, is_waiting=True, now_us=at(5)
    ) == ([], at(5) + 60 * SECOND_US)
    # No worker has taken it, or none has ended it yet.
    assert planned(subject, 5.1, is_waiting=True) == []
    assert planned(subject, 1.1, last=1, is_waiting=True) == []
    assert make_plan(
        subject, last_us=NOON, last_start_us=at(5.05), is_waiting=False, is_running=True, now_us=at(5.05) + 1
    ) == ([], at(5.05) + 1 + SECOND_US)
    # One goes on with it: its clock says that it is in time.
    late = make_plan(subject, last_us=NOON, last_start_us=at(5.05), is_waiting=False, is_running=True, now_us=at(5.1))
    assert late.occurrences == [at(5)]
    # A worker has ended it.
    assert planned(subject, 5.1, last_start=5.05) == [5]
    assert planned(subject, 5.1, last=4.9, last_start=5.05) == [6]


def test_all() -> None:
    subject = schedule(catch_up="all", overlap="allow", window_us=4 * HOUR_US)
    assert planned(subject, 3.5) == [1, 2, 3]
    # Whatever the last one does.
    assert planned(subject, 3.5, last_start=3.2, is_waiting=True) == [1, 2, 3]
    assert planned(subject, 9.5) == [6, 7, 8, 9]
    assert planned(subject, 9.5, last=9) == [10]


def test_many_missed_ones_take_several_plans() -> None:
    subject = schedule(catch_up="all", overlap="allow", window_us=1_000 * HOUR_US)
    assert planned(subject, 120.5) == list(range(1, BATCH + 1))
    plan = make_plan(subject, last_us=NOON, last_start_us=0, is_waiting=False, now_us=at(120.5))
    assert plan.next_planting_us is not None
    assert plan.next_planting_us < at(120.5)
    assert planned(subject, 120.5, last=BATCH)[0] == BATCH + 1


def test_a_day_of_missed_ones_by_default() -> None:
    assert planned(schedule(catch_up="all", overlap="allow"), 100.5) == list(range(77, 101))


@pytest.mark.parametrize("catch_up", ["none", "last", "all"])
def test_an_end(catch_up: Any) -> None:
    subject = schedule(catch_up=catch_up, overlap="allow", end_us=at(3))
    assert planned(subject, 0.5, last=2) == [3]
    assert planned(subject, 3.5, last=3) == []
    assert planned(subject, 9.5, last=3) == []
    expected = {"none": [], "last": [3], "all": [1, 2, 3]}
    assert planned(subject, 9.5) == expected[catch_up]


@pytest.mark.parametrize("fields", ["*/7 * * * *", "* 9 * * *", "0 0 29 2 *", "0 3 * * mon"])
def test_the_latest_occurrence(fields: str) -> None:
    pytest.importorskip("cronsim")
    rule = make_rule(cron=fields, tz="Europe/Berlin")
    subject = Schedule(name="report", rule=rule)
    first = rule.next_after(NOON)
    assert first is not None
    for later in (0, 1, SECOND_US, HOUR_US, 12 * HOUR_US + 1, 24 * 40 * HOUR_US):
        now = first + later
        expected = max(occurrences(rule, after_us=NOON, until_us=now))
        assert latest_occurrence(subject, first_us=first, now_us=now) == expected
