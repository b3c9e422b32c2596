"""Enqueue of a task, up to the stored job: its delay, options, queue, priority and key."""

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from redis import Redis

from django_delayq import RetryPolicy, delayed_task, execute_later, get_store
from django_delayq.exceptions import KeyHeld
from django_delayq.job.job import Flag, Job, State
from django_delayq.signals import job_enqueued
from django_delayq.task.handle import JobHandle
from tests.inspection import inspection
from tests.integration.task.stored import HOUR, due_of, now, stored
from tests.sample_app.tasks import noop, record, record_async

pytestmark = pytest.mark.usefixtures("delayq_settings")


def test_calling_a_task_calls_the_function(client: Redis) -> None:
    assert noop(1, x=2) is None
    assert client.dbsize() == 0


def test_a_task_looks_like_its_function() -> None:
    assert noop.__name__ == "noop" and noop.__doc__ == "Do nothing." and noop.__module__ == "tests.sample_app.tasks"
    assert inspect.signature(noop) == inspect.signature(noop.func)


def test_a_bare_decorator_and_one_with_options_make_tasks(own_registry: None) -> None:
    namespace: dict[str, Any] = {"__name__": "shop.tasks"}
    exec("def remind(user_id: int) -> int: return user_id + 1", namespace)
    bare = delayed_task(namespace["remind"])
    assert (bare.name, bare.queue, bare.priority, bare(1)) == ("shop.tasks.remind", "default", 0, 2)
    policy = RetryPolicy(max_attempts=2)
    made = delayed_task(queue="mail", priority=10, retry=policy, timeout=30, hard_timeout=timedelta(minutes=1))(
        namespace["remind"]
    )
    job = stored(made.enqueue(7))
    assert (job.task, job.queue, job.priority, job.args, job.retry) == ("shop.tasks.remind", "mail", 10, [7], policy)
    assert (job.timeout_us, job.hard_timeout_us, job.hard_limit_us) == (30_000_000, 60_000_000, 60_000_000)


def test_without_a_delay_a_job_is_ready_at_once(client: Redis) -> None:
    before = now()
    handle = record.enqueue(1, "two", three=[3])
    assert handle.state is State.READY and handle.created
    assert before - timedelta(seconds=1) <= due_of(handle) <= now() + timedelta(seconds=1)
    job = stored(handle)
    assert (job.args, job.kwargs, job.id) == ([1, "two"], {"three": [3]}, handle.id)
    assert not job.flags & Flag.DELAYED


@pytest.mark.parametrize("delay", [0, 0.0, timedelta(0), -0.0])
def test_a_delay_of_zero_is_no_delay(delay: Any) -> None:
    handle = noop.after(delay).enqueue()
    assert handle.refresh().state is State.READY
    assert not stored(handle).flags & Flag.DELAYED


@pytest.mark.parametrize(
    "delayed",
    [
        lambda: noop.after(3_600),
        lambda: noop.after(3_600.0),
        lambda: noop.after(HOUR),
        lambda: noop.after(hours=1),
        lambda: noop.after(minutes=59, seconds=60),
        lambda: noop.using(delay=3_600),
        lambda: noop.using(delay=HOUR),
        lambda: noop.at(now() + HOUR),
        lambda: noop.using(at=now() + HOUR),
        lambda: noop.using(run_after=now() + HOUR),
    ],
)
def test_every_way_to_write_in_an_hour_is_the_same(delayed: Any) -> None:
    before = now()
    handle = delayed().enqueue()
    assert handle.state is State.SCHEDULED
    assert before + HOUR - timedelta(seconds=1) <= due_of(handle) <= now() + HOUR + timedelta(seconds=1)
    assert stored(handle).flags & Flag.DELAYED


def test_a_moment_is_kept_to_the_microsecond() -> None:
    moment = (now() + HOUR).replace(microsecond=123_457)
    assert due_of(noop.at(moment).enqueue()) == moment


@pytest.mark.parametrize("moment", [datetime(1, 1, 1, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)])
def test_a_moment_in_the_past_is_now(moment: datetime) -> None:
    before = now() - timedelta(seconds=1)
    handle = noop.at(moment).enqueue()
    assert handle.refresh().state is State.READY
    # A rank of that time would put the job before all others; it has the rank of a job enqueued now.
    rank = int(get_store().shards[0].client.zscore("delayq:{0}:ready:default", stored(handle).member))
    assert rank >= 100 * 2**45 + (before - HOUR).timestamp() * 1_000


