"""`unique=Throttle(…)`: of the calls with the same key within a time, only the first enqueues a job."""

import threading
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction

from django_delayq import JobHandle, Task, Throttle, delayed_task, enqueue_many, execute_later
from django_delayq.exceptions import InvalidDelay
from django_delayq.job.ids import shard_of
from django_delayq.signals import job_enqueued
from django_delayq.store.digests import key_digest
from django_delayq.testing import DelayQ


def warn(number: int) -> None:
    """Be a task."""


def declared(window: Any = 10, **options: Any) -> Task[..., None]:
    return delayed_task(name="warn", **{"key": "disk", "unique": Throttle(window), **options})(warn)


def test_calls_within_the_window_get_the_first_job(delayq: DelayQ) -> None:
    # The clock that moves on runs as well: a slow moment of the machine is shorter than ten seconds.
    task = declared(60)
    first = task.enqueue(1)
    assert first.created
    delayq.advance(50, run=True)
    second = task.enqueue(2)
    assert (second.id, second.created, second.replaced) == (first.id, False, False)
    assert second.state == "gone", "it has run"
    assert [job.args for job in delayq.ran] == [[1]]
    delayq.advance(10)
    third = task.enqueue(3)
    assert third.created and third.id != first.id


def test_the_window_is_over_also_if_the_job_still_waits(delayq: DelayQ) -> None:
    task = declared(timedelta(seconds=10))
    first = task.after(60).enqueue(1)
    assert task.enqueue(2).id == first.id
    delayq.advance(10)
    second = task.enqueue(3)
    assert second.created
    assert task.enqueue(4).id == second.id
    delayq.drain()
    assert sorted(job.args for job in delayq.ran) == [[1], [3]]


def test_a_handle_has_the_arguments_of_the_first_call(delayq: DelayQ) -> None:
    task = declared()
    task.after(60).enqueue(1)
    second = task.enqueue(2)
    assert second.job is not None and second.job.args == [1]


def test_keys_are_throttled_apart(delayq: DelayQ) -> None:
    task = declared(key=lambda number: f"disk:{number}")
    handles = [task.enqueue(number) for number in (1, 2, 1)]
    assert [handle.created for handle in handles] == [True, True, False]
    assert handles[2].id == handles[0].id
    other = delayed_task(name="other", key="disk:1", unique=Throttle(10))(warn)
    assert other.enqueue(1).created, "a key belongs to its task"


@pytest.mark.parametrize("ends", ["cancel", "stop"])
def test_a_cancel_before_the_run_ends_the_window(delayq: DelayQ, ends: str) -> None:
    task = declared()
    first = task.enqueue(1)
    assert getattr(task.enqueue(2), ends)()
    assert first.refresh().state == "gone"
    second = task.enqueue(3)
    assert second.created
    delayq.drain()
    assert [job.args for job in delayq.ran] == [[3]]
    assert not second.cancel()
    assert not task.enqueue(4).created, "it has run"


def test_calls_of_one_batch_are_throttled(delayq: DelayQ) -> None:
    task = declared()
    announced = []
    receiver = lambda job, **_: announced.append(job.args)  # noqa: E731
    job_enqueued.connect(receiver)
    try:
        handles = task.enqueue_many([(1,), (2,), (3,)])
    finally:
        job_enqueued.disconnect(receiver)
    assert isinstance(handles, list)
    assert len({handle.id for handle in handles}) == 1
    assert [handle.created for handle in handles] == [True, False, False]
    assert [job.args for job in delayq.enqueued] == announced == [[1]]


@pytest.mark.django_db(transaction=True)
def test_calls_of_a_transaction_are_throttled_at_its_commit(delayq: DelayQ) -> None:
    task = declared()
    with transaction.atomic():
        handles = [task.enqueue(number) for number in (1, 2)]
        delayq.advance(60)
        with pytest.raises(TypeError, match="is not sent yet"):
            hash(handles[1])
    assert handles[0].id == handles[1].id
    assert [handle.created for handle in handles] == [True, False]
    assert not task.enqueue(3).created, "the window counts from the commit"
    with pytest.raises(RuntimeError), transaction.atomic():
        declared(key="other").enqueue(4)
        raise RuntimeError
    assert declared(key="other").enqueue(5).created


def test_an_unsent_call_can_be_moved_and_dropped(delayq: DelayQ) -> None:
    task = declared()
    moved, dropped = task.job(1), task.job(2)
    moved.reschedule(delay=60)
    assert dropped.cancel()
    enqueue_many([moved])
    assert moved.created and moved.state == "scheduled"
    assert task.enqueue(3).id == moved.id


def test_a_window_survives_what_people_do_with_its_job(delayq: DelayQ) -> None:
    task = declared(600)
    first = task.after(60).enqueue(1)
    assert first.reschedule(delay=5)
    assert task.enqueue(2).id == first.id
    assert first.reschedule(delay=0)
    assert task.enqueue(3).id == first.id


