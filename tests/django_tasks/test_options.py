"""What OPTIONS and options of a task give beyond the contract: retries, keys, commits, shards, signatures."""

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.utils import timezone
from redis import Redis

from django_delayq import RetryPolicy, Throttle, execute_later, get_job, queue
from django_delayq.backend.backend import DelayQBackend, DelayQTask
from django_delayq.exceptions import KeyHeld, ManualTransaction, StoreUnavailable
from django_delayq.job.outcome import Outcome, OutcomeKind
from django_delayq.store.store import get_store
from django_delayq.testing.fake_clock import FakeClock
from tests.django_tasks.compat import (
    IMMEDIATE,
    InvalidTask,
    TaskResultStatus,
    default_task_backend,
    exceptions,
)
from tests.django_tasks.conftest import BACKEND, with_options
from tests.django_tasks.worker import OneWorker
from tests.inspection import everything
from tests.sample_app import django_tasks
from tests.subprocesses import until


def test_a_retry_policy_of_options_is_that_of_the_alias(tasks_settings: Any) -> None:
    with_options(tasks_settings, RETRY=django_tasks.PATIENT)
    result = django_tasks.fail.enqueue()
    worker = OneWorker()
    for _ in range(3):
        until(worker.step, what="the next attempt")
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 3)


def test_rules_of_options_decide_which_errors_are_tried_again(tasks_settings: Any) -> None:
    retry = RetryPolicy(max_attempts=3, retry_on="builtins.LookupError", delays=[3_600])
    options = {"retry": retry, "retry_delay": lambda attempt, error: 0}
    with_options(tasks_settings, TASKS={django_tasks.fail.module_path: options})
    # It raises ValueError.
    result = django_tasks.fail.enqueue()
    assert OneWorker().drain() == 1
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 1)
    options["retry"] = RetryPolicy(max_attempts=3, retry_on=ValueError, delays=[3_600])
    with_options(tasks_settings, TASKS={django_tasks.fail.module_path: options})
    result = django_tasks.fail.enqueue()
    worker = OneWorker()
    for _ in range(3):
        until(worker.step, what="the next attempt, at once")
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 3)


def test_an_interrupted_task_is_asked_whether_it_was_done(tasks_settings: Any) -> None:
    with_options(tasks_settings, TASKS={django_tasks.add.module_path: {"already_done": lambda a, b=0: a == 1}})
    stop = Outcome(kind=OutcomeKind.INTERRUPTED)
    stopped = OneWorker(run=lambda claim: stop)
    done = django_tasks.add.enqueue(1, b=5)
    # It waits at its old place, so the same worker would claim it again.
    assert stopped.step() and OneWorker().drain() == 1
    again = django_tasks.add.enqueue(2, b=5)
    assert stopped.step() and OneWorker().drain() == 1
    for result in (done, again):
        result.refresh()
    assert [each.status for each in (done, again)] == [TaskResultStatus.SUCCESSFUL] * 2
    assert [each.attempts for each in (done, again)] == [1, 1]
    assert (done.return_value, again.return_value) == (None, 7)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"retry": RetryPolicy(retry_on="json.Nope")}, r"retry_on of .*\['retry'\] has 'json.Nope'"),
        ({"retry_delay": 5}, r"\['retry_delay'\] must be a function"),
        ({"already_done": True}, r"\['already_done'\] must be a function, got bool"),
    ],
)
def test_options_that_cannot_work_are_refused(tasks_settings: Any, options: Any, words: str, client: Redis) -> None:
    with_options(tasks_settings, TASKS={django_tasks.add.module_path: options})
    with pytest.raises(Exception, match=words):
        django_tasks.add.enqueue(1)
    assert client.keys("*:jobs") == []


