"""Pause, resume, delete and set, while a job of the schedule waits, runs, waits for a retry, or is parked."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from django_delayq import get_job
from django_delayq.job.job import Claim
from django_delayq.job.outcome import Action
from django_delayq.task.recurring.handle import ScheduleHandle
from django_delayq.testing import DelayQ
from tests.integration.task.schedules.conftest import Worker
from tests.sample_app.tasks import noop
from tests.shard_apis import NINE

HOUR = timedelta(hours=1)

#: Each ends the waiting job of the schedule.
CHANGES: dict[str, Callable[[ScheduleHandle], object]] = {
    "pause": lambda found: found.pause(),
    "delete": lambda found: found.delete(),
    "set": lambda found: noop.schedules.set("a", every=5 * HOUR, overlap="wait"),
}


def made(**options: Any) -> ScheduleHandle:
    noop.schedules.set("a", **{"every": HOUR, **options})
    found = noop.schedules.get("a")
    assert found
    return found


def begun(delayq: DelayQ, worker: Worker) -> Claim:
    """Return the running job of the next occurrence."""
    worker.begin()
    delayq.advance(hours=1)
    [claim] = worker.begin()
    return claim


@pytest.mark.parametrize("change", CHANGES)
def test_a_scheduled_job_is_cancelled(delayq: DelayQ, worker: Worker, change: str) -> None:
    found = made()
    worker.begin()
    assert worker.waiting() == 1
    CHANGES[change](found)
    assert worker.waiting() == 0


@pytest.mark.parametrize("change", CHANGES)
def test_a_ready_job_is_cancelled(delayq: DelayQ, worker: Worker, change: str) -> None:
    found = made()
    worker.begin()
    delayq.advance(hours=1)
    worker.apis.promote()
    assert len(worker.apis.ready()) == 1
    CHANGES[change](found)
    assert worker.apis.ready() == {}


@pytest.mark.parametrize("change", CHANGES)
def test_a_running_job_goes_on_and_is_retried(delayq: DelayQ, worker: Worker, change: str) -> None:
    found = made()
    running = begun(delayq, worker)
    CHANGES[change](found)
    worker.end(running, Action.RETRY, delay=60_000_000)
    delayq.advance(minutes=2)
    [again] = worker.begin()
    assert (again.id, again.attempt) == (running.id, 2)
    worker.end(again)
    after = found.refresh()
    assert after is None if change == "delete" else after and after.last and after.last.outcome == "done"


@pytest.mark.parametrize("change", CHANGES)
def test_a_job_that_waits_for_the_running_one_never_begins(delayq: DelayQ, worker: Worker, change: str) -> None:
    found = made(overlap="wait")
    running = begun(delayq, worker)
    delayq.advance(hours=1)
    assert worker.begin() == [] and len(worker.apis.parked()) == 1
    CHANGES[change](found)
    worker.end(running)
    assert worker.begin() == []
    assert worker.apis.parked() == worker.apis.ready() == {}


def test_a_pause_lasts_until_resume_which_runs_no_missed_occurrence(delayq: DelayQ) -> None:
    found = made()
    assert len(delayq.advance(hours=2, run=True)) == 2
    assert (found.pause(), found.pause()) == (True, False)
    assert delayq.advance(hours=3, minutes=30, run=True) == []
    assert (found.resume(), found.resume()) == (True, False)
    assert [run.occurrence for run in delayq.advance(hours=1, run=True)] == [NINE + 6 * HOUR]


def test_a_paused_schedule_that_is_set_again_stays_paused(delayq: DelayQ) -> None:
    found = made()
    found.pause()
    made(every=2 * HOUR)
    assert delayq.advance(hours=4, run=True) == []
    found.resume()
    assert [run.occurrence for run in delayq.advance(hours=2, run=True)] == [NINE + 5 * HOUR]


def test_a_schedule_of_a_deleted_name_begins_anew(delayq: DelayQ, worker: Worker) -> None:
    found = made(pause_after=1)
    running = begun(delayq, worker)
    found.delete()
    again = made(pause_after=1)
    assert again.runs == [] and not again.is_paused
    worker.end(running, Action.DEAD_LETTER)
    after = again.refresh()
    assert after and not after.is_paused, "the failure of the job of a deleted schedule counts"


def test_a_changed_schedule_keeps_an_occurrence_that_has_come_and_not_begun(delayq: DelayQ) -> None:
    made()
    delayq.run_due()
    delayq.advance(hours=1)
    made(args=[1])
    [ran] = delayq.run_due()
    assert (ran.occurrence, ran.args) == (NINE + HOUR, [1])


def test_a_waiting_job_that_is_put_off_holds_its_schedule_back(delayq: DelayQ) -> None:
    found = made()
    delayq.run_due()
    after = found.refresh()
    assert after and after.job_id
    waiting = get_job(after.job_id)
    assert waiting and waiting.reschedule(at=NINE + 5 * HOUR + HOUR / 2)
    assert [run.occurrence for run in delayq.advance(hours=5, run=True)] == []
    found.run_now()
    ran = delayq.advance(hours=2, run=True)
    assert [run.occurrence for run in ran] == [None, NINE + HOUR, NINE + 6 * HOUR, NINE + 7 * HOUR]


def test_several_that_set_one_schedule_at_once_leave_one(delayq: DelayQ) -> None:
    barrier = threading.Barrier(8)

    def change(number: int) -> None:
        barrier.wait()
        for _ in range(10):
            noop.schedules.set("a", every=HOUR, args=[number])

    threads = [threading.Thread(target=change, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(list(noop.schedules.iter())) == 1
    assert len(delayq.advance(hours=3, run=True)) == 3
    assert len(delayq.enqueued) <= 1


def test_a_clock_that_is_set_back_repeats_no_occurrence(delayq: DelayQ) -> None:
    made()
    assert len(delayq.advance(hours=3, run=True)) == 3
    delayq._clock.advance(-2 * 3_600_000_000)
    assert delayq.advance(hours=2, run=True) == []
    assert [run.occurrence for run in delayq.advance(hours=1, run=True)] == [NINE + 4 * HOUR]


def test_after_a_clock_was_far_ahead_a_schedule_that_is_made_anew_runs(delayq: DelayQ) -> None:
    delayq.advance(days=3650)
    made()
    delayq.run_due()
    delayq._clock.advance(-3_650 * 86_400_000_000)
    assert delayq.advance(hours=2, run=True) == []
    noop.schedules.delete("a")
    made()
    assert [run.occurrence for run in delayq.advance(hours=1, run=True)] == [NINE + 3 * HOUR]


def test_in_the_last_year_of_all_a_schedule_ends(delayq: DelayQ) -> None:
    delayq.advance_to(NINE.replace(year=2254, month=4))
    made(every=timedelta(days=1), jitter=timedelta(hours=23))
    assert 100 < len(delayq.advance(days=180, run=True)) < 180
    assert delayq.now.year == 2254
