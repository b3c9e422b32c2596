"""`run_now()`: one more job of a schedule, at once; `overlap` applies to it, the pause does not."""

from datetime import timedelta
from typing import Any

import pytest

from django_delayq import get_job
from django_delayq.exceptions import JobDropped
from django_delayq.job.job import Claim, State
from django_delayq.job.outcome import Action
from django_delayq.task.recurring.handle import ScheduleHandle
from django_delayq.testing import DelayQ
from tests.integration.task.schedules.conftest import Worker
from tests.sample_app.tasks import noop
from tests.shard_apis import NINE

HOUR = timedelta(hours=1)


def made(**options: Any) -> ScheduleHandle:
    """Set a schedule and return it."""
    noop.using(store_result=True).schedules.set("a", every=HOUR, args=[1], **options)
    found = noop.schedules.get("a")
    assert found
    return found


def last_outcome() -> str | None:
    found = noop.schedules.get("a")
    assert found
    return found.last and found.last.outcome


@pytest.mark.parametrize("overlap", ["skip", "wait", "stop", "allow"])
def test_alone_it_runs_at_once_beside_the_waiting_job(delayq: DelayQ, overlap: Any) -> None:
    found = made(overlap=overlap)
    delayq.run_due()
    [waiting] = delayq.enqueued
    job = found.run_now()
    [ran] = delayq.run_due()
    assert (ran.id, ran.args, ran.schedule, ran.occurrence) == (job.id, [1], "a", None)
    assert job.refresh().state is State.DONE and last_outcome() == "done"
    assert [each.id for each in delayq.enqueued] == [waiting.id]
    [ran] = delayq.advance(hours=1, run=True)
    assert ran.id == waiting.id and ran.occurrence == NINE + HOUR


def begun(delayq: DelayQ, worker: Worker) -> Claim:
    """Return the running job of the next occurrence."""
    worker.begin()
    delayq.advance(hours=1)
    [claim] = worker.begin()
    return claim


def test_skip_drops_it_while_another_runs_and_its_handle_says_so(delayq: DelayQ, worker: Worker) -> None:
    found = made()
    running = begun(delayq, worker)
    job = found.run_now()
    assert worker.begin() == []
    assert last_outcome() == "skipped"
    worker.end(running)
    assert last_outcome() == "done"
    job = found.run_now()
    assert [claim.id for claim in worker.begin()] == [job.id]


def test_a_dropped_job_names_its_schedule(delayq: DelayQ, worker: Worker) -> None:
    found = made()
    running = begun(delayq, worker)
    job = found.run_now()
    [ran] = delayq.run_due()
    assert ran.id == job.id
    assert ran.error == (
        "Its schedule 'a' kept the job from beginning: another job of it had not ended, or it was changed after this "
        "job was planted."
    )
    assert job.refresh().state is State.DROPPED
    with pytest.raises(JobDropped, match="it is dropped: a limit or schedule kept it from beginning"):
        assert job.result
    worker.end(running)


def test_wait_lets_one_wait_until_the_running_one_has_ended(delayq: DelayQ, worker: Worker) -> None:
    found = made(overlap="wait")
    running = begun(delayq, worker)
    first = found.run_now()
    assert worker.begin() == []
    second = found.run_now()
    assert worker.begin() == []
    assert get_job(second.id) is None, "only one waits"
    worker.end(running)
    assert [claim.id for claim in worker.begin()] == [first.id]


def test_stop_ends_the_running_one_and_runs(delayq: DelayQ, worker: Worker) -> None:
    found = made(overlap="stop")
    running = begun(delayq, worker)
    job = found.run_now()
    assert worker.begin() == []
    heart = worker.apis.worker(running.lease[14:22])
    assert running.lease in heart.api.heartbeat([running.lease]).stops
    worker.end(running, Action.CANCEL)
    assert [claim.id for claim in worker.begin()] == [job.id]


def test_allow_runs_both(delayq: DelayQ, worker: Worker) -> None:
    found = made(overlap="allow")
    running = begun(delayq, worker)
    job = found.run_now()
    [claim] = worker.begin()
    assert claim.id == job.id
    worker.end(claim)
    worker.end(running)
    found = noop.schedules.get("a")
    assert found and [run.outcome for run in found.runs] == ["done", "done"]


def test_it_counts_as_the_running_one(delayq: DelayQ, worker: Worker) -> None:
    found = made()
    worker.begin()
    job = found.run_now()
    [claim] = worker.begin()
    assert claim.id == job.id
    found = noop.schedules.get("a")
    assert found and found.running_id == job.id
    delayq.advance(hours=1)
    assert worker.begin() == []
    assert last_outcome() == "skipped"
    worker.end(claim)


def test_it_runs_while_the_schedule_is_paused_and_leaves_the_pause(delayq: DelayQ) -> None:
    found = made()
    found.pause()
    job = found.run_now()
    assert [run.id for run in delayq.advance(days=1, run=True)] == [job.id]
    found = noop.schedules.get("a")
    assert found and found.is_paused and last_outcome() == "done"


def test_after_the_end_of_the_schedule_it_runs(delayq: DelayQ) -> None:
    found = made(end=NINE + HOUR)
    delayq.advance(hours=5, run=True)
    job = found.run_now()
    assert [run.id for run in delayq.run_due()] == [job.id]


def test_the_handle_of_a_deleted_schedule_still_runs_its_job(delayq: DelayQ) -> None:
    found = made()
    found.delete()
    job = found.run_now()
    assert [run.id for run in delayq.run_due()] == [job.id]


def test_each_call_makes_a_job_of_its_own(delayq: DelayQ) -> None:
    found = made(overlap="allow")
    jobs = [found.run_now() for _ in range(3)]
    assert len({job.id for job in jobs}) == 3
    assert [run.id for run in delayq.run_due()] == [job.id for job in jobs]


def test_its_failure_counts(delayq: DelayQ, worker: Worker) -> None:
    found = made(pause_after=1)
    found.run_now()
    [claim] = worker.begin()
    worker.end(claim, Action.DEAD_LETTER)
    found = noop.schedules.get("a")
    assert found and found.is_paused and last_outcome() == "failed"
