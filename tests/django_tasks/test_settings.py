"""Settings: R1 to R6, R36, OPTIONS beyond the contract, and options that cannot work."""

import asyncio
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.test import override_settings
from redis import Redis

from django_delayq import RetryPolicy, execute_later, get_job, get_store
from django_delayq.backend.backend import DelayQBackend, DelayQTask
from django_delayq.conf.settings import get_config
from django_delayq.exceptions import KeyHeld, ManualTransaction, StoreUnavailable
from django_delayq.task import registry
from tests.django_tasks.compat import (
    IMMEDIATE,
    NAME,
    InvalidTask,
    InvalidTaskBackend,
    TaskResultStatus,
    default_task_backend,
    exceptions,
    task,
    task_backends,
)
from tests.django_tasks.conftest import BACKEND, with_options
from tests.django_tasks.worker import OneWorker
from tests.sample_app import django_tasks
from tests.subprocesses import until

ROOT = Path(__file__).parent.parent.parent


def messages(prefix: str = "delayq.") -> list[Any]:
    """Return the messages of the backend's check, as Django's registered check runs it."""
    return [message for message in default_task_backend.check() if str(message.id).startswith(prefix)]


def run_python(code: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a new process."""
    return subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


ALONE = """
import sys
sys.modules[{hidden!r}] = None
import django
from django.conf import settings
settings.configure(SECRET_KEY="x", INSTALLED_APPS=["django_delayq"], DELAYQ={{"REDIS": "redis://127.0.0.1:1"}},
    TASKS={{"default": {{"BACKEND": {backend!r}}}}} if {used} else {{}})
django.setup()
"""


def test_r01_one_file_imports_either_framework_and_the_new_name_wins() -> None:
    package = ROOT / "django_delayq"
    naming = {
        path.name
        for path in package.rglob("*.py")
        if "django_tasks" in path.read_text() or "from django.tasks" in path.read_text()
    }
    assert naming == {"compat.py"}
    assert DelayQBackend.__mro__[1].__module__.startswith(f"{NAME}.")


def test_r01_exceptions_are_those_of_the_installed_framework() -> None:
    from django_delayq.backend import compat

    assert compat.InvalidTask is InvalidTask
    assert compat.TaskResultDoesNotExist is exceptions.TaskResultDoesNotExist


def test_r02_the_backport_is_not_needed_where_django_has_tasks() -> None:
    hidden = "django_tasks" if NAME == "django.tasks" else "nothing_of_the_sort"
    ran = run_python(
        ALONE.format(hidden=hidden, backend=BACKEND, used=NAME == "django.tasks")
        + "from django_delayq import delayed_task; import django_delayq.task.handle\n"
        "assert 'django_tasks' not in {name for name, module in sys.modules.items() if module}\n"
    )
    assert ran.returncode == 0, ran.stderr


def test_r02_without_either_framework_delayed_tasks_still_work() -> None:
    code = ALONE.format(hidden="django_tasks", backend=BACKEND, used=False).replace(
        "import django\n", "sys.modules['django.tasks'] = None\nimport django\n"
    )
    ran = run_python(code + "from django_delayq import delayed_task, get_store; get_store()\n")
    assert ran.returncode == 0, ran.stderr
    ran = run_python(code + "import django_delayq.backend.backend\n")
    assert "pip install 'django-delayq[compat]'" in ran.stderr


def test_r15_the_backend_is_imported_before_any_model_can_be() -> None:
    ran = run_python(
        ALONE.format(hidden="nothing_of_the_sort", backend=BACKEND, used=True).replace("django.setup()\n", "")
        + "import django_delayq.backend.backend\nfrom django.apps import apps\nassert not apps.apps_ready\n"
    )
    assert ran.returncode == 0, ran.stderr


def test_r03_tasks_of_either_framework_are_accepted(tasks_settings: Any) -> None:
    import django_tasks as backport
    from django_tasks.base import Task

    # A project may have both: a task made by the backport's own backend and enqueued with this one.
    with override_settings(TASKS={"default": {"BACKEND": "django_tasks.backends.immediate.ImmediateBackend"}}):
        foreign = backport.task(django_tasks.add.func)
    assert type(foreign) is Task
    result = default_task_backend.enqueue(foreign, (1,), {"b": 2})
    OneWorker().drain()
    result.refresh()
    assert result.return_value == 3


def test_r04_making_a_backend_touches_nothing_and_pools_are_shared(tasks_settings: Any) -> None:
    tasks_settings.DELAYQ = {"REDIS": "redis://127.0.0.1:1"}
    made: list[Any] = []
    threads = [threading.Thread(target=lambda: made.append(task_backends["default"])) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(each) for each in made}) == 8
    assert len({id(get_store(each.alias)) for each in made}) == 1


def test_r04_a_child_of_a_fork_enqueues_over_connections_of_its_own(tasks_settings: Any) -> None:
    results = [django_tasks.add.enqueue(0)]
    child = os.fork()
    if child == 0:
        for number in range(20):
            django_tasks.add.enqueue(number)
        os._exit(0)
    results += [django_tasks.add.enqueue(number) for number in range(20)]
    assert os.waitpid(child, 0)[1] == 0
    assert OneWorker().drain() == 41
    for result in results:
        result.refresh()
        assert result.return_value == result.args[0]


def test_r05_nothing_survives_a_change_of_tasks(tasks_settings: Any, client: Redis) -> None:
    first = task_backends["default"]
    django_tasks.noop.using(backend="second").enqueue()
    before = get_store("second")
    with override_settings(
        TASKS={"default": {"BACKEND": BACKEND}, "second": {"BACKEND": BACKEND, "OPTIONS": {"PREFIX": "own"}}}
    ):
        assert task_backends["default"] is not first
        assert get_store("second").config.prefix == "own"
        django_tasks.noop.using(backend="second").enqueue()
    assert get_store("second").config.prefix == "delayq-second"
    assert get_store("second") is not before
    assert {key.split(b":")[0] for key in client.keys("*:jobs")} == {b"delayq-second", b"own"}


def test_an_unknown_alias_and_a_missing_backend_are_djangos_errors(tasks_settings: Any) -> None:
    with pytest.raises(InvalidTaskBackend):
        django_tasks.noop.using(backend="third")
    tasks_settings.TASKS = {**tasks_settings.TASKS, "lost": {"BACKEND": "does.not.Exist"}}
    with pytest.raises(InvalidTaskBackend):
        django_tasks.noop.using(backend="lost")
    assert django_tasks.noop.enqueue().backend == "default"


def test_r36_a_good_configuration_has_no_messages(tasks_settings: Any) -> None:
    assert list(default_task_backend.check()) == []
    policy = {"retry": RetryPolicy(), "timeout": 5, "key": "k", "unique": "reject", "hard_timeout": 9}
    tasks = {django_tasks.add.module_path: policy, django_tasks.fail.module_path: {}}
    with_options(tasks_settings, TASKS=tasks, ON_COMMIT=True, RETRY=RetryPolicy(), RESULT_TTL=60, MAX_PAYLOAD=2048)
    assert list(default_task_backend.check()) == []


def test_r36_checks_do_not_connect_to_redis(tasks_settings: Any) -> None:
    tasks_settings.DELAYQ = {"REDIS": "redis://192.0.2.1:1"}
    for alias in ("default", "second"):
        assert list(task_backends[alias].check()) == []


@pytest.mark.parametrize(
    ("options", "number", "words"),
    [
        ([], "E010", "must be a dict, got list"),
        ({"REDIS": "redis://h"}, "E011", "'REDIS', which is DELAYQ's"),
        ({"RETYR": 1}, "E011", "'RETYR'"),
        ({"ON_COMMIT": "yes"}, "E012", "True or False"),
        ({"RESULT_TTL": 0}, "E006", "RESULT_TTL.* at least 1 s"),
        ({"MAX_PAYLOAD": "much"}, "E006", "MAX_PAYLOAD.* whole number"),
        ({"RETRY": 3}, "E006", "RETRY.*RetryPolicy"),
        ({"TASKS": ["a"]}, "E013", "dict of paths"),
        ({"TASKS": {"tests.sample_app.django_tasks.add": 3}}, "E013", "must be a dict of retry"),
        ({"TASKS": {"tests.sample_app.django_tasks.add": {"retyr": 3}}}, "E013", "did you mean 'retry'"),
        ({"TASKS": {"tests.sample_app.django_tasks.add": {"retry": 3}}}, "E013", "'retry'.*RetryPolicy"),
        ({"TASKS": {"tests.sample_app.django_tasks.add": {"timeout": 0}}}, "E013", "'timeout'.* more than 0"),
        (
            {"TASKS": {"tests.sample_app.django_tasks.add": {"timeout": "long"}}},
            "E013",
            "'timeout'.* number of seconds",
        ),
        (
            {"TASKS": {"tests.sample_app.django_tasks.add": {"timeout": 9, "hard_timeout": 5}}},
            *("E013", "'hard_timeout'.* not be shorter than .*'timeout'"),
        ),
        ({"TASKS": {"tests.sample_app.django_tasks.add": {"key": 3}}}, "E013", "'key'.* string"),
        ({"TASKS": {"tests.sample_app.django_tasks.add": {"unique": "yes"}}}, "E013", "'unique'.* 'keep' or 'reject'"),
        (
            {"TASKS": {"tests.sample_app.django_tasks.ad": {}}},
            "W014",
            "did you mean 'tests.sample_app.django_tasks.add'",
        ),
        ({"TASKS": {3: {}}}, "W014", "names 3, which is no @task"),
    ],
)
def test_r36_options_that_cannot_work_have_an_id_and_a_reason(
    tasks_settings: Any, options: Any, number: str, words: str
) -> None:
    with_options(tasks_settings)
    tasks_settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": options}}
    [found] = default_task_backend.check()
    assert found.id == f"delayq.{number}"
    assert found.level == (checks.WARNING if number.startswith("W") else checks.ERROR)
    assert re.search(words, found.msg)
    if found.level == checks.ERROR:
        # The same error in a process that runs no checks, such as a web process.
        with pytest.raises(ImproperlyConfigured, match=words):
            default_task_backend.enqueue(django_tasks.noop, [], {})
    else:
        assert default_task_backend.enqueue(django_tasks.noop, [], {}).id


def test_r36_mistakes_of_an_alias_with_a_store_of_its_own_name_the_alias(tasks_settings: Any) -> None:
    second = {"BACKEND": BACKEND, "OPTIONS": {"LAESE": 1, "CONCURRENCY": 0, "REDIS": "redsi://localhost"}}
    tasks_settings.TASKS = {**tasks_settings.TASKS, "second": second}
    found = list(task_backends["second"].check())
    assert {message.id for message in found} == {"delayq.E004", "delayq.E005", "delayq.E006"}
    assert all("TASKS['second']['OPTIONS']" in message.msg and "DELAYQ" not in message.msg for message in found)


def test_r36_mistakes_that_an_alias_takes_over_from_delayq_name_delayq(tasks_settings: Any) -> None:
    second = {"BACKEND": BACKEND, "OPTIONS": {"CONCURRENCY": 2}}
    tasks_settings.TASKS = {**tasks_settings.TASKS, "second": second}
    tasks_settings.DELAYQ = {"REDIS": "redsi://localhost", "LEASE": 0}
    assert list(task_backends["second"].check()) == []
    with pytest.raises(ImproperlyConfigured, match=r"^DELAYQ\['REDIS'\] is a URL of an unknown scheme"):
        get_config("second")


def test_r36_what_a_callable_of_an_alias_returns_is_named_after_the_alias(tasks_settings: Any) -> None:
    second = {"BACKEND": BACKEND, "OPTIONS": {"REDIS": lambda: "redsi://localhost"}}
    tasks_settings.TASKS = {**tasks_settings.TASKS, "second": second}
    with pytest.raises(ImproperlyConfigured, match=r"^TASKS\['second'\]\['OPTIONS'\]\['REDIS'\] cannot be used"):
        get_store("second").shards[0].client.ping()


def test_r36_two_aliases_with_one_store_are_an_error(tasks_settings: Any, redis_url: str) -> None:
    second = {"BACKEND": BACKEND, "OPTIONS": {"PREFIX": "delayq"}}
    tasks_settings.TASKS = {**tasks_settings.TASKS, "second": second}
    [found] = task_backends["second"].check()
    assert found.id == "delayq.E015"
    assert "'default'" in found.msg


def test_tasks_in_modules_that_workers_need_not_import_cause_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    from django_delayq.checks import check_modules

    monkeypatch.setattr(registry, "_late", set())
    assert check_modules() == []
    known = dict(registry._tasks)
    known.pop(django_tasks.add.module_path, None)
    monkeypatch.setattr(registry, "_tasks", known)
    task(django_tasks.add.func)
    [found] = check_modules()
    assert found.id == "delayq.W007"
    assert django_tasks.add.module_path in found.msg


# Beyond the contract


def test_a_retry_policy_of_options_is_that_of_the_alias(tasks_settings: Any) -> None:
    with_options(tasks_settings, RETRY=django_tasks.PATIENT)
    result = django_tasks.fail.enqueue()
    worker = OneWorker()
    for _ in range(3):
        until(worker.step, what="the next attempt")
    result.refresh()
    assert (result.status, result.attempts) == (TaskResultStatus.FAILED, 3)


def test_a_time_limit_of_options_ends_a_task(tasks_settings: Any, tmp_path: Path) -> None:
    with_options(tasks_settings, TASKS={django_tasks.wait_for.module_path: {"timeout": 0.05}})
    os.environ["DELAYQ_TEST_LEDGER"] = str(tmp_path / "ledger")
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


def test_signed_tasks_run_and_their_results_are_found(tasks_settings: Any) -> None:
    tasks_settings.DELAYQ = {**tasks_settings.DELAYQ, "SIGN": True}
    result, failing = django_tasks.describe.using(priority=7).enqueue("a"), django_tasks.fail.enqueue()
    assert default_task_backend.get_result(result.id) == result
    assert OneWorker().drain() == 2
    result.refresh()
    failing.refresh()
    assert (result.return_value["priority"], result.return_value["given"]) == (7, ["a"])
    assert failing.errors[0].exception_class is ValueError


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
