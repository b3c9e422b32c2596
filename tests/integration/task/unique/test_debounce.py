"""`unique=Debounce(…)`: one job runs for a series of calls with the same key, with the arguments of the last one."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone

from django_delayq import Debounce, Task, delayed_task, enqueue_many
from django_delayq.exceptions import InvalidDelay
from django_delayq.job.outcome import Action
from django_delayq.task import registry
from django_delayq.testing import DelayQ
from tests.shard_apis import HOUR, ShardApis

SECOND = 1_000_000


@pytest.fixture
def delayq(delayq: DelayQ) -> Iterator[DelayQ]:
    """The queue of the test, whose clock moves only with the test."""
    with delayq._clock.frozen():
        yield delayq


def index(number: int, *, repeats: bool = False) -> None:
    """Be a task that may enqueue itself."""
    if repeats:
        task: Task[..., Any] = registry.get("index")
        task.enqueue(number + 1)


def declared(wait: Any = 10, max_wait: Any = None) -> Task[..., None]:
    return delayed_task(name="index", key="document", unique=Debounce(wait, max_wait))(index)


def seconds(due: datetime | None, since: datetime) -> float:
    """Return the seconds between the two."""
    assert due is not None
    return (due - since).total_seconds()


def test_a_series_runs_once_after_its_last_call(delayq: DelayQ) -> None:
    task = declared(60)
    first = task.enqueue(1)
    assert first.created and first.state == "scheduled"
    for number in (2, 3):
        delayq.advance(36, run=True)
        later = task.enqueue(number)
        assert (later.id, later.replaced) == (first.id, True)
    delayq.advance(50, run=True)
    assert delayq.ran == []
    delayq.advance(10, run=True)
    assert [job.args for job in delayq.ran] == [[3]]
    assert task.enqueue(4).created, "the next series has a job of its own"


def test_a_series_does_not_wait_longer_than_max_wait(delayq: DelayQ) -> None:
    task = declared(10, timedelta(seconds=15))
    begin = delayq.now
    task.enqueue(1)
    delayq.advance(8)
    assert seconds(task.enqueue(2).due, begin) == 15
    delayq.advance(6)
    assert seconds(task.enqueue(3).due, begin) == 15
    delayq.advance(1, run=True)
    assert [job.args for job in delayq.ran] == [[3]]
    task.enqueue(4)
    delayq.advance(10, run=True)
    assert [job.args for job in delayq.ran] == [[3], [4]], "the next series has its own first call"


def test_a_call_during_the_run_begins_the_next_series(delayq: DelayQ) -> None:
    task = declared()
    first = task.enqueue(1, repeats=True)
    delayq.advance(10, run=True)
    [waiting] = delayq.enqueued
    assert waiting.id != first.id and waiting.args == [2]
    assert seconds(waiting.due, delayq.now) == 10


def test_calls_in_one_batch_are_one_series(delayq: DelayQ) -> None:
    task = declared()
    handles = task.enqueue_many([(1,), (2,), (3,)])
    assert isinstance(handles, list)
    assert len({handle.id for handle in handles}) == 1
    assert [job.args for job in delayq.enqueued] == [[3]]
    enqueue_many([task.job(4)])
    delayq.drain()
    assert [job.args for job in delayq.ran] == [[4]]


def test_without_max_wait_each_call_counts(apis: ShardApis) -> None:
    for _ in range(30):
        apis.enqueue(_draft(apis, Debounce(2)))
        apis.clock.advance(SECOND)
        assert apis.promote().moved == 0
    apis.clock.advance(SECOND)
    assert apis.promote().moved == 1


def test_a_job_that_has_to_begin_keeps_its_turn(apis: ShardApis) -> None:
    debounce = Debounce(2, max_wait=3)
    first = _promoted(apis, debounce)
    other = apis.draft()
    apis.enqueue(other.rescheduled(delay_us=0, due_us=None, called_at=apis.clock.steady()))
    apis.clock.advance(SECOND)
    # It has waited for as long as it may, and no worker was free.
    assert apis.enqueue(_draft(apis, debounce, "last")).replaced == {0}
    claims = apis.worker().take(2).claims
    assert [claim.raw_id for claim in claims] == [first.job.raw_id, other.job.raw_id]
    assert claims[0].job is not None and claims[0].job.args == ["last"]


def test_a_call_between_two_attempts_is_the_first_of_a_series(apis: ShardApis) -> None:
    debounce = Debounce(2, max_wait=3)
    _promoted(apis, debounce)
    worker = apis.worker()
    worker.settle(worker.take(1).claims[0], Action.RETRY, delay=HOUR)
    apis.clock.advance(SECOND)
    assert apis.enqueue(_draft(apis, debounce)).replaced == {0}
    apis.clock.advance(2 * SECOND - 1)
    assert apis.promote().moved == 0
    apis.clock.advance(1)
    assert apis.promote().moved == 1


def _promoted(apis: ShardApis, debounce: Debounce) -> Any:
    """Return the draft of a job whose series is over, and that waits for a worker."""
    first = _draft(apis, debounce)
    apis.enqueue(first)
    apis.clock.advance(3 * SECOND)
    apis.promote()
    return first


def _draft(apis: ShardApis, debounce: Debounce, *args: Any) -> Any:
    draft = apis.draft(*args, key="k", unique=debounce, until_start=True)
    delayed = draft.rescheduled(delay_us=debounce.wait_us, due_us=None, called_at=apis.clock.steady())
    return replace(delayed, unique=debounce)


def test_a_call_without_debounce_begins_no_key_that_lasts(delayq: DelayQ) -> None:
    task = declared()
    task.enqueue(1)
    task.using(unique="replace").enqueue(2, repeats=True)
    delayq.run_due()
    assert [job.args for job in delayq.enqueued] == [[3]], "the call during the run is not lost"


def test_an_unsent_call_that_is_rescheduled_keeps_its_time(delayq: DelayQ) -> None:
    task = declared(5, 60)
    handle = task.job(1)
    handle.reschedule(delay=86_400)
    enqueue_many([handle])
    assert seconds(handle.due, delayq.now) == 86_400
    other = task.job(2)
    other.reschedule(delay=0)
    enqueue_many([other])
    assert [job.args for job in delayq.run_due()] == [[2]]


@pytest.mark.parametrize(
    ("wait", "max_wait", "error"),
    [
        (0, None, "wait of Debounce must be more than 0 seconds"),
        (-1, None, "wait of Debounce must not be negative"),
        ("5", None, "wait of Debounce must be a number of seconds or a timedelta, got str"),
        (10**12, None, "before the year 2255"),
        (10, 9, "max_wait of Debounce must not be shorter than its wait"),
        (10, True, "max_wait of Debounce must be a number of seconds or a timedelta, got bool"),
    ],
)
def test_times_that_cannot_be_are_refused(wait: Any, max_wait: Any, error: str) -> None:
    with pytest.raises(InvalidDelay, match=error):
        Debounce(wait, max_wait)


def test_a_series_needs_a_key(delayq: DelayQ) -> None:
    task = delayed_task(name="index", unique=Debounce(1))(index)
    with pytest.raises(ValueError, match="Debounce.* needs a key"):
        task.enqueue(1)
    with pytest.raises(ValueError, match="Debounce.* needs a key"):
        delayed_task(name="none", key=lambda number: None, unique=Debounce(1))(index).enqueue(1)
    assert task.using(key="k").enqueue(1).created
    assert len(delayq.enqueued) == 1


def test_a_series_takes_no_other_time(delayq: DelayQ) -> None:
    task = declared()
    for wrong in ({"delay": 5}, {"at": timezone.now()}, {"run_after": timezone.now()}):
        with pytest.raises(ValueError, match="Debounce.* sets the due time of its jobs"):
            task.using(**wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="unique must be 'keep', 'reject' or 'replace'"):
        task.using(unique=Debounce)  # type: ignore[arg-type]
    assert delayq.enqueued == []
