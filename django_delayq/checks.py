"""System checks of the DELAYQ setting and of registered tasks. They never connect to Redis."""

from contextlib import suppress
from typing import Any

from django.core.checks import CheckMessage, Error, Warning
from django.core.checks.urls import check_url_config
from django.core.exceptions import ImproperlyConfigured

from django_delayq import runtime
from django_delayq.clock import estimated_us
from django_delayq.conf.config import Config
from django_delayq.conf.exception_classes import resolve
from django_delayq.conf.redis_settings import RedisConfig, SettingError
from django_delayq.conf.settings import (
    backends,
    get_config,
    place_of,
    raw_setting,
    read_alias,
    read_config,
    separate_aliases,
)
from django_delayq.conf.spelling import did_you_mean
from django_delayq.exceptions import UnknownQueue, see
from django_delayq.middleware.chain import problem_of
from django_delayq.store.nodes.pools.cache_pool import is_of_library
from django_delayq.store.nodes.pools.configured_pool import checked_pool
from django_delayq.store.store import get_store
from django_delayq.task import registry
from django_delayq.task.recurring.declarations import declared_schedules, has_ended


def check_settings(**_: Any) -> list[CheckMessage]:
    """Report every mistake in DELAYQ, with its cure; and in the exceptions that the policies of settings name."""
    config, problems = read_config(raw_setting())
    policies: dict[str, Config | None] = {"DELAYQ['RETRY']": config}
    policies |= {f"TASKS[{alias!r}]['OPTIONS']['RETRY']": read_alias(alias)[0] for alias in backends()}
    return [*problems, *(each for name, found in policies.items() if found for each in _rules(found, name))]


def _rules(config: Config, name: str) -> list[CheckMessage]:
    given, hint = config.tasks.retry, "Name the class itself, or its own path."
    try:
        resolved = resolve(given, name=name, is_final=True)
    except ValueError as error:
        return [Error(f"{error}.", hint, id="delayq.E008")]
    # A process that imports no code of the project compares the paths of settings as they are.
    return [
        Error(f"{rule} of {name} has {path!r}, but exceptions have the path {own!r}.", hint, id="delayq.E008")
        for rule in ("retry_on", "dead_on")
        for path, own in zip(getattr(given, rule), getattr(resolved, rule), strict=True)
        if path != own
    ]


def check_redis(**_: Any) -> list[CheckMessage]:
    """Report a REDIS that the client library or a cache does not accept, and servers of a cache that have no jobs.

    Code of the project that makes connections is not called: it may ask a server for a password.
    """
    found: dict[str, RedisConfig] = {}
    for backend in (None, *separate_aliases()):
        with suppress(ImproperlyConfigured):
            # The other checks report settings that cannot be read.
            config = get_config(backend).redis
            found.setdefault(config.setting, config)
    problems: list[CheckMessage] = []
    for setting, config in found.items():
        try:
            if config.factory is None and (config.cache is None or is_of_library(config.cache)):
                checked_pool(config)
        except SettingError as error:
            problems.append(Error(str(error), hint=error.hint, id="delayq.E005"))
        else:
            if config.cache is not None and config.cache.has_several_servers:
                problems.append(
                    Warning(
                        f"{setting} names the cache {config.cache.alias!r}, which has several LOCATIONs; jobs are in "
                        f"the first one alone, {config.display_url}.",
                        hint="Jobs are read from the primary, never from replicas. If that is right, add this warning "
                        "to SILENCED_SYSTEM_CHECKS.",
                        id="delayq.W025",
                    )
                )
    return problems


def check_policies(**_: Any) -> list[CheckMessage]:
    """Report every task whose policy names an exception that does not exist, or a module that cannot be imported.

    A declaration cannot judge a path into its own module, which is not complete by then.
    """
    # Most modules that define tasks late are imported with the URLs, and checks run in no fixed order.
    check_url_config(None)
    problems: list[CheckMessage] = []
    for task in registry.tasks():
        try:
            if task.retry is not None:
                resolve(task.retry, name=f"the task {task.name}", is_final=True)
        except ValueError as error:
            hint = "Its jobs would not follow the policy, so enqueue() refuses them."
            problems.append(Error(f"{error}.", hint, id="delayq.E009"))
    return problems


def check_middleware(**_: Any) -> list[CheckMessage]:
    """Report every entry of MIDDLEWARE that names no middleware."""
    places: dict[str, str] = {}
    for backend in (None, *separate_aliases()):
        with suppress(ImproperlyConfigured):
            # The other checks report settings that cannot be read.
            for path in get_config(backend).tasks.middleware:
                places.setdefault(path, place_of("MIDDLEWARE", backend))
    return [
        Error(
            f"{place} names {path!r:.200}, {problem}.",
            hint=f"Write the path of a class with enqueue() or run(). {see('tasks/middleware')}",
            id="delayq.E020",
        )
        for path, place in places.items()
        if (problem := problem_of(path))
    ]


def check_modules(**_: Any) -> list[CheckMessage]:
    """Report tasks in modules that a worker may never import, such as views."""
    # Most such modules are imported with the URLs, and checks run in no fixed order.
    check_url_config(None)
    return [
        Warning(
            f"The task {name!r} is in a module that workers do not import by themselves.",
            hint=f"Move it to tasks.py of an app in INSTALLED_APPS, or add its module to DELAYQ['TASK_MODULES']. "
            f"{see('troubleshooting#a-task-is-unknown')}",
            id="delayq.W007",
        )
        for name in registry.late()
    ]


def check_recurring(**_: Any) -> list[CheckMessage]:
    """Report declared schedules that cannot have jobs: of an unknown task or queue, with wrong arguments, or over."""
    problems: list[CheckMessage] = []
    now_us = estimated_us(runtime.current().clock)
    for backend in (None, *separate_aliases()):
        try:
            store = get_store(backend)
        except ImproperlyConfigured:
            # The other checks report settings that cannot be read.
            continue
        place = place_of("RECURRING", backend)
        for name, task, recurring in declared_schedules(store):
            if task is None:
                problems.append(
                    Error(
                        f"{place} names the task {name!r:.200}{did_you_mean(name, registry.names())}, which this store "
                        f"does not have.",
                        hint="Write the name of a task in tasks.py of an app. Of a task of an alias in TASKS with a "
                        "store of its own, declare it in OPTIONS['RECURRING'] of the alias.",
                        id="delayq.E021",
                    )
                )
                continue
            try:
                task.check_fit(list(recurring.args), dict(recurring.kwargs or {}))
            except TypeError as error:
                problems.append(
                    Error(
                        f"The arguments of the schedule {recurring.name!r} do not fit the task {name}: {error}.",
                        hint=f"Change args or kwargs in {place}.",
                        id="delayq.E022",
                    )
                )
            try:
                store.config.tasks.check_queue(task.queue)
            except UnknownQueue as error:
                problems.append(
                    Error(
                        f"The schedule {recurring.name!r} of the task {name} can have no jobs: {error}.",
                        hint="The queue is an option of the task.",
                        id="delayq.E024",
                    )
                )
            if has_ended(recurring, now_us=now_us):
                problems.append(
                    Warning(
                        f"The schedule {recurring.name!r} of the task {name} has ended: its end is {recurring.end}.",
                        hint="Take it out of the code, or give it a later end.",
                        id="delayq.W023",
                    )
                )
    return problems
