"""Results: R18 to R24. They are found in any process, complete, and separate by alias."""

import asyncio
import math
import pickle
from collections import deque
from typing import Any

import pytest
from django.utils import timezone

from django_delayq import get_job, get_store, limit
from django_delayq.exceptions import LimitClosed, StoreUnavailable, UnknownLimit, UnknownTask
from tests.django_tasks.compat import IMMEDIATE, TaskResultStatus, default_task_backend, exceptions, task_backends
from tests.django_tasks.conftest import BACKEND
from tests.django_tasks.contract.test_enqueue import MOMENT
from tests.sample_app import django_tasks
from tests.subprocesses import Processes


@pytest.mark.parametrize(
    ("kind", "value"), [("tuple", [1, [2]]), ("bytes", "text"), ("nothing", None), ("kind", "kind")]
)
def test_r18_what_a_task_returns_is_normalised_as_arguments_are(kind: str, value: Any, drain: Any) -> None:
    result = django_tasks.give.enqueue(kind)
    drain()
    result.refresh()
    assert result.status == TaskResultStatus.SUCCESSFUL
    assert result.return_value == value


@pytest.mark.parametrize(
    ("kind", "error"), [("binary", ValueError), ("set", TypeError), ("moment", TypeError), ("large", ValueError)]
)
def test_r18_what_cannot_be_normalised_makes_the_task_failed_at_once(kind: str, error: Any, drain: Any) -> None:
    result = django_tasks.give.enqueue(kind)
    assert drain() == 1
    result.refresh()
    assert (result.status, len(result.errors), result.attempts) == (TaskResultStatus.FAILED, 1, 1)
    assert issubclass(result.errors[0].exception_class, error)
    with pytest.raises(ValueError, match="Task failed"):
        result.return_value  # noqa: B018


VALUES: list[Any] = [
    *(2**53 + 1, 2**63 + 1, -(2**70), 10**300, 1.0, 1e22, -0.0, 0.1, 5e-324),
    *([], {}, [[], {}, [{}]], {"a": []}, [None, [None]], True, False, None),
    *("\0", "\u2028\u2029", "\U0001f600", "\ud800", "\udfff x", "\x7f\x80", "x" * 1_000_000),
    *({"": 1}, {"\0": {"\ud800": 2}}, [1, 1.0, True]),
]


def exactly(found: Any, given: Any) -> bool:
    """Return whether two values are equal and of equal types at every depth."""
    if type(found) is not type(given):
        return False
    if isinstance(given, list):
        return len(found) == len(given) and all(map(exactly, found, given))
    if isinstance(given, dict):
        return found.keys() == given.keys() and all(exactly(found[key], given[key]) for key in given)
    return repr(found) == repr(given)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: ascii(value)[:30])
def test_r19_values_come_back_exactly(value: Any, drain: Any) -> None:
    result = django_tasks.echo.enqueue(value, key=value)
    assert exactly(django_tasks.echo.get_result(result.id).args, [value])
    assert drain() == 1
    result.refresh()
    assert exactly(result.return_value, [[value], {"key": value}])


def test_r19_nan_and_infinities_pass(drain: Any) -> None:
    result = django_tasks.echo.enqueue(math.nan, math.inf, -math.inf)
    drain()
    result.refresh()
    (first, *others), _ = result.return_value
    assert math.isnan(first)
    assert others == [math.inf, -math.inf]


def test_r19_other_containers_become_lists_and_dicts() -> None:
    result = django_tasks.echo.enqueue((1, (2,)), range(3), deque([4]), {1: "a"}, bytearray(b"ab"))
    assert django_tasks.echo.get_result(result.id).args == [[1, [2]], [0, 1, 2], [4], {"1": "a"}, [97, 98]]


def test_r20_a_result_is_found_in_another_process(processes: Processes) -> None:
    processes.configure(TASK_MODULES=["tests.sample_app.django_tasks"])
    result = django_tasks.add.enqueue(40, 2)
    code = f"from tests.sample_app.django_tasks import add; print(add.get_result({result.id!r}).args)"
    shell = processes.start("shell", "-c", code)
    assert shell.wait() == 0
    assert "[40, 2]" in shell.output