def test_a_time_limit_of_options_ends_a_task(
    tasks_settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_options(tasks_settings, TASKS={django_tasks.wait_for.module_path: {"timeout": 0.05}})
    monkeypatch.setenv("DELAYQ_TEST_LEDGER", str(tmp_path / "ledger"))
    result = django_tasks.wait_for.enqueue(str(tmp_path / "never"))
    assert OneWorker().drain() == 1
    result.refresh()
    assert result.errors[0].exception_class_path == "django_delayq.exceptions.TaskTimeout"


@pytest.mark.parametrize("key", ["one", lambda a, b=0: f"sum:{a}"], ids=["text", "function"])
def test_a_key_makes_tasks_unique_until_they_end(tasks_settings: Any, key: Any, signal_log: Any) -> None:
    with_options(tasks_settings, TASKS={django_tasks.add.module_path: {"key": key}})
    first, second = django_tasks.add.enqueue(1), django_tasks.add.enqueue(1, b=5)
    assert second == first
    assert len(signal_log.received) == 1
    assert OneWorker().drain() == 1
    assert django_tasks.add.enqueue(1).id != first.id
    if callable(key):
        assert django_tasks.add.enqueue(2).id not in (first.id, second.id)


def test_calls_of_a_key_are_throttled(tasks_settings: Any) -> None:
    options = {"key": lambda a, b=0: f"sum:{a}", "unique": Throttle(3_600)}
    with_options(tasks_settings, TASKS={django_tasks.add.module_path: options})
    first = django_tasks.add.enqueue(1)
    OneWorker().drain()
    assert django_tasks.add.enqueue(1, b=2).id == first.id
    assert django_tasks.add.enqueue(2).id != first.id
    later = django_tasks.add.using(run_after=timezone.now() + timedelta(days=1), delayq={"key": "k"})
    assert later.enqueue(1).id == django_tasks.add.using(delayq={"key": "k"}).enqueue(3).id
    with pytest.raises(ValueError, match="Throttle.* needs a key"):
        django_tasks.add.using(delayq={"key": lambda: None}).enqueue(1)


def test_a_key_function_takes_the_arguments_that_it_names(tasks_settings: Any) -> None:
    with_options(tasks_settings, TASKS={django_tasks.add.module_path: {"key": lambda b: f"second:{b}"}})
    first = django_tasks.add.enqueue(1)
    assert [django_tasks.add.enqueue(2).id, django_tasks.add.enqueue(3, b=0).id] == [first.id] * 2
    assert django_tasks.add.enqueue(1, b=5).id != first.id


def test_a_key_function_of_other_arguments_is_refused_before_anything_is_sent(tasks_settings: Any) -> None:
    words = r"\['key'\] is a function of 'c', which is no parameter of the task"
    with pytest.raises(InvalidTask, match=words):
        django_tasks.add.using(delayq={"key": lambda c: "k"})
    with_options(tasks_settings, TASKS={django_tasks.add.module_path: {"key": lambda c: "k"}})
    [problem] = default_task_backend.check()
    assert (problem.id, "is a function of 'c'" in problem.msg) == ("delayq.E013", True)
    with pytest.raises(ImproperlyConfigured, match=words):
        django_tasks.add.enqueue(1)


@pytest.mark.parametrize("tenant", ["one", lambda a, b=0: f"account:{a}"], ids=["text", "function"])
def test_a_task_has_a_tenant(tasks_settings: Any, tenant: Any) -> None:
    with_options(tasks_settings, TASKS={django_tasks.add.module_path: {"tenant": tenant}})
    result = django_tasks.add.enqueue(7)
    found = queue(django_tasks.add.queue_name).tenant("account:7" if callable(tenant) else "one")
    assert found.counts()["waiting"] == 1
    assert OneWorker().drain() == 1
    result.refresh()
    assert result.return_value == 7
    assert found.counts()["waiting"] == 0


def test_a_tenant_that_is_no_name_is_refused(tasks_settings: Any) -> None:
    with pytest.raises(InvalidTask, match=r"\['tenant'\] must be a string, got int"):
        django_tasks.add.using(delayq={"tenant": 7})
    with pytest.raises(InvalidTask, match=r"\['tenant'\] is a function of 'c', which is no parameter of the task"):
        django_tasks.add.using(delayq={"tenant": lambda c: "k"})


def test_a_retry_delay_that_cannot_be_called_is_refused(tasks_settings: Any) -> None:
    words = r"\['retry_delay'\] is called with the number of the failed attempt and its exception"
    with pytest.raises(InvalidTask, match=words):
        django_tasks.add.using(delayq={"retry_delay": lambda: 5})
    with_options(tasks_settings, TASKS={django_tasks.add.module_path: {"retry_delay": lambda attempt: 5}})
    [problem] = default_task_backend.check()
    assert (problem.id, "too many positional" in problem.msg) == ("delayq.E013", True)


@pytest.mark.parametrize("options", [5, "key", [("key", "k")]], ids=repr)
def test_options_that_are_no_dict_are_refused(options: Any) -> None:
    for task in (django_tasks.add, django_tasks.add.using(delayq={"key": "k"})):
        with pytest.raises(TypeError, match=f"delayq must be a dict such as .*, got {type(options).__name__}"):
            task.using(delayq=options)


def test_a_held_key_may_be_an_error(tasks_settings: Any, signal_log: Any) -> None:
    options = {"key": lambda a, b=0: None if a == 0 else "k", "unique": "reject"}
    with_options(tasks_settings, TASKS={django_tasks.add.module_path: options})
    django_tasks.add.enqueue(1)
    with pytest.raises(KeyHeld):
        django_tasks.add.enqueue(2)
    assert django_tasks.add.enqueue(0).id != django_tasks.add.enqueue(0).id
    assert len(signal_log.received) == 3


def test_a_wrong_key_is_refused_before_anything_is_stored(tasks_settings: Any, client: Redis) -> None:
    with_options(tasks_settings, TASKS={django_tasks.add.module_path: {"key": lambda a: a}})
    with pytest.raises(ValueError, match="the key of tests.sample_app.django_tasks.add must be a string"):
        django_tasks.add.enqueue(1)
    assert client.keys("*:jobs") == []


@pytest.mark.parametrize("on_expiry", ["drop", "dead"])
def test_a_job_that_expires_has_failed(tasks_settings: Any, moved_clock: FakeClock, on_expiry: str) -> None:
    with_options(tasks_settings, TASKS={django_tasks.add.module_path: {"expires": 60, "on_expiry": on_expiry}})
    result = django_tasks.add.enqueue(1)
    other = django_tasks.add.using(delayq={"expires": 600}).enqueue(2)
    moved_clock.advance(120_000_000)
    assert OneWorker().drain() == 2
    result.refresh()
    other.refresh()
    assert (result.status, other.status) == (TaskResultStatus.FAILED, TaskResultStatus.SUCCESSFUL)
    [error] = result.errors
    assert error.exception_class_path == "django_delayq.exceptions.JobExpired"
    assert "expired" in error.traceback


def test_the_expiry_counts_from_run_after(tasks_settings: Any, moved_clock: FakeClock) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    patient = django_tasks.add.using(run_after=later, delayq={"expires": 60})
    result = patient.enqueue(1)
    moved_clock.advance(3_630_000_000)
    assert OneWorker().drain() == 1
    result.refresh()
    assert result.status is TaskResultStatus.SUCCESSFUL
    with pytest.raises(ValueError, match="expires must be later than the due time"):
        django_tasks.add.using(run_after=later + timedelta(hours=2), delayq={"expires": later}).enqueue(1)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"expires": -1}, r"delayq\['expires'\] must not be negative"),
        ({"expires": "soon"}, r"delayq\['expires'\] must be a number of seconds, a timedelta, or an aware datetime"),
        ({"expires": datetime(2030, 1, 1)}, r"delayq\['expires'\] must be an aware datetime"),
        ({"expires": 5, "on_expiry": "fail"}, r"delayq\['on_expiry'\] must be 'drop' or 'dead'"),
    ],
)
def test_a_wrong_expiry_is_refused(tasks_settings: Any, options: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidTask, match=words):
        django_tasks.add.using(delayq=options)


