"""Settings of the backend: R4, R5 and R36: making a backend, changing TASKS, and what cannot work."""

import os
import re
import threading
from typing import Any

import pytest
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.test import override_settings
from redis import Redis

from django_delayq import RetryPolicy, get_store
from django_delayq.conf.settings import get_config
from django_delayq.task import registry
from tests.django_tasks.compat import (
    InvalidTaskBackend,
    default_task_backend,
    task,
    task_backends,
)
from tests.django_tasks.conftest import BACKEND, with_options
from tests.django_tasks.worker import OneWorker
from tests.sample_app import django_tasks


def messages(prefix: str = "delayq.") -> list[Any]:
    """Return the messages of the backend's check, as Django's registered check runs it."""
    return [message for message in default_task_backend.check() if str(message.id).startswith(prefix)]


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
        (
            {"TASKS": {"tests.sample_app.django_tasks.add": {"unique": "yes"}}},
            "E013",
            "'unique'.* 'keep', 'reject' or 'replace'",
        ),
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
    with pytest.raises(
        ImproperlyConfigured, match=r"^TASKS\['second'\]\['OPTIONS'\]\['REDIS'\] is a URL of an unknown"
    ):
        get_store("second").shards[0].client.ping()


def test_r36_two_aliases_with_one_store_are_an_error(tasks_settings: Any, redis_url: str) -> None:
    second = {"BACKEND": BACKEND, "OPTIONS": {"PREFIX": "delayq"}}
    tasks_settings.TASKS = {**tasks_settings.TASKS, "second": second}
    [found] = task_backends["second"].check()
    assert found.id == "delayq.E015"
    assert "'default'" in found.msg


def test_tasks_in_modules_that_workers_need_not_import_cause_a_warning(registered: Any) -> None:
    from django_delayq.checks import check_modules

    assert check_modules() == []
    known = dict(registry._tasks)
    known.pop(django_tasks.add.module_path, None)
    registered(known)
    task(django_tasks.add.func)
    [found] = check_modules()
    assert found.id == "delayq.W007"
    assert django_tasks.add.module_path in found.msg
