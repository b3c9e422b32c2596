"""Enqueueing by Django's own `@task`: R7 to R17, and what is kept of the arguments."""

import asyncio
import datetime
import threading
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone
from redis import Redis

from django_delayq import execute_later, get_job
from django_delayq.backend.backend import DelayQBackend
from django_delayq.exceptions import PayloadTooLarge, StoreUnavailable
from django_delayq.task import registry
from tests.django_tasks.compat import (
    IMMEDIATE,
    NAME,
    InvalidTask,
    TaskResultStatus,
    default_task_backend,
    task,
    task_backends,
)
from tests.django_tasks.conftest import BACKEND
from tests.sample_app import django_tasks

UTC = datetime.UTC
MOMENT = datetime.datetime(2031, 5, 17, 9, 30, 0, 123457, tzinfo=UTC)


def stored(client: Redis) -> int:
    """Return how many jobs there are."""
    return sum(client.hlen(key) for key in client.scan_iter("*:jobs"))


def test_r07_all_four_capabilities_are_there() -> None:
    backend = default_task_backend
    flags = ("supports_defer", "supports_async_task", "supports_get_result", "supports_priority")
    assert [getattr(backend, flag) for flag in flags] == [True] * 4


@pytest.mark.django_db(transaction=True)
def test_r08_enqueue_does_not_wait_for_a_transaction(client: Redis) -> None:
    from django.db import transaction

    with transaction.atomic():
        result = django_tasks.noop.enqueue()
        assert stored(client) == 1
        assert django_tasks.noop.get_result(result.id).status == TaskResultStatus.READY


@pytest.mark.parametrize("is_async", [False, True], ids=["enqueue", "aenqueue"])
def test_r09_a_task_is_validated_again_when_it_is_enqueued(
    tasks_settings: Any, client: Redis, signal_log: Any, is_async: bool
) -> None:
    tasks_settings.TASKS = {"default": {"BACKEND": f"{DelayQBackend.__module__}.DelayQBackend", "QUEUES": ["mail"]}}
    with pytest.raises(InvalidTask):
        asyncio.run(django_tasks.noop.aenqueue()) if is_async else django_tasks.noop.enqueue()
    assert stored(client) == 0
    assert signal_log.received == []


def test_r09_what_is_no_json_is_refused_before_the_network_is_used(tasks_settings: Any, signal_log: Any) -> None:
    tasks_settings.DELAYQ = {"REDIS": "unix:///nonexistent/redis.sock"}
    for wrong in ({1}, MOMENT, Decimal(1), object(), b"\xff"):
        with pytest.raises((TypeError, ValueError)):
            django_tasks.noop.enqueue([{"a": wrong}])
    assert signal_log.received == []


@pytest.mark.parametrize("priority", [3.0, True, Decimal(3), -100, 100])
def test_r10_any_whole_priority_is_one(priority: Any, drain: Any) -> None:
    result = django_tasks.describe.using(priority=priority).enqueue()
    assert django_tasks.describe.get_result(result.id).task.priority == priority
    assert drain() == 1
    result.refresh()
    assert result.return_value["priority"] == int(priority)


@pytest.mark.parametrize("queue", ["two words", "a:b", "naïve/日本", "*", "{0}", "x" * 200, "\n", "ready:default"])
def test_r11_a_queue_may_have_any_name(queue: str, drain: Any) -> None:
    result = django_tasks.describe.using(queue_name=queue).enqueue()
    assert django_tasks.describe.get_result(result.id).task.queue_name == queue
    assert drain() == 1
    result.refresh()
    assert result.return_value["queue_name"] == queue


@pytest.mark.parametrize("queue", ["", "x" * 201, 3])
def test_r11_what_no_key_can_hold_is_invalid(queue: Any) -> None:
    with pytest.raises(InvalidTask, match="queue_name must be text of 1 to 200 bytes"):
        django_tasks.noop.using(queue_name=queue)


def test_r12_run_after_may_be_a_timedelta(drain: Any) -> None:
    before = timezone.now()
    result = django_tasks.noop.using(run_after=datetime.timedelta(hours=1)).enqueue()
    after = timezone.now()
    hour = datetime.timedelta(hours=1)
    assert before + hour <= result.task.run_after <= after + hour
    assert django_tasks.noop.get_result(result.id) == result
    assert drain() == 0
    past = django_tasks.add.using(run_after=datetime.timedelta(hours=-1)).enqueue(1)
    assert drain() == 1
    past.refresh()
    assert past.return_value == 1
    with pytest.raises(InvalidTask, match="longer than a datetime"):
        django_tasks.noop.using(run_after=datetime.timedelta.max).enqueue()
    with pytest.raises(InvalidTask):
        django_tasks.noop.using(run_after=datetime.timedelta(1), queue_name="")


