"""`until="start"`: a job holds its key while it waits, and no longer while it runs."""

from typing import Any

import pytest

from django_delayq import Task, delayed_task, execute_later
from django_delayq.exceptions import KeyHeld
from django_delayq.task import registry
from django_delayq.task.context import current_job
from django_delayq.task.handle import JobHandle
from django_delayq.testing import DelayQ

#: The handles of the jobs that runs enqueued.
again: list[JobHandle] = []


def rebuild(number: int, *, fails: bool = False) -> None:
    """Enqueue the task once more, as a change during the run would."""
    if number < 3:
        task: Task[..., Any] = registry.get("rebuild")
        again.append(task.after(60).enqueue(number + 1))
    if fails and current_job().attempt == 1:
        raise RuntimeError("the first attempt fails")


@pytest.fixture(autouse=True)
def no_handles() -> None:
    """Forget the handles of the last test."""
    again.clear()


def test_a_change_during_the_run_is_not_lost(delayq: DelayQ) -> None:
    task = delayed_task(name="rebuild", key="index", until="start")(rebuild)
    first = task.enqueue(1)
    assert not task.enqueue(1).created
    delayq.drain()
    assert [job.args for job in delayq.ran] == [[1], [2], [3]]
    assert all(handle.created for handle in again) and first.id not in {handle.id for handle in again}


def test_until_finish_is_the_default(delayq: DelayQ) -> None:
    task = delayed_task(name="rebuild", key="index")(rebuild)
    task.enqueue(1)
    delayq.drain()
    assert [job.args for job in delayq.ran] == [[1]]
    assert [handle.created for handle in again] == [False]


def test_a_job_that_is_retried_goes_without_its_key_if_another_one_holds_it(delayq: DelayQ) -> None:
    task = delayed_task(name="rebuild", key="index", until="start")(rebuild)
    first = task.enqueue(2, fails=True)
    delayq.run_due(errors="retry")
    [second] = again
    assert second.created
    found = task.get_job(key="index")
    assert found is not None and found.id == second.id
    assert second.cancel()
    # Its attempts go on, and others may have the key meanwhile.
    third = task.after(3_600).enqueue(3)
    assert third.created and first.refresh().state == "scheduled"
    delayq.drain(errors="retry")
    assert [(job.args, job.attempt) for job in delayq.ran] == [([2], 1), ([2], 2), ([3], 1)]


def test_a_job_that_is_retried_holds_its_key_again(delayq: DelayQ) -> None:
    task = delayed_task(name="rebuild", key="index", until="start")(rebuild)
    first = task.enqueue(3, fails=True)
    delayq.run_due(errors="retry")
    assert task.enqueue(3).id == first.id
    with pytest.raises(KeyHeld):
        task.using(unique="reject").enqueue(3)


def test_a_call_may_choose(delayq: DelayQ) -> None:
    task = delayed_task(name="rebuild", key="index")(rebuild)
    task.using(until="start").enqueue(2)
    delayq.run_due()
    assert [handle.created for handle in again] == [True]
    assert again[0].cancel()
    execute_later("default", "rebuild", [2], until="start")
    delayq.run_due()
    assert [handle.created for handle in again] == [True, True]


@pytest.mark.parametrize("until", ["end", None, True])
def test_another_word_is_refused_at_the_declaration(until: Any) -> None:
    with pytest.raises(ValueError, match="until must be 'finish' or 'start'"):
        delayed_task(name="rebuild", key="index", until=until)(rebuild)
    with pytest.raises(ValueError, match="until must be 'finish' or 'start', got 'end'"):
        delayed_task(name="rebuild", key="index")(rebuild).using(until="end")  # type: ignore[arg-type]