@pytest.mark.parametrize(
    "wrong", ["", "x", "0" * 24 + "-0", "0" * 24 + "-7", "0" * 24, "\0", "é" * 200, None, 3, b"id", [], object()]
)
def test_r20_an_unknown_or_malformed_id_does_not_exist(wrong: Any) -> None:
    with pytest.raises(exceptions.TaskResultDoesNotExist):
        default_task_backend.get_result(wrong)
    with pytest.raises(exceptions.TaskResultDoesNotExist):
        asyncio.run(django_tasks.noop.aget_result(wrong))


def test_r20_a_job_of_a_delayed_task_and_an_expired_result_do_not_exist(client: Any, drain: Any) -> None:
    from tests.sample_app import tasks

    with pytest.raises(exceptions.TaskResultDoesNotExist):
        default_task_backend.get_result(tasks.noop.enqueue().id)
    result = django_tasks.add.enqueue(1)
    drain()
    [key] = client.keys("*:results:*")
    assert 0 < client.ttl(key) <= 86_400
    client.delete(key)
    with pytest.raises(exceptions.TaskResultDoesNotExist):
        result.refresh()


def test_r20_while_redis_is_away_no_result_counts_as_missing(tasks_settings: Any) -> None:
    result = django_tasks.add.enqueue(1)
    tasks_settings.DELAYQ = {"REDIS": "redis://127.0.0.1:1/0", "ENQUEUE_TIMEOUT": 0.5}
    with pytest.raises(StoreUnavailable):
        result.refresh()


def test_r20_a_result_can_be_looked_up_on_the_thread_of_an_event_loop() -> None:
    async def look() -> Any:
        result = await django_tasks.add.aenqueue(1)
        found = django_tasks.add.get_result(result.id)
        await result.arefresh()
        return result == found == await django_tasks.add.aget_result(result.id)

    assert asyncio.run(look())


@pytest.mark.parametrize("moment", [None, MOMENT])
def test_r21_the_found_result_equals_the_one_that_enqueue_returned(moment: Any) -> None:
    chosen = django_tasks.echo.using(priority=-7, queue_name="bulk mail", run_after=moment)
    result = chosen.enqueue(1, a=[2])
    found = default_task_backend.get_result(result.id)
    assert found == result
    assert found.task == chosen
    assert (found.task.priority, found.task.queue_name, found.task.run_after) == (-7, "bulk mail", moment)


def test_r21_a_finished_result_has_its_task_as_it_was(drain: Any) -> None:
    past = MOMENT.replace(year=2001)
    chosen = django_tasks.describe.using(priority=3, queue_name="mail", run_after=past)
    result, failing = chosen.enqueue(), django_tasks.fail.using(priority=4, run_after=past).enqueue()
    drain()
    found = django_tasks.describe.get_result(result.id)
    assert found.task == chosen
    assert found.return_value["run_after"] == str(past)
    assert django_tasks.fail.get_result(failing.id).task == failing.task


def test_r22_aliases_are_kept_apart(drain: Any, signal_log: Any) -> None:
    second = django_tasks.describe.using(backend="second")
    result, other = second.enqueue(), django_tasks.describe.enqueue()
    assert (result.backend, result.task.backend) == ("second", "second")
    for backend, foreign in (("default", result), ("second", other)):
        with pytest.raises(exceptions.TaskResultDoesNotExist):
            task_backends[backend].get_result(foreign.id)
    assert second.get_result(result.id) == result
    assert drain("second") == 1
    other.refresh()
    result.refresh()
    assert (other.status, result.status) == (TaskResultStatus.READY, TaskResultStatus.SUCCESSFUL)
    assert result.return_value["backend"] == "second"
    assert {seen.backend for _, _, seen in signal_log.received if seen.id == result.id} == {"second"}
    assert drain() == 1


def test_r22_a_task_uses_the_limits_of_its_alias(tasks_settings: Any, drain: Any) -> None:
    tasks_settings.TASKS["second"]["OPTIONS"] = {"LIMITS": {"one": {"max_running": 1}}}
    tasks_settings.TASKS = {**tasks_settings.TASKS}
    get_store("second").store_limits()
    result = django_tasks.use_limit.using(backend="second").enqueue("one")
    assert drain("second") == 1
    result.refresh()
    assert result.return_value == 1
    with pytest.raises(LimitClosed), limit("one", block=0.01, backend="second"):
        raise AssertionError("a task backs off")
    with pytest.raises(UnknownLimit):
        limit("one")