def test_r12_a_timedelta_may_be_the_first_that_is_heard_of_a_task(registered: Any, drain: Any) -> None:
    registered({})
    result = django_tasks.add.using(run_after=datetime.timedelta(seconds=-1)).enqueue(1)
    registered({})
    assert drain() == 1
    result.refresh()
    assert result.return_value == 1


def test_r12_a_timedelta_may_come_with_the_backend_that_understands_it(tasks_settings: Any, registered: Any) -> None:
    tasks_settings.TASKS = {"default": {"BACKEND": IMMEDIATE}, "later": {"BACKEND": BACKEND, "QUEUES": []}}
    # Declared for another backend, it is not known here before.
    registered({})
    result = django_tasks.noop.using(backend="later", run_after=datetime.timedelta(hours=1)).enqueue()
    assert result.task.run_after > timezone.now() + datetime.timedelta(minutes=59)


def for_nobody() -> None:
    """Belong to a task of another backend."""


@pytest.mark.parametrize("is_exact", [False, True], ids=["timedelta", "datetime"])
def test_r12_a_task_of_another_backend_may_be_deferred_here(
    is_exact: bool, tasks_settings: Any, registered: Any, drain: Any
) -> None:
    registered()
    dummy = f"{NAME}.backends.dummy.DummyBackend"
    tasks_settings.TASKS = {**tasks_settings.TASKS, "dummy": {"BACKEND": dummy, "QUEUES": []}}
    theirs = task(backend="dummy")(for_nobody)
    hour = datetime.timedelta(hours=1)
    ours = theirs.using(backend="default", run_after=timezone.now() + hour if is_exact else hour)
    assert ours.enqueue().task.run_after > timezone.now() + hour / 2
    assert drain() == 0
    # The moment was that enqueue's: by its name the task is enqueued without it.
    execute_later("default", ours.module_path)
    assert drain() == 1


def test_r13_without_use_tz_a_naive_moment_is_local_time(tasks_settings: Any) -> None:
    tasks_settings.USE_TZ = False
    tasks_settings.TIME_ZONE = "America/New_York"
    naive = datetime.datetime(2031, 1, 17, 9, 30, 0, 5)
    result = django_tasks.noop.using(run_after=naive).enqueue()
    job = get_job(result.id)
    assert job is not None
    assert job.due == datetime.datetime(2031, 1, 17, 14, 30, 0, 5, tzinfo=UTC)
    found = django_tasks.noop.get_result(result.id)
    assert found.task.run_after == naive
    assert timezone.is_naive(found.enqueued_at)
    assert found == result


@pytest.mark.parametrize(
    "moment",
    [
        datetime.datetime.max.replace(tzinfo=UTC),
        datetime.datetime.min.replace(tzinfo=UTC),
        datetime.datetime.max.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=-11))),
        datetime.datetime.min.replace(tzinfo=datetime.timezone(datetime.timedelta(hours=13))),
        MOMENT.astimezone(datetime.timezone(datetime.timedelta(hours=5, minutes=45))),
    ],
)
def test_r13_the_instant_counts_and_none_is_too_far(moment: datetime.datetime, drain: Any) -> None:
    result = django_tasks.noop.using(run_after=moment).enqueue()
    found = django_tasks.noop.get_result(result.id)
    assert found.task.run_after == moment
    assert found == result
    assert drain() == (moment.year == 1)


@pytest.mark.parametrize("moment", [datetime.datetime.max, datetime.datetime.min])
@pytest.mark.parametrize("zone", ["America/New_York", "Asia/Tokyo", "UTC"])
def test_r13_the_ends_of_the_calendar_are_kept_without_use_tz(
    tasks_settings: Any, moment: datetime.datetime, zone: str
) -> None:
    tasks_settings.USE_TZ = False
    tasks_settings.TIME_ZONE = zone
    result = django_tasks.noop.using(run_after=moment).enqueue()
    assert django_tasks.noop.get_result(result.id).task.run_after == moment


def test_r14_arguments_may_have_any_name(drain: Any) -> None:
    names = ("task", "args", "kwargs", "priority", "backend", "claim", "job", "func", "key", "queue", "alias", "result")
    kwargs = {name: [name] for name in names}
    result = django_tasks.echo.enqueue(1, **kwargs)
    drain()
    result.refresh()
    assert result.return_value == [[1], kwargs]


def test_r15_the_package_ships_no_task_of_djangos() -> None:
    from django_delayq.backend.django_task import DjangoTask

    assert not [
        name
        for name, each in registry._tasks.items()
        if name.startswith("django_delayq.") and isinstance(each, DjangoTask)
    ]