def test_options_can_also_be_set_on_the_task_under_the_name_delayq(tasks_settings: Any) -> None:
    patient = django_tasks.fail.using(delayq={"retry": django_tasks.PATIENT, "key": "k"})
    assert isinstance(patient, DelayQTask)
    assert patient.using(priority=3).delayq == patient.delayq
    assert patient.using(delayq={"key": "other"}).delayq == {"retry": django_tasks.PATIENT, "key": "other"}
    result = patient.enqueue()
    assert patient.get_result(result.id) == result
    job = get_job(result.id)
    assert job is not None and job.job is not None
    assert (job.job.retry, job.job.key) == (django_tasks.PATIENT, "k")
    assert hash(patient) == hash(django_tasks.fail)


@pytest.mark.parametrize(
    ("options", "words"),
    [({"timeuot": 3}, "did you mean 'timeout'"), ({"timeout": 9, "hard_timeout": 5}, "must not be shorter")],
)
def test_wrong_options_of_a_task_make_it_invalid(options: Any, words: str) -> None:
    with pytest.raises(InvalidTask, match=words):
        django_tasks.fail.using(delayq=options)


def test_a_task_may_raise_retry_later_if_every_alias_has_a_store_of_its_own(
    tasks_settings: Any, redis_url: str
) -> None:
    del tasks_settings.DELAYQ
    own = {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": {"REDIS": redis_url}}
    tasks_settings.TASKS = {"a": own, "b": own}
    result = django_tasks.succeed_at.using(backend="b").enqueue(2)
    worker = OneWorker("b")
    for _ in range(2):
        until(worker.step, what="the next attempt")
    result.refresh()
    assert (result.return_value, result.attempts) == (2, 2)


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("is_async", [False, True], ids=["enqueue", "aenqueue"])
def test_on_commit_is_an_option(tasks_settings: Any, signal_log: Any, is_async: bool) -> None:
    with_options(tasks_settings, ON_COMMIT=True)
    with transaction.atomic():
        result = django_tasks.add.enqueue(1)
        assert signal_log.received == []
        with pytest.raises(exceptions.TaskResultDoesNotExist):
            result.refresh()
    assert signal_log.words == ["enqueued READY"]
    assert signal_log.received[0][2] == result == django_tasks.add.get_result(result.id)
    with pytest.raises(ZeroDivisionError), transaction.atomic():
        dropped = django_tasks.add.enqueue(2)
        raise ZeroDivisionError
    with pytest.raises(exceptions.TaskResultDoesNotExist):
        dropped.refresh()
    if is_async:
        asyncio.run(django_tasks.add.aenqueue(1))
        assert signal_log.words == ["enqueued READY"] * 2


@pytest.mark.django_db(transaction=True)
def test_the_outage_of_one_store_keeps_no_jobs_of_another_back(
    tasks_settings: Any, redis_url: str, start_redis: Any
) -> None:
    server = start_redis()
    options = {"default": {"ON_COMMIT": True}, "second": {"REDIS": server.url, "ON_COMMIT": True}}
    tasks_settings.TASKS = {
        alias: {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": given} for alias, given in options.items()
    }
    ran: list[str] = []
    with pytest.raises(StoreUnavailable) as caught, transaction.atomic():
        lost = django_tasks.add.using(backend="second").enqueue(1)
        transaction.on_commit(lambda: ran.append("theirs"))
        kept = django_tasks.add.enqueue(2)
        server.kill()
    kept.refresh()
    assert ran == ["theirs"]
    assert [handle.id for handle in caught.value.unsent] == [lost.id]
    server.restart()
    caught.value.resend()
    lost.refresh()


@pytest.mark.django_db(transaction=True)
def test_a_key_that_is_refused_at_the_commit_keeps_no_other_task_back(tasks_settings: Any) -> None:
    options = {"key": lambda a, b=0: None if a == 0 else "k", "unique": "reject"}
    with_options(tasks_settings, ON_COMMIT=True, TASKS={django_tasks.add.module_path: options})
    django_tasks.add.enqueue(1)
    ran: list[str] = []
    with pytest.raises(KeyHeld), transaction.atomic():
        django_tasks.add.enqueue(1)
        transaction.on_commit(lambda: ran.append("theirs"))
        kept = django_tasks.add.enqueue(0)
    kept.refresh()
    assert ran == ["theirs"]


@pytest.mark.django_db(transaction=True)
def test_a_transaction_that_django_does_not_commit_is_refused(tasks_settings: Any) -> None:
    with_options(tasks_settings, ON_COMMIT=True)
    transaction.set_autocommit(False)
    try:
        with pytest.raises(ManualTransaction, match="ON_COMMIT"):
            django_tasks.add.enqueue(1)
    finally:
        transaction.rollback()
        transaction.set_autocommit(True)


def test_a_subclass_of_the_backend_is_recognised(tasks_settings: Any, client: Redis) -> None:
    mine = f"{Own.__module__}.{Own.__qualname__}"
    tasks_settings.TASKS = {"default": {"BACKEND": IMMEDIATE}, "a": {"BACKEND": mine}, "b": {"BACKEND": BACKEND}}
    results = [django_tasks.add.using(backend=alias).enqueue(1) for alias in ("a", "b")]
    assert {key.split(b":")[0] for key in client.keys("*:jobs")} == {b"delayq-a", b"delayq-b"}
    for result in results:
        OneWorker(result.backend).drain()
        result.refresh()
        assert result.return_value == 1


class Own(DelayQBackend):
    """A project's own subclass of the backend."""


def test_results_are_found_in_every_shard(tasks_settings: Any, client: Redis) -> None:
    tasks_settings.DELAYQ = {**tasks_settings.DELAYQ, "SHARDS": 3}
    results = [django_tasks.add.enqueue(number) for number in range(30)]
    assert {result.id.split("-")[1] for result in results} == {"0", "1", "2"}
    for shard in range(3):
        OneWorker(shard=shard).drain()
    for result in results:
        result.refresh()
        assert result.return_value == result.args[0]
    # After the number of shards changed, a retried job may be in another shard than its id says.
    store, result = get_store(), django_tasks.add.enqueue(7)
    assert store.layouts.store(store.layout.spread_over(4))
    raw_id, shard = result.id.split("-")
    assert default_task_backend.get_result(f"{raw_id}-{(int(shard) + 1) % 4}").args == [7]


def test_signed_tasks_run_and_their_results_are_found(tasks_settings: Any) -> None:
    tasks_settings.DELAYQ = {**tasks_settings.DELAYQ, "SIGN": True}
    result, failing = django_tasks.describe.using(priority=7).enqueue("a"), django_tasks.fail.enqueue()
    assert default_task_backend.get_result(result.id) == result
    assert OneWorker().drain() == 2
    result.refresh()
    failing.refresh()
    assert (result.return_value["priority"], result.return_value["given"]) == (7, ["a"])
    assert failing.errors[0].exception_class is ValueError


def test_encrypted_tasks_run_and_their_results_and_errors_are_found(tasks_settings: Any, client: Redis) -> None:
    tasks_settings.DELAYQ = {**tasks_settings.DELAYQ, "ENCRYPT": True}
    result, failing = django_tasks.describe.using(priority=7).enqueue("canary"), django_tasks.fail.enqueue()
    assert default_task_backend.get_result(result.id) == result
    assert OneWorker().drain() == 2
    result.refresh()
    failing.refresh()
    assert (result.return_value["priority"], result.return_value["given"]) == (7, ["canary"])
    assert failing.errors[0].exception_class is ValueError and failing.errors[0].traceback
    stored = everything(client)
    assert not any(word in stored for word in (b"canary", b"Traceback", b"ValueError"))


def test_a_task_whose_key_is_unknown_waits(tasks_settings: Any) -> None:
    tasks_settings.DELAYQ = {**tasks_settings.DELAYQ, "ENCRYPT": True}
    result = django_tasks.add.enqueue(1)
    tasks_settings.DELAYQ = {**tasks_settings.DELAYQ, "ENCRYPTION_KEYS": ["another key" * 3]}
    OneWorker().drain()
    tasks_settings.DELAYQ = {**tasks_settings.DELAYQ, "ENCRYPTION_KEYS": []}
    result.refresh()
    assert result.status == TaskResultStatus.READY


def test_a_forged_task_is_a_failure_and_is_not_run(tasks_settings: Any) -> None:
    result = django_tasks.add.enqueue(1)
    tasks_settings.DELAYQ = {**tasks_settings.DELAYQ, "SIGN": True}
    assert OneWorker().drain() == 1
    result.refresh()
    assert result.status == TaskResultStatus.FAILED
    assert result.errors[0].exception_class_path == "django_delayq.exceptions.BadSignature"


def test_a_django_task_can_be_enqueued_by_its_name(signal_log: Any) -> None:
    job = execute_later("mail", django_tasks.echo.module_path, [(1, 2)], delay=0)
    result = default_task_backend.get_result(job.id)
    assert (result.task.queue_name, result.args) == ("mail", [[1, 2]])
    assert signal_log.words == ["enqueued READY"]
    assert OneWorker().drain() == 1
    assert job.wait(5) == [[[1, 2]], {}]
