"""Tasks: the grammar of enqueueing, from the decorator to what lies in Redis."""

import inspect
from collections.abc import Generator, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from redis import Redis

from django_delayq import RetryPolicy, delayed_task, enqueue_many, execute_later, get_job, get_store
from django_delayq.exceptions import DelayQError, KeyHeld, StoreUnavailable
from django_delayq.job.job import Flag, Job, State
from django_delayq.signals import job_enqueued
from django_delayq.task import registry
from django_delayq.task.handle import JobHandle
from django_delayq.testing.local_redis import LocalRedisServer
from tests.sample_app.tasks import noop, record, record_async

pytestmark = pytest.mark.usefixtures("delayq_settings")


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test register what it likes."""
    monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))


def stored(handle: JobHandle) -> Job:
    """Return the job as Redis has it."""
    found = get_job(handle.id)
    assert found and found.job
    return found.job


def now() -> datetime:
    return datetime.now(UTC)


def due_of(handle: JobHandle) -> datetime:
    due = handle.refresh().due
    assert due is not None
    return due


def test_calling_a_task_calls_the_function(client: Redis) -> None:
    assert noop(1, x=2) is None
    assert client.dbsize() == 0


def test_a_task_looks_like_its_function() -> None:
    assert noop.__name__ == "noop" and noop.__doc__ == "Do nothing." and noop.__module__ == "tests.sample_app.tasks"
    assert inspect.signature(noop) == inspect.signature(noop.func)


def test_a_bare_decorator_and_one_with_options_make_tasks(own_registry: None) -> None:
    space: dict[str, Any] = {"__name__": "shop.tasks"}
    exec("def remind(user_id: int) -> int: return user_id + 1", space)
    bare = delayed_task(space["remind"])
    assert (bare.name, bare.queue, bare.priority, bare(1)) == ("shop.tasks.remind", "default", 0, 2)
    policy = RetryPolicy(max_attempts=2)
    made = delayed_task(queue="mail", priority=10, retry=policy, timeout=30, hard_timeout=timedelta(minutes=1))(
        space["remind"]
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
def test_a_delay_of_nothing_is_no_delay(delay: Any) -> None:
    handle = noop.after(delay).enqueue()
    assert handle.refresh().state is State.READY
    assert not stored(handle).flags & Flag.DELAYED


HOUR = timedelta(hours=1)


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
def test_every_way_to_say_in_an_hour_says_the_same(delayed: Any) -> None:
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
    # A job ready before its time would stand in front of all others; it got the place of one enqueued now.
    rank = int(get_store().shards[0].client.zscore("delayq:{0}:ready:default", stored(handle).member))
    assert rank >= 100 * 2**45 + (before - HOUR).timestamp() * 1_000


def test_options_follow_one_another_and_leave_the_task_as_it_was() -> None:
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
    assert get_store().lookup(0).counts().ready == {queue: 1}


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


def test_a_key_keeps_one_job_alive() -> None:
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


def test_a_job_by_its_name() -> None:
    handle = execute_later("mail", "tests.sample_app.tasks.record", [7], delay=600)
    assert handle.state is State.SCHEDULED
    job = stored(handle)
    assert (job.task, job.queue, job.args) == ("tests.sample_app.tasks.record", "mail", [7])
    assert execute_later("mail", "tests.sample_app.tasks.record").state is State.READY
    assert stored(execute_later("mail", "tests.sample_app.tasks.record", (1, 2))).args == [1, 2]


def test_a_receiver_hears_of_what_was_enqueued() -> None:
    heard: list[tuple[Any, Job]] = []

    def receiver(sender: Any, job: Job, **_: Any) -> None:
        heard.append((sender, job))

    job_enqueued.connect(receiver)
    try:
        handle = noop.using(queue="mail", key="k").enqueue(1)
        noop.using(key="k").enqueue(2)
    finally:
        job_enqueued.disconnect(receiver)
    assert [(sender, job.id, job.args) for sender, job in heard] == [(noop, handle.id, [1])]


def scripts_run(client: Redis) -> int:
    """Return how many script calls the server has seen."""
    found = client.info("commandstats")
    return sum(found.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))


@pytest.fixture
def counted(client: Redis) -> Iterator[Redis]:
    """The client of a server that knows the scripts and has counted none yet."""
    noop.enqueue()
    client.flushdb()
    client.config_resetstat()
    yield client


def test_five_hundred_jobs_are_two_round_trips(counted: Redis) -> None:
    handles = noop.after(hours=1).enqueue_many([(number,) for number in range(500)])
    assert isinstance(handles, list) and len({handle.id for handle in handles}) == 500
    assert scripts_run(counted) == 2
    assert {handle.state for handle in handles} == {State.SCHEDULED}
    assert stored(handles[499]).args == [499]
    assert get_store().lookup(0).counts().scheduled == {"default": 500}


def test_a_chunk_ends_at_a_megabyte(counted: Redis) -> None:
    noop.enqueue_many([("x" * 200_000,) for _ in range(12)])
    assert scripts_run(counted) == 3


def test_progress_is_told_after_each_megabyte() -> None:
    told: list[int] = []
    assert noop.enqueue_many((("x" * 200_000,) for _ in range(12)), on_progress=told.append) == 12
    assert told == [5, 10, 12]


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_begins_while_jobs_are_made_is_seen() -> None:
    def arguments() -> Generator[tuple[int], None, None]:
        yield from ((number,) for number in range(250))
        with transaction.atomic():
            yield from ((number,) for number in range(250))

    made = arguments()
    with pytest.raises(DelayQError, match="in a transaction") as caught:
        noop.enqueue_many(made, on_progress=lambda accepted: None)
    made.close()
    assert caught.value.__notes__ == ["enqueue_many() had accepted 250 jobs by then."]
    assert get_store().lookup(0).counts().ready == {"default": 250}


def test_a_job_that_is_given_twice_is_sent_once() -> None:
    first, *others = jobs = [noop.after(number).job(number) for number in range(300)]
    sent = enqueue_many([*jobs, first])
    assert isinstance(sent, list) and sent == [*jobs, first]
    due = [job.due for job in jobs]
    assert due == sorted(moment for moment in due if moment) and {job.state for job in others} == {State.SCHEDULED}
    with pytest.raises(TypeError, match=f"{first.id} was sent or cancelled"):
        enqueue_many([first])


def test_any_tasks_at_any_times_in_one_call(counted: Redis) -> None:
    moment = now() + HOUR
    jobs = [noop.at(moment).job(3), record.after(60).job(x=7), record.using(queue="mail").job()]
    assert [job.state for job in jobs] == [State.UNSENT] * 3 and counted.dbsize() == 0
    handles = enqueue_many(jobs)
    assert handles == jobs and scripts_run(counted) == 1
    assert [job.refresh().state for job in jobs] == [State.SCHEDULED, State.SCHEDULED, State.READY]
    assert due_of(jobs[0]) == moment and stored(jobs[1]).kwargs == {"x": 7} and stored(jobs[2]).queue == "mail"


def test_enqueueing_many_of_nothing_is_nothing(counted: Redis) -> None:
    assert enqueue_many([]) == [] and noop.enqueue_many([]) == []
    assert noop.enqueue_many([], on_progress=lambda accepted: None) == 0
    assert scripts_run(counted) == 0


def test_progress_is_told_after_each_chunk_of_which_one_is_on_its_way_while_the_next_is_made() -> None:
    made, told = [0], []

    def arguments() -> Iterator[tuple[int]]:
        for number in range(700):
            made[0] += 1
            yield (number,)

    def progress(accepted: int) -> None:
        told.append((accepted, made[0]))

    assert noop.enqueue_many(arguments(), on_progress=progress) == 700
    # The first is answered at once.
    assert told == [(250, 250), (500, 700), (700, 700)]


def test_a_held_key_in_a_batch_gives_back_the_holder() -> None:
    holder = noop.using(key="k").enqueue(0)
    handles = enqueue_many([noop.job(1), noop.using(key="k").job(2), noop.using(key="new").job(3)])
    assert isinstance(handles, list)
    assert [handle.created for handle in handles] == [True, False, True]
    assert handles[1].id == holder.id


def test_a_refused_key_refuses_its_chunk_and_tells_what_was_accepted(client: Redis) -> None:
    holder = noop.using(key="k").after(60).enqueue()
    jobs = [*(noop.job(number) for number in range(300)), noop.using(key="k", unique="reject").job()]
    with pytest.raises(KeyHeld, match="'k'") as caught:
        enqueue_many(jobs)
    assert (caught.value.accepted, caught.value.holder) == (250, holder.id)
    assert get_store().lookup(0).counts().ready == {"default": 250}
    assert [job.state for job in jobs[250:]] == [State.UNSENT] * 51


@pytest.mark.parametrize("progress", [False, True])
def test_an_outage_in_the_middle_tells_what_was_accepted_and_can_be_mended(
    progress: bool, start_redis: Any, delayq_settings: Any
) -> None:
    server: LocalRedisServer = start_redis(options={"appendonly": "yes", "appendfsync": "always"})
    delayq_settings.DELAYQ = {"REDIS": server.url}
    made: list[JobHandle] = []

    def jobs() -> Iterator[JobHandle]:
        for number in range(600):
            if number == 350 and progress:
                server.kill()
            made.append(noop.job(number))
            yield made[-1]

    def after_first_chunk(accepted: int) -> None:
        assert accepted == 250

    if progress:
        with pytest.raises(StoreUnavailable) as caught:
            enqueue_many(jobs(), on_progress=after_first_chunk)
        assert caught.value.accepted == 250
        unsent = made[250:500]
    else:
        server.kill()
        with pytest.raises(StoreUnavailable) as caught:
            enqueue_many(jobs())
        assert caught.value.accepted == 0
        unsent = made
    assert [job.id for job in caught.value.unsent] == [job.id for job in unsent]
    assert {job.state for job in unsent} == {State.UNSENT}
    with pytest.raises(StoreUnavailable) as again:
        caught.value.resend()
    server.restart()
    again.value.resend()
    caught.value.resend()
    assert {job.state for job in unsent} == {State.READY}
    assert get_store().lookup(0).counts().ready == {"default": 500 if progress else 600}


@pytest.mark.parametrize("shards", [1, 4])
def test_a_batch_finds_all_its_shards(shards: int, delayq_settings: Any, client: Redis) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": shards}
    handles = noop.enqueue_many([(number,) for number in range(100)])
    assert isinstance(handles, list)
    assert {handle.id.rsplit("-")[1] for handle in handles} == {str(shard) for shard in range(shards)}
    assert [stored(handle).args for handle in handles] == [[number] for number in range(100)]


def test_defaults_of_the_project_reach_the_job(delayq_settings: Any) -> None:
    policy = RetryPolicy(max_attempts=9)
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "RETRY": policy, "PREFIX": "shop"}
    assert stored(noop.enqueue()).retry == policy
    assert stored(noop.using(retry=RetryPolicy(max_attempts=1)).enqueue()).retry.max_attempts == 1


class Shop:
    def remind(self) -> None: ...

    @classmethod
    def open(cls) -> None: ...


def generate() -> Iterator[int]:
    yield 1


async def generate_async() -> Any:
    yield 1


def nested() -> Any:
    def inner() -> None: ...

    return inner


@pytest.mark.parametrize(
    ("func", "words"),
    [
        (lambda: None, "lambda"),
        (nested(), r"nested function .*inner.*module level"),
        (Shop.remind, r"method .*Shop\.remind.*module level"),
        (Shop.open, "plain function"),
        (Shop, "plain function"),
        (Shop(), "plain function"),
        (len, "plain function"),
        ("shop.remind", "plain function"),
        (generate, "generator .*generate"),
        (generate_async, "generator .*generate_async"),
    ],
)
def test_what_a_worker_could_not_find_or_run_is_refused_at_decoration(func: Any, words: str) -> None:
    with pytest.raises(ImproperlyConfigured, match=words):
        delayed_task(func)