def test_r16_the_result_says_what_was_enqueued() -> None:
    before = timezone.now() - datetime.timedelta(milliseconds=1)
    chosen = django_tasks.add.using(priority=7, queue_name="mail", run_after=MOMENT)
    result = chosen.enqueue(1, b=2)
    assert result.task is chosen
    assert result.status == TaskResultStatus.READY
    assert before <= result.enqueued_at <= timezone.now()
    assert timezone.is_aware(result.enqueued_at)
    assert (result.started_at, result.finished_at, result.last_attempted_at) == (None, None, None)
    assert (result.args, result.kwargs, result.backend) == ([1], {"b": 2}, "default")
    assert (result.errors, result.worker_ids, result.attempts) == ([], [], 0)
    assert isinstance(result.id, str)
    assert len(result.id) < 64


def test_r16_later_changes_of_the_caller_do_not_reach_the_result() -> None:
    given: dict[str, Any] = {"list": [1]}
    result = django_tasks.echo.enqueue(given)
    given["list"].append(2)
    assert result.args == [{"list": [1]}]
    result.args[0]["list"].append(3)
    assert django_tasks.echo.get_result(result.id).args == [{"list": [1]}]


def test_r16_ids_are_unique_in_many_threads() -> None:
    ids: list[str] = []
    threads = [
        threading.Thread(target=lambda: ids.extend(django_tasks.noop.enqueue().id for _ in range(20))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 160


@pytest.mark.parametrize("is_async", [False, True], ids=["enqueue", "aenqueue"])
def test_r17_task_enqueued_is_sent_once_after_the_task_is_stored(is_async: bool, signal_log: Any) -> None:
    looked: list[Any] = []

    def look(sender: Any, task_result: Any, **_: Any) -> None:
        looked.append(sender is DelayQBackend and django_tasks.add.get_result(task_result.id))

    from tests.django_tasks.compat import task_enqueued

    task_enqueued.connect(look)
    try:
        result = asyncio.run(django_tasks.add.aenqueue(1)) if is_async else django_tasks.add.enqueue(1)
    finally:
        task_enqueued.disconnect(look)
    assert looked == [result]
    assert signal_log.received == [("enqueued", DelayQBackend, result)]


def test_r17_a_store_that_is_away_raises_soon_and_nothing_is_signalled(tasks_settings: Any, signal_log: Any) -> None:
    tasks_settings.DELAYQ = {"REDIS": "redis://127.0.0.1:1/0", "ENQUEUE_TIMEOUT": 0.5}
    with pytest.raises(StoreUnavailable):
        django_tasks.add.enqueue(1)
    with pytest.raises(StoreUnavailable):
        asyncio.run(django_tasks.add.aenqueue(1))
    assert signal_log.received == []


def test_r17_a_receiver_that_raises_does_not_undo_the_enqueue(client: Redis, caplog: pytest.LogCaptureFixture) -> None:
    from tests.django_tasks.compat import task_enqueued

    def broken(**_: Any) -> None:
        raise RuntimeError("as asked")

    task_enqueued.connect(broken)
    try:
        django_tasks.add.enqueue(1)
    finally:
        task_enqueued.disconnect(broken)
    assert stored(client) == 1
    assert "A receiver of a signal failed" in caplog.text


class Holder:
    """What methods and class attributes are refused for."""

    def method(self) -> None:
        """Do nothing."""


lambda_at_module_level = lambda: None  # noqa: E731


@pytest.mark.parametrize("func", [Holder.method, lambda_at_module_level], ids=["method", "lambda"])
def test_what_no_worker_could_find_by_its_name_is_invalid(func: Any) -> None:
    with pytest.raises(InvalidTask, match="no function that a worker could find"):
        task(func)


def test_run_after_that_is_no_moment_is_invalid(tasks_settings: Any) -> None:
    tasks_settings.USE_TZ = False
    with pytest.raises(InvalidTask, match="run_after must be a datetime or a timedelta"):
        django_tasks.noop.using(run_after="tomorrow")


def test_arguments_nested_too_deep_or_too_large_are_refused(client: Redis) -> None:
    deep: list[Any] = []
    for _ in range(70):
        deep = [deep]
    with pytest.raises(PayloadTooLarge, match="nested deeper"):
        django_tasks.noop.enqueue(deep)
    with pytest.raises(PayloadTooLarge, match="MAX_PAYLOAD"):
        django_tasks.noop.enqueue("x" * (9 * 1024 * 1024))
    assert stored(client) == 0


def test_backends_are_ours() -> None:
    assert [type(task_backends[alias]) for alias in ("default", "second")] == [DelayQBackend] * 2
