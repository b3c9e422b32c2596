"""Handle: one job as the code that enqueued it sees it, in every state, before and after it is sent."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from redis import Redis

from django_delayq import delayed_task, enqueue_many, get_job, get_store, runtime
from django_delayq.clock import ServerClock
from django_delayq.conf.settings import drop_config, get_config
from django_delayq.exceptions import (
    DelayQError,
    DelayTypeError,
    DelayValueError,
    InvalidMoment,
    NoResult,
    StoreUnavailable,
    WaitTimeout,
)
from django_delayq.job.ids import from_text
from django_delayq.job.job import State
from django_delayq.job.outcome import Action, Outcome, OutcomeKind
from django_delayq.task.handle import JobHandle
from django_delayq.testing.fake_clock import FakeClock
from django_delayq.worker.settlement import decide_settlement
from tests.sample_app.tasks import noop
from tests.shard_apis import MS, START, ShardApis, settlement

pytestmark = pytest.mark.usefixtures("delayq_settings")
HOUR = timedelta(hours=1)


@pytest.fixture
def apis(redis_url: str, client: Redis) -> Any:
    """The APIs of the same shard, for a worker."""
    made = ShardApis(redis_url, clock=ServerClock())
    yield made
    made.close()


def now() -> datetime:
    return datetime.now(UTC)


def in_state(state: State, apis: ShardApis) -> JobHandle:
    """Enqueue a job and bring it into a state without its handle."""
    if state is State.UNSENT:
        return noop.job(7)
    unrun = {State.EXPIRED: OutcomeKind.EXPIRED, State.DROPPED: OutcomeKind.DROPPED}
    kept = state in (State.DONE, State.CANCELLED, *unrun)
    handle = noop.using(delay=3_600 if state is State.SCHEDULED else None, key="k", store_result=kept).enqueue(7)
    place = from_text(handle.id)
    assert place
    worker = apis.worker()
    if state in (State.CLAIMED, State.DEAD):
        [claim] = worker.take(1).claims
        if state is State.DEAD:
            worker.settle(claim, Action.DEAD_LETTER)
    if state is State.GONE:
        [claim] = worker.take(1).claims
        assert not worker.take(0, settle=[settlement(claim, Action.ACKNOWLEDGE)]).lost
    if state is State.DONE:
        [claim] = worker.take(1).claims
        assert not worker.take(0, settle=[settlement(claim, Action.ACKNOWLEDGE, value="8")]).lost
    if state in unrun:
        [claim] = worker.take(1).claims
        ended = decide_settlement(claim, Outcome(kind=unrun[state]), worker="w")
        assert not worker.take(0, settle=[ended]).lost
    if state is State.CANCELLED:
        assert apis.operations.cancel(place[0])
    return handle


UNENDED = (State.UNSENT, State.SCHEDULED, State.READY, State.CLAIMED)
SENT = [state for state in State if state is not State.UNSENT]


@pytest.mark.parametrize("state", SENT)
def test_refresh_reads_the_state(state: State, apis: ShardApis) -> None:
    handle = in_state(state, apis)
    assert handle.refresh() is handle
    assert handle.state is state
    assert repr(handle) == f"<JobHandle {handle.id} {state}>"
    assert handle.job and handle.job.args == [7]
    waiting = state in (State.SCHEDULED, State.READY, State.CLAIMED)
    assert (handle.due is not None) == waiting
    if handle.due:
        expected = now() + (HOUR if state is State.SCHEDULED else timedelta(0))
        assert abs(handle.due - expected) < timedelta(minutes=1) and handle.due.tzinfo is UTC


@pytest.mark.parametrize("state", SENT)
def test_a_job_is_found_by_its_id_in_every_state_but_gone(state: State, apis: ShardApis) -> None:
    handle = in_state(state, apis)
    found = get_job(handle.id)
    if state is State.GONE:
        assert found is None
    else:
        assert found and found.id == handle.id and found.state is state
        assert found.job and (found.job.args, found.job.key) == ([7], "k")


@pytest.mark.parametrize("text", [None, "", "nonsense", "0" * 24, f"{'0' * 24}-0", f"{'0' * 24}-999", f"{'0' * 24}-1"])
def test_an_id_without_a_job_returns_none(text: str | None) -> None:
    assert get_job(text) is None


@pytest.mark.parametrize("state", SENT)
def test_cancel_is_too_late_for_a_job_that_does_not_wait(state: State, apis: ShardApis, client: Redis) -> None:
    handle = in_state(state, apis)
    waiting = state in (State.SCHEDULED, State.READY)
    assert handle.cancel() is waiting
    assert handle.state is (State.GONE if waiting else state)
    # Again, the same handle returns the same; for another handle it is too late.
    assert handle.cancel() is waiting
    assert JobHandle(raw_id=handle._raw_id, shard=0).cancel() is False
    if waiting:
        assert handle.due is None
        assert apis.traces(handle._raw_id) == ["cancelled"]


@pytest.mark.parametrize("state", SENT)
def test_reschedule_is_too_late_for_a_job_that_does_not_wait(state: State, apis: ShardApis) -> None:
    handle = in_state(state, apis)
    waiting = state in (State.SCHEDULED, State.READY)
    moment = now() + 5 * HOUR
    assert handle.reschedule(at=moment) is waiting
    assert handle.state is (State.SCHEDULED if waiting else state)
    if waiting:
        assert handle.due == moment
        assert handle.reschedule(delay=60) and handle.due and handle.due < now() + HOUR
        assert handle.reschedule(delay=0) and handle.state is State.READY
        assert handle.reschedule(at=datetime(2000, 1, 1, tzinfo=UTC)) and handle.state is State.READY


def test_reschedule_without_a_time_or_with_two_is_refused() -> None:
    for handle in (noop.job(), noop.enqueue()):
        with pytest.raises(TypeError, match="delay=.*at="):
            handle.reschedule()
        with pytest.raises(TypeError, match="not both"):
            handle.reschedule(delay=1, at=now())
        with pytest.raises(DelayTypeError):
            handle.reschedule(delay="60")
        with pytest.raises(DelayValueError):
            handle.reschedule(delay=-1)
        with pytest.raises(DelayValueError, match="MAX_DELAY"):
            handle.reschedule(delay=timedelta.max)
        with pytest.raises(InvalidMoment):
            handle.reschedule(at=datetime(2030, 1, 1))


def test_an_unsent_job_exists_only_in_its_handle(client: Redis) -> None:
    handle = noop.after(60).job(7)
    assert (handle.state, handle.due, handle.created) == (State.UNSENT, None, True)
    assert handle.refresh().state is State.UNSENT
    assert handle.job and handle.job.args == [7]
    assert from_text(handle.id) and get_job(handle.id) is None
    assert client.dbsize() == 0


def test_a_job_cancelled_before_it_is_sent_is_never_sent(client: Redis) -> None:
    kept, dropped = noop.using(queue="kept").job(), noop.using(queue="dropped").job()
    assert dropped.cancel() and dropped.state is State.GONE
    assert dropped.cancel() is False and dropped.reschedule(delay=5) is False
    with pytest.raises(TypeError, match="task.job"):
        enqueue_many([kept, dropped])
    assert client.dbsize() == 0


def test_a_job_rescheduled_before_it_is_sent_is_sent_for_that_time() -> None:
    moment = now() + 2 * HOUR
    later, sooner, back = noop.job(1), noop.after(60).job(2), noop.job(3)
    assert later.reschedule(at=moment) and sooner.reschedule(delay=0)
    assert back.reschedule(delay=60) and back.reschedule(delay=7_200)
    assert later.state is State.UNSENT
    enqueue_many([later, sooner, back])
    assert (later.refresh().state, later.due) == (State.SCHEDULED, moment)
    assert sooner.refresh().state is State.READY
    assert back.refresh().due and back.due and abs(back.due - moment) < timedelta(minutes=1)
    assert later.cancel() and sooner.cancel() and back.cancel(), "a changed time left a wrong member behind"


def test_a_sent_job_cannot_be_sent_again() -> None:
    handle = noop.enqueue()
    with pytest.raises(TypeError, match=r"task\.job"):
        enqueue_many([handle])


@pytest.mark.parametrize("job", [None, 5, noop, "id", noop.func])
def test_only_jobs_can_be_sent(job: Any, client: Redis) -> None:
    with pytest.raises(TypeError, match=r"task\.job"):
        enqueue_many([noop.job(), job])
    assert client.dbsize() == 0


def test_a_moved_job_is_still_found(apis: ShardApis) -> None:
    handle = noop.after(60).enqueue()
    place = from_text(handle.id)
    assert place and apis.operations.move(place[0], "other")
    assert handle.refresh().state is State.SCHEDULED and handle.job and handle.job.queue == "other"
    assert handle.reschedule(delay=30) and handle.cancel()


def test_a_job_of_a_removed_shard_is_gone(delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 4}
    handles = noop.enqueue_many([(number,) for number in range(50)])
    assert isinstance(handles, list)
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 1}
    [far, *_] = [handle for handle in handles if handle.id.endswith("-3")]
    # Until then the stored number counts.
    assert far.refresh().state is State.READY
    get_store().check_shards(force=True)
    assert far.refresh().state is State.GONE
    assert far.cancel() is False and far.reschedule(delay=5) is False
    assert get_job(far.id) is None


def test_a_handle_raises_during_an_outage(start_redis: Any, delayq_settings: Any) -> None:
    server = start_redis()
    delayq_settings.DELAYQ = {"REDIS": server.url}
    handle = noop.after(60).enqueue()
    server.kill()
    for call in (handle.refresh, handle.cancel, lambda: handle.reschedule(delay=5), lambda: get_job(handle.id)):
        with pytest.raises(StoreUnavailable):
            call()


def test_the_ready_due_time_is_the_due_time_to_the_millisecond(redis_url: str) -> None:
    clock = FakeClock(START)
    with runtime.override(clock=clock), closing(ShardApis(redis_url, clock=clock)) as apis:
        # The next store takes this clock.
        drop_config()
        handle = noop.after(0.1).enqueue()
        due = handle.due
        assert due is not None
        clock.advance(100 * MS)
        assert apis.promote("default").moved == 1
        assert handle.refresh().state is State.READY and handle.due
        assert timedelta(0) <= due - handle.due < timedelta(milliseconds=1)
    assert get_store().config is get_config()


def test_a_job_that_is_done_has_its_result(apis: ShardApis) -> None:
    handle = in_state(State.DONE, apis)
    assert handle.wait(timeout=30) == handle.result == 8
    assert handle.state is State.DONE


@pytest.mark.parametrize("state", [state for state in SENT if state is not State.DONE])
def test_any_other_job_has_no_result(state: State, apis: ShardApis) -> None:
    handle = in_state(state, apis).refresh()
    with pytest.raises(NoResult, match=f"it is {state}"):
        handle.result  # noqa: B018
    with pytest.raises(NoResult):
        # A job that keeps no result has nothing to wait for.
        handle.wait()


@pytest.mark.parametrize(
    ("state", "message"),
    [
        *((state, f"keeps no result, it is {state}; declare its task with store_result=True, or") for state in UNENDED),
        (State.DEAD, "has no result, it is dead; job.error says why"),
    ],
)
def test_the_error_of_a_result_that_does_not_come_names_the_cure(apis: ShardApis, state: State, message: str) -> None:
    handle = in_state(state, apis).refresh()
    for look in (lambda: handle.result, handle.wait, lambda: asyncio.run(handle.aresult())):
        with pytest.raises(NoResult, match=f"^job {handle.id} {message}"):
            look()


def test_a_job_that_will_have_a_result_is_not_said_to_keep_none() -> None:
    with pytest.raises(NoResult, match="has no result, it is ready; only jobs that are done have one"):
        noop.using(store_result=True).enqueue().result  # noqa: B018


def test_a_wait_for_a_result_ends_at_its_timeout(apis: ShardApis) -> None:
    handle = noop.using(store_result=True).enqueue()
    with pytest.raises(WaitTimeout, match="has not ended within 0.01 s"):
        handle.wait(0.01)
    assert isinstance(WaitTimeout(), TimeoutError)
    for wrong in (-1, "1", float("nan")):
        with pytest.raises(DelayQError, match="timeout"):
            handle.wait(wrong)


def test_a_wait_ends_when_the_job_dies_or_is_cancelled(apis: ShardApis) -> None:
    dying, cancelled = noop.using(store_result=True).enqueue(), noop.using(store_result=True).enqueue()
    with ThreadPoolExecutor(2) as threads:
        waiting = [threads.submit(handle.wait, 60) for handle in (dying, cancelled)]
        worker = apis.worker()
        [claim] = worker.take(1).claims
        worker.settle(claim, Action.DEAD_LETTER)
        assert get_job(cancelled.id).cancel()  # type: ignore[union-attr]
        for wait, state in zip(waiting, ("dead", "cancelled"), strict=True):
            with pytest.raises(NoResult, match=f"it is {state}"):
                wait.result()


def test_a_cancelled_job_that_keeps_a_result_is_cancelled_before_and_after_a_refresh() -> None:
    handle = noop.using(store_result=60).enqueue()
    assert handle.cancel()
    assert handle.state is State.CANCELLED
    assert handle.refresh().state is State.CANCELLED


@pytest.mark.parametrize("wrong", [-1, 0, 0.0001, "day", float("inf"), 2**60])
def test_an_impossible_time_to_keep_a_result_is_refused(wrong: Any) -> None:
    with pytest.raises((DelayQError, ValueError), match="store_result"):
        noop.using(store_result=wrong)
    with pytest.raises((DelayQError, ValueError), match="store_result"):
        delayed_task(store_result=wrong)(now)