@pytest.mark.parametrize("keeps_result", [True, False])
def test_the_job_is_found_by_its_key_while_there_is_something_to_find(delayq: DelayQ, keeps_result: bool) -> None:
    task = declared(store_result=keeps_result)
    assert task.get_job(key="disk") is None
    first = task.enqueue(1)
    assert task.get_job(key="disk") == first
    assert task.get_job(key="other") is None
    delayq.drain()
    assert task.get_job(key="disk") == (first if keeps_result else None)
    # The time that the test takes counts, too.
    delayq.advance(5)
    assert task.get_job(key="disk") == (first if keeps_result else None)
    delayq.advance(5)
    assert task.get_job(key="disk") is None


def test_a_throttled_job_holds_no_key(delayq: DelayQ) -> None:
    task = declared(until="start")
    first = task.enqueue(1)
    kept = task.using(unique="keep").enqueue(2)
    assert kept.created
    assert task.get_job(key="disk") == kept
    assert task.enqueue(3).id == first.id
    assert task.using(unique="reject", key="other").enqueue(4).created
    assert task.using(key="other").enqueue(5).created


def test_from_other_ways_to_enqueue(delayq: DelayQ) -> None:
    delayed_task(name="warn")(warn)
    how: dict[str, Any] = {"key": "k", "unique": Throttle(60)}
    first = execute_later("mail", "warn", [1], **how)
    again = execute_later("mail", "warn", [2], 30, **how)
    assert (again.id, again.created, again.state) == (first.id, False, "ready")


@pytest.mark.parametrize("shards", [1, 3])
def test_tenants_are_throttled_apart(delayq: DelayQ, delayq_settings: Any, shards: int) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": shards}
    task = declared()
    first, *others = (task.using(tenant=tenant).enqueue(1) for tenant in ("acme", "other", None))
    assert all(handle.created for handle in others)
    assert task.using(tenant="acme").enqueue(2) == first
    assert task.get_job(key="disk", tenant="acme") == first
    assert first.cancel()
    assert task.using(tenant="acme").enqueue(3).created
    assert not task.using(tenant="other").enqueue(4).created


def test_threads_in_one_window_enqueue_one_job(delayq: DelayQ) -> None:
    task, start = declared(600), threading.Barrier(8)
    handles: list[JobHandle] = []

    def call(number: int) -> None:
        start.wait()
        handles.append(task.enqueue(number))

    threads = [threading.Thread(target=call, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({handle.id for handle in handles}) == 1
    assert sum(handle.created for handle in handles) == 1
    assert len(delayq.enqueued) == 1


def test_a_window_is_in_the_shard_of_its_key(delayq: DelayQ, delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 3}
    task = declared(key=lambda number: f"{number}")
    firsts = [task.enqueue(number) for number in range(20)]
    expected = [shard_of(key_digest("warn", f"{number}", None), 3) for number in range(20)]
    assert [handle._shard for handle in firsts] == expected
    assert {*expected} == {0, 1, 2}
    handles = task.enqueue_many([(number,) for number in range(20)])
    assert handles == firsts
    assert [task.get_job(key=f"{number}") for number in range(20)] == firsts


@pytest.mark.parametrize(
    ("window", "error"),
    [
        (0, "window of Throttle must be more than 0 seconds"),
        (timedelta(), "window of Throttle must be more than 0 seconds"),
        (-1, "window of Throttle must not be negative"),
        (True, "window of Throttle must be a number of seconds or a timedelta, got bool"),
        ("10", "window of Throttle must be a number of seconds or a timedelta, got str"),
        (None, "window of Throttle must be a number of seconds or a timedelta, got NoneType"),
        (float("nan"), "window of Throttle must be a finite number of seconds"),
        (10**12, "before the year 2255"),
    ],
)
def test_windows_that_cannot_be_are_refused(window: Any, error: str) -> None:
    with pytest.raises(InvalidDelay, match=error):
        Throttle(window)


def test_a_throttled_task_needs_a_key(delayq: DelayQ) -> None:
    task = declared(key=None)
    with pytest.raises(ValueError, match=r"unique=Throttle\(…\) needs a key; declare warn with key="):
        task.enqueue(1)
    with pytest.raises(ValueError, match="Throttle.* needs a key"):
        declared(key=lambda number: None).enqueue(1)
    with pytest.raises(ValueError, match="Throttle.* needs a key"):
        task.enqueue_many([(1,)])
    with pytest.raises(ValueError, match="unique must be 'keep', .* or a Debounce or Throttle, got"):
        task.using(unique=Throttle)  # type: ignore[arg-type]
    assert delayq.enqueued == []
    assert task.using(key="k").enqueue(1).created