def test_r22_an_alias_of_its_own_has_a_prefix_of_its_own_and_its_options(tasks_settings: Any, client: Any) -> None:
    second = {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"RESULT_TTL": 5, "CONCURRENCY": 3}}
    tasks_settings.DELAYQ = {**tasks_settings.DELAYQ, "PREFIX": "shop"}
    tasks_settings.TASKS = {**tasks_settings.TASKS, "a b": second}
    django_tasks.noop.using(backend="a b").enqueue()
    django_tasks.noop.enqueue()
    assert {key.split(b":")[0] for key in client.keys("*:jobs")} == {b"shop", b"shop-a%20b"}
    config = get_store("a b").config
    assert (config.worker.concurrency, config.tasks.result_ttl_us) == (3, 5_000_000)
    assert get_store("default") is get_store()


def test_r22_the_only_alias_of_this_backend_shares_the_store_whatever_its_name(tasks_settings: Any, drain: Any) -> None:
    tasks_settings.TASKS = {"default": {"BACKEND": IMMEDIATE}, "later": {"BACKEND": BACKEND, "QUEUES": []}}
    result = django_tasks.add.using(backend="later").enqueue(1)
    assert get_store("later") is get_store()
    assert drain("later") == 1
    result.refresh()
    assert (result.backend, result.return_value) == ("later", 1)


def test_r22_without_delayq_the_options_of_the_shared_alias_stand_for_it(
    tasks_settings: Any, redis_url: str, drain: Any
) -> None:
    del tasks_settings.DELAYQ
    tasks_settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"REDIS": redis_url}}}
    result = django_tasks.add.enqueue(1)
    assert get_job(result.id) is not None
    drain()
    result.refresh()
    assert result.return_value == 1


def test_r23_tasks_and_results_are_picklable_also_looked_up_ones(drain: Any) -> None:
    chosen = django_tasks.echo.using(priority=5, run_after=MOMENT.replace(year=2001))
    result = chosen.enqueue(1)
    drain()
    found = django_tasks.echo.get_result(result.id)
    for value in (chosen, result, found):
        assert pickle.loads(pickle.dumps(value)) == value
    assert pickle.loads(pickle.dumps(found)).return_value == [[1], {}]


def test_r23_tasks_and_results_can_be_compared_hashed_and_shown() -> None:
    result = django_tasks.echo.enqueue(1)
    assert hash(result.task) == hash(default_task_backend.get_result(result.id).task)
    assert "READY" in repr(result)


def test_r24_a_look_up_shows_the_stored_queue_though_queues_have_changed(tasks_settings: Any) -> None:
    result = django_tasks.noop.using(queue_name="mail").enqueue()
    tasks_settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": ["other"]}}
    found = default_task_backend.get_result(result.id)
    assert found.task.queue_name == "mail"


def test_r24_a_function_that_was_removed_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, registered: Any) -> None:
    result = django_tasks.noop.enqueue()
    registered({})
    monkeypatch.delattr(django_tasks, "noop")
    with pytest.raises(UnknownTask, match="TASK_MODULES"):
        default_task_backend.get_result(result.id)


def test_a_result_of_another_task_is_a_mismatch() -> None:
    result = django_tasks.add.enqueue(1)
    with pytest.raises(exceptions.TaskResultMismatch):
        django_tasks.noop.get_result(result.id)


def test_a_cancelled_task_is_failed_with_job_cancelled(drain: Any) -> None:
    result = django_tasks.add.using(run_after=MOMENT).enqueue(1)
    job = get_job(result.id)
    assert job is not None
    assert job.cancel()
    assert (job.state, job.refresh().state) == ("cancelled", "cancelled")
    result.refresh()
    assert (result.status, result.worker_ids, result.started_at) == (TaskResultStatus.FAILED, [], None)
    assert result.finished_at <= timezone.now()
    assert [error.exception_class_path for error in result.errors] == ["django_delayq.exceptions.JobCancelled"]
    assert issubclass(result.errors[0].exception_class, Exception)
    assert drain() == 0


def test_a_task_is_rescheduled_by_its_result(drain: Any) -> None:
    result = django_tasks.add.using(run_after=MOMENT, backend="second").enqueue(1)
    job = get_job(result.id, backend="second")
    assert job is not None
    assert job.due == MOMENT
    assert get_job(result.id) is None
    assert job.reschedule(delay=0)
    assert drain("second") == 1
    result.refresh()
    assert result.return_value == 1