def test_options_can_be_chained_and_do_not_change_the_task() -> None:
    urgent = noop.using(priority=100).using(queue="bulk").after(60).using(timeout=5)
    assert (urgent.priority, urgent.queue, urgent.timeout_us, urgent.delay_us) == (100, "bulk", 5_000_000, 60_000_000)
    assert (noop.priority, noop.queue, noop.timeout_us, noop.delay_us) == (0, "default", None, None)
    again = urgent.at(now() + HOUR)
    assert again.delay_us is None and again.due_us is not None
    assert again.after(0).due_us is None


def test_the_grammar_of_django_tasks_is_understood() -> None:
    handle = noop.using(run_after=now() + HOUR, queue_name="bulk", priority=-100).enqueue()
    job = stored(handle)
    assert (job.queue, job.priority, handle.state) == ("bulk", -100, State.SCHEDULED)


@pytest.mark.parametrize("queue", ["a:b{c}*?", "ü/ß", "%2F", "with space", "\ud800", "\0", "x" * 200])
def test_any_text_is_a_queue(queue: str, client: Redis) -> None:
    handle = noop.using(queue=queue).enqueue()
    assert stored(handle).queue == queue
    assert inspection().counts().ready == {queue: 1}


@pytest.mark.parametrize("priority", [-100, -1, 0, 1, 100])
def test_every_priority_is_kept(priority: int) -> None:
    assert stored(noop.using(priority=priority).enqueue()).priority == priority


def test_a_coroutine_function_is_enqueued_like_any_other() -> None:
    assert stored(record_async.enqueue(5)).args == [5]


def test_enqueueing_from_async_code() -> None:
    async def view() -> JobHandle:
        return await noop.after(60).aenqueue(1, two=2)

    handle = async_to_sync(view)()
    assert handle.state is State.SCHEDULED
    assert (stored(handle).args, stored(handle).kwargs) == ([1], {"two": 2})


def test_ids_are_in_order_of_enqueueing() -> None:
    made = [noop.enqueue().id for _ in range(50)]
    assert made == sorted(set(made))


def test_a_key_allows_one_live_job() -> None:
    first = noop.using(key="reminder:7", delay=60).enqueue(1)
    second = noop.using(key="reminder:7").enqueue(2)
    assert first.created and not second.created
    assert second.id == first.id and second.state is State.SCHEDULED
    assert stored(second).args == [1] and stored(second).key == "reminder:7"
    assert noop.using(key="reminder:8").enqueue().created
    assert record.using(key="reminder:7").enqueue().created, "a key is unique among the jobs of one task"


def test_a_held_key_can_be_refused() -> None:
    first = noop.using(key="k").enqueue()
    with pytest.raises(KeyHeld, match=rf"'k' is held by job {first.id}") as caught:
        noop.using(key="k", unique="reject").enqueue()
    assert caught.value.holder == first.id and isinstance(caught.value, ValueError)


def test_a_key_can_be_refused_because_of_a_job_of_the_same_call() -> None:
    with pytest.raises(KeyHeld, match="'k' is also that of another job of this call") as caught:
        noop.using(key="k", unique="reject").enqueue_many([(1,), (2,)])
    assert caught.value.index == 1
    assert noop.get_job(key="k") is None


def test_a_key_is_free_again_when_its_job_is_gone() -> None:
    first = noop.using(key="k", delay=60).enqueue()
    assert first.cancel()
    assert noop.using(key="k", unique="reject").enqueue().created


def test_a_job_is_found_by_its_key() -> None:
    assert noop.get_job(key="k") is None
    handle = noop.using(key="k").after(60).enqueue()
    found = noop.get_job(key="k")
    assert found and found.id == handle.id and found.state is State.SCHEDULED
    by_id = noop.get_job(handle.id)
    assert by_id and by_id.id == handle.id
    assert record.get_job(key="k") is None
    with pytest.raises(TypeError, match="job id or key"):
        noop.get_job()


def test_execute_later_enqueues_a_task_by_its_name() -> None:
    handle = execute_later("mail", "tests.sample_app.tasks.record", [7], delay=600)
    assert handle.state is State.SCHEDULED
    job = stored(handle)
    assert (job.task, job.queue, job.args) == ("tests.sample_app.tasks.record", "mail", [7])
    assert execute_later("mail", "tests.sample_app.tasks.record").state is State.READY
    assert stored(execute_later("mail", "tests.sample_app.tasks.record", (1, 2))).args == [1, 2]


def test_a_receiver_gets_each_enqueued_job() -> None:
    received: list[tuple[Any, Job]] = []

    def receiver(sender: Any, job: Job, **_: Any) -> None:
        received.append((sender, job))

    job_enqueued.connect(receiver)
    try:
        handle = noop.using(queue="mail", key="k").enqueue(1)
        noop.using(key="k").enqueue(2)
    finally:
        job_enqueued.disconnect(receiver)
    assert [(sender, job.id, job.args) for sender, job in received] == [(noop, handle.id, [1])]
