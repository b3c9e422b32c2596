"""`current_job()`: the schedule and the occurrence of a job, and how many later ones had passed when it began."""

from collections.abc import Callable
from datetime import UTC, timedelta
from typing import Any

import pytest

from django_delayq import RetryPolicy, current_job, delayed_task
from django_delayq.exceptions import StoreUnavailable
from django_delayq.task.context import CurrentJob
from django_delayq.testing import DelayQ
from tests.integration.task.schedules.conftest import Worker
from tests.shard_apis import NINE

HOUR, MINUTE = timedelta(hours=1), timedelta(minutes=1)


class Seen:
    """A task that keeps what a function returns of its job."""

    def __init__(self) -> None:
        self.found: list[Any] = []
        self.look: Callable[[Any], Any] = lambda job: (job.schedule, job.occurrence, job.missed)

        def run(*_: Any) -> None:
            self.found.append(self.look(current_job()))

        run.__qualname__ = "run"
        self.task = delayed_task(name="shop.seen", retry=RetryPolicy(max_attempts=2, delays=[3 * HOUR]))(run)


@pytest.fixture
def seen(registered: Any, delayq: DelayQ) -> Seen:
    """A task of this test."""
    registered()
    return Seen()


def test_other_jobs_have_no_schedule_and_missed_none(delayq: DelayQ, seen: Seen) -> None:
    seen.task.enqueue()
    delayq.run_due()
    assert seen.found == [(None, None, 0)]


def test_on_time_nothing_was_missed(delayq: DelayQ, seen: Seen) -> None:
    seen.task.schedules.set("digest:42", cron="0 * * * *", tz="Europe/Berlin")
    delayq.advance(hours=2, run=True)
    assert seen.found == [("digest:42", NINE + HOUR, 0), ("digest:42", NINE + 2 * HOUR, 0)]
    assert {found[1].tzinfo for found in seen.found} == {UTC}


def test_a_job_that_is_run_by_hand_has_no_occurrence(delayq: DelayQ, seen: Seen) -> None:
    seen.task.schedules.set("a", every=HOUR)
    found = seen.task.schedules.get("a")
    assert found
    delayq.advance(hours=5)
    found.run_now()
    delayq.run_due()
    assert ("a", None, 0) in seen.found


@pytest.mark.parametrize("rule", [{"every": HOUR}, {"cron": "0 * * * *", "tz": "UTC"}])
def test_after_an_outage_it_missed_the_later_occurrences(delayq: DelayQ, seen: Seen, rule: dict[str, Any]) -> None:
    seen.task.schedules.set("a", **rule)
    delayq.run_due()
    # Nobody promoted, planted or worked for seven hours: the job of ten o'clock waits.
    delayq.advance(hours=7, minutes=30)
    delayq.run_due()
    assert seen.found == [("a", NINE + HOUR, 6)]
    delayq.advance(minutes=30, run=True)
    assert seen.found[1:] == [("a", NINE + 8 * HOUR, 0)]


def test_each_attempt_counts_by_its_own_begin(delayq: DelayQ, seen: Seen) -> None:
    def look(job: Any) -> Any:
        seen.found.append((job.attempt, job.occurrence, job.missed))
        if job.attempt == 1:
            raise ValueError("as asked")

    seen.look = look
    seen.task.schedules.set("a", every=HOUR, end=NINE + 4 * HOUR, overlap="skip")
    delayq.advance(hours=4, minutes=1, run=True, errors="retry")
    assert [found for found in seen.found if found][:2] == [(1, NINE + HOUR, 0), (2, NINE + HOUR, 3)]


def test_the_rule_that_the_schedule_has_now_counts(delayq: DelayQ, seen: Seen, worker: Worker) -> None:
    seen.task.schedules.set("a", every=HOUR)
    worker.begin()
    delayq.advance(hours=3)
    [claim] = worker.begin()
    job = CurrentJob(claim)
    seen.task.schedules.set("a", every=30 * MINUTE)
    assert job.missed == 4


def test_of_a_deleted_schedule_nothing_was_missed(delayq: DelayQ, seen: Seen, worker: Worker) -> None:
    seen.task.schedules.set("a", every=HOUR)
    worker.begin()
    delayq.advance(hours=3)
    [claim] = worker.begin()
    seen.task.schedules.delete("a")
    job = CurrentJob(claim)
    assert (job.schedule, job.occurrence, job.missed) == ("a", NINE + HOUR, 0)


def test_the_schedule_is_read_once_for_each_attempt(delayq: DelayQ, seen: Seen, worker: Worker) -> None:
    commands = worker.apis.client

    def reads() -> int:
        return int(commands.info("commandstats").get("cmdstat_hmget", {"calls": 0})["calls"])

    def look(job: Any) -> Any:
        before = reads()
        assert (job.schedule, job.occurrence) == ("a", NINE + HOUR)
        unread = reads()
        missed = [current_job().missed for _ in range(5)]  # type: ignore[union-attr]
        return unread - before, missed, reads() - unread

    seen.look = look
    seen.task.schedules.set("a", every=HOUR)
    delayq.run_due()
    delayq.advance(hours=2, minutes=1)
    delayq.run_due()
    assert seen.found == [(0, [1] * 5, 1)]


def test_so_many_missed_occurrences_are_not_counted_to_the_end(delayq: DelayQ, seen: Seen) -> None:
    seen.task.schedules.set("a", every=1)
    delayq.run_due()
    delayq.advance(days=30)
    delayq.run_due(limit=3)
    assert seen.found[0][2] == 10_000


def test_without_redis_only_missed_fails(delayq: DelayQ, seen: Seen, worker: Worker) -> None:
    seen.task.schedules.set("a", every=HOUR)
    worker.begin()
    delayq.advance(hours=3)
    [claim] = worker.begin()
    job = CurrentJob(claim)
    with delayq.unavailable():
        assert (job.schedule, job.occurrence) == ("a", NINE + HOUR)
        with pytest.raises(StoreUnavailable):
            _ = job.missed
    assert job.missed == 2
