"""Config: every key of DELAYQ, its default, its legal values, and the error for each illegal value."""

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from hypothesis import given
from hypothesis import strategies as some

from django_delayq import checks
from django_delayq.clock import DAY_US
from django_delayq.conf import settings as conf
from django_delayq.conf.config import AdminConfig, Config
from django_delayq.conf.declared_schedules import DeclaredSchedule
from django_delayq.conf.limit_rules import LimitRule
from django_delayq.conf.queue_options import NO_OPTIONS, QueueOptions
from django_delayq.conf.redis_settings import RedisConfig
from django_delayq.conf.settings import drop_config, get_config, on_config_dropped, read_config
from django_delayq.conf.validators import check_name
from django_delayq.exceptions import UnknownQueue
from django_delayq.job.retry import RetryPolicy
from django_delayq.recurring.declaration import Recurring

#: No deadline for an example: the machine may be busy.
URL = "redis://127.0.0.1:1/0"
SECOND = 1_000_000

#: Key -> its path in Config, and its default.
DEFAULTS: dict[str, tuple[str, Any]] = {
    "PREFIX": ("prefix", "delayq"),
    "SHARDS": ("shards", 1),
    "ENQUEUE_TIMEOUT": ("enqueue_timeout", 5.0),
    "ROUTE_AROUND": ("route_around", False),
    "WAIT_REPLICAS": ("wait_replicas", 0),
    "WAIT_TIMEOUT": ("wait_timeout", 1.0),
    "SIGN": ("sign", False),
    "ENCRYPT": ("encrypt", False),
    "ENCRYPTION_KEYS": ("encryption_keys", ()),
    "QUEUES": ("tasks.queues", {}),
    "LIMITS": ("tasks.limits", {}),
    "RECURRING": ("tasks.recurring", {}),
    "TASK_MODULES": ("tasks.task_modules", ()),
    "MIDDLEWARE": ("tasks.middleware", ()),
    "ON_COMMIT": ("tasks.on_commit", True),
    "RETRY": ("tasks.retry", RetryPolicy()),
    "MAX_DELAY": ("tasks.max_delay_us", 3_650 * DAY_US),
    "RESULT_TTL": ("tasks.result_ttl_us", 86_400_000_000),
    "MAX_PAYLOAD": ("tasks.max_payload", 256 * 1024),
    "LEASE": ("worker.lease_us", 30 * SECOND),
    "RELEASE": ("worker.release", ""),
    "FINISHED_KEPT": ("worker.finished_kept", 10_000),
    "GRACE": ("worker.grace_us", 25 * SECOND),
    "CONCURRENCY": ("worker.concurrency", 8),
    "UNKNOWN_TASK_TTL": ("worker.unknown_task_ttl_us", DAY_US),
    "CLAIM_BEHIND_POP": ("worker.claim_behind_pop", True),
    "RUN_IN_RUNSERVER": ("worker.run_in_runserver", False),
    "DUE_FIRST": ("dispatcher.due_first_us", 3_600 * SECOND),
    "DEAD_MAX_AGE": ("dispatcher.dead_max_age_us", 30 * DAY_US),
    "DEAD_MAX_COUNT": ("dispatcher.dead_max_count", 100_000),
    "DEAD_MAX_BYTES": ("dispatcher.dead_max_bytes", 256 * 1024 * 1024),
    "ADMIN": ("admin", AdminConfig()),
}


def value_at(config: Config, path: str) -> Any:
    found: Any = config
    for name in path.split("."):
        found = getattr(found, name)
    return found


def test_the_table_of_this_test_is_complete() -> None:
    assert {"REDIS", *DEFAULTS} == set(conf.SETTINGS)


@pytest.mark.parametrize("key", DEFAULTS)
def test_a_key_left_out_has_its_default(key: str) -> None:
    config, problems = read_config({"REDIS": URL})
    assert config and not problems
    path, default = DEFAULTS[key]
    assert value_at(config, path) == default


@pytest.mark.parametrize(
    ("key", "given", "kept"),
    [
        ("PREFIX", "shop:jobs", "shop:jobs"),
        ("PREFIX", "läden", "läden"),
        ("SHARDS", 1_000, 1_000),
        ("ENQUEUE_TIMEOUT", 0.5, 0.5),
        ("ROUTE_AROUND", True, True),
        ("WAIT_REPLICAS", 2, 2),
        ("WAIT_TIMEOUT", timedelta(milliseconds=1), 0.001),
        ("ENQUEUE_TIMEOUT", timedelta(milliseconds=10), 0.01),
        ("QUEUES", {"mail": {}, "näher dran/1": {}}, {"mail": NO_OPTIONS, "näher dran/1": NO_OPTIONS}),
        ("QUEUES", {"mail": {"fair": True}}, {"mail": QueueOptions(fair=True)}),
        ("QUEUES", {}, {}),
        ("LIMITS", {"a": {"rate": "5/s"}}, {"a": LimitRule(interval_us=200_000)}),
        ("LIMITS", {"a": {"rate": "100/s"}}, {"a": LimitRule(interval_us=10_000, burst=10)}),
        ("LIMITS", {"a": {"rate": "970/s"}}, {"a": LimitRule(interval_us=1_000_000 / 970, burst=97)}),
        ("LIMITS", {"a": {"rate": "2/d", "burst": 2}}, {"a": LimitRule(interval_us=DAY_US / 2, burst=2)}),
        ("LIMITS", {"ä/1": {"max_running": 3}}, {"ä/1": LimitRule(max_running=3)}),
        ("LIMITS", {}, {}),
        (
            "RECURRING",
            {"a": {"task": "shop.report", "every": 60, "args": [1]}},
            {"a": DeclaredSchedule(task="shop.report", recurring=Recurring("a", every=60, args=[1]))},
        ),
        ("ADMIN", {"READ_ONLY": True, "VIEW_PERMISSION": "a.b"}, AdminConfig(read_only=True, view_permission="a.b")),
        ("ADMIN", {"REDACT": "iban"}, AdminConfig(redact=re.compile("iban", re.IGNORECASE))),
        ("TASK_MODULES", ["shop.jobs"], ("shop.jobs",)),
        ("TASK_MODULES", (), ()),
        ("MIDDLEWARE", ["shop.middleware.Timing", "no.such.Class"], ("shop.middleware.Timing", "no.such.Class")),
        ("ON_COMMIT", False, False),
        ("SIGN", True, True),
        ("ENCRYPT", True, True),
        ("ENCRYPTION_KEYS", ["k" * 32, "l" * 40], ("k" * 32, "l" * 40)),
        ("CLAIM_BEHIND_POP", False, False),
        ("RUN_IN_RUNSERVER", True, True),
        ("RETRY", RetryPolicy(max_attempts=1), RetryPolicy(max_attempts=1)),
        ("MAX_DELAY", timedelta(days=1), DAY_US),
        ("MAX_DELAY", 60, 60 * SECOND),
        ("MAX_PAYLOAD", 1_024, 1_024),
        ("MAX_PAYLOAD", 8 * 1024 * 1024, 8 * 1024 * 1024),
        ("LEASE", 1, SECOND),
        ("LEASE", timedelta(minutes=5), 300 * SECOND),
        ("RELEASE", "2026.7-a1b2c3", "2026.7-a1b2c3"),
        ("RELEASE", "", ""),
        ("FINISHED_KEPT", 0, 0),
        ("FINISHED_KEPT", 10_000, 10_000),
        ("GRACE", 0, 0),
        ("GRACE", 0.1, 100_000),
        ("UNKNOWN_TASK_TTL", 0, 0),
        ("UNKNOWN_TASK_TTL", timedelta(hours=1), 3_600 * SECOND),
        ("CONCURRENCY", 1, 1),
        ("CONCURRENCY", 10_000, 10_000),
        ("DUE_FIRST", 0, 0),
        ("DUE_FIRST", timedelta(hours=2), 7_200 * SECOND),
        ("DEAD_MAX_AGE", timedelta(days=1), DAY_US),
        ("DEAD_MAX_COUNT", 0, 0),
        ("DEAD_MAX_BYTES", 0, 0),
    ],
)
def test_a_legal_value_is_kept(key: str, given: Any, kept: Any) -> None:
    config, problems = read_config({"REDIS": URL, key: given})
    assert problems == [] and config
    assert value_at(config, DEFAULTS[key][0]) == kept


def test_the_lease_is_the_same_for_worker_and_dispatcher() -> None:
    config, _ = read_config({"REDIS": URL, "LEASE": 4})
    assert config and config.worker.lease_us == config.dispatcher.lease_us == 4 * SECOND
    assert config.dispatcher.sweep_us == 2 * SECOND
    config, _ = read_config({"REDIS": URL})
    assert config and config.dispatcher.sweep_us == 5 * SECOND


DURATIONS = (
    "ENQUEUE_TIMEOUT",
    "WAIT_TIMEOUT",
    "MAX_DELAY",
    "LEASE",
    "GRACE",
    "UNKNOWN_TASK_TTL",
    "DUE_FIRST",
    "DEAD_MAX_AGE",
)
NUMBERS = ("SHARDS", "FINISHED_KEPT", "MAX_PAYLOAD", "CONCURRENCY", "DEAD_MAX_COUNT", "DEAD_MAX_BYTES")
NOT_DURATIONS = ["5", b"5", None, True, -1, float("nan"), float("inf"), 1e308, timedelta(-1), [1]]
NOT_NUMBERS = ["5", None, True, -1, 1.0, 10**18, timedelta(1)]


@pytest.mark.parametrize(
    ("key", "given"),
    [
        *((key, given) for key in DURATIONS for given in NOT_DURATIONS),
        *((key, given) for key in NUMBERS for given in NOT_NUMBERS),
        *((key, given) for key in ("PREFIX",) for given in ("", None, 5, b"x", "x" * 201)),
        *(("PREFIX", f"a{character}b") for character in "{}*?[]\\ \r\n\0\x1b\u2028"),
        *(("RELEASE", given) for given in (None, 5, b"x", "x" * 201)),
        ("FINISHED_KEPT", 10_001),
        ("SHARDS", 0),
        ("SHARDS", 1_001),
        ("ENQUEUE_TIMEOUT", 0),
        ("ROUTE_AROUND", 1),
        ("WAIT_REPLICAS", -1),
        ("WAIT_REPLICAS", 1.5),
        ("WAIT_TIMEOUT", 0),
        ("ENQUEUE_TIMEOUT", 0.009),
        ("QUEUES", None),
        ("QUEUES", ["mail"]),
        ("QUEUES", "mail"),
        ("QUEUES", {"": {}}),
        ("QUEUES", {"x" * 201: {}}),
        ("QUEUES", {5: {}}),
        ("QUEUES", {"mail": None}),
        ("QUEUES", {"mail": {"fiar": True}}),
        *(
            ("LIMITS", given)
            for given in (None, ["a"], "a", {"": {}}, {"x" * 201: {}}, {5: {}}, {"a": None}, {"a": {}})
        ),
        *(("LIMITS", {"a": {"rate": rate}}) for rate in (5, "5", "0/s", "5/w", "-1/s", "1.5/s", "10001/s", "5/s ")),
        *(("LIMITS", {"a": {"max_running": most}}) for most in (0, -1, True, "5", 1.0, 10**7)),
        *(("LIMITS", {"a": {"rate": "5/s", "burst": burst}}) for burst in (0, True, "5", 10**7)),
        ("LIMITS", {"a": {"max_running": 1, "burst": 5}}),
        ("LIMITS", {"a": {"rate": "5/s", "bust": 5}}),
        *(
            ("RECURRING", given)
            for given in (None, ["a"], {"": {}}, {"a": None}, {"a": {"every": 5}}, {"a": {"task": "shop.report"}})
        ),
        *(("RECURRING", {"a": {"task": task, "every": 5}}) for task in (None, "", 5, ["shop.report"])),
        ("RECURRING", {"a": {"task": "shop.report", "every": 0}}),
        ("RECURRING", {"a": {"task": "shop.report", "crom": "* * * * *"}}),
        ("TASK_MODULES", "shop.jobs"),
        ("TASK_MODULES", None),
        ("TASK_MODULES", 5),
        ("TASK_MODULES", [5]),
        *(
            ("MIDDLEWARE", given)
            for given in (None, 5, "shop.A", [5], ["A"], [""], ["shop.A", "shop.A"], {"shop.A": {}})
        ),
        *(
            (key, given)
            for key in ("ON_COMMIT", "SIGN", "ENCRYPT", "CLAIM_BEHIND_POP", "RUN_IN_RUNSERVER")
            for given in (0, 1, None, "yes")
        ),
        *(("ENCRYPTION_KEYS", given) for given in (None, "k" * 40, [5], ["k" * 31], [b"k" * 40], {"k" * 40: 1})),
        *(("RETRY", given) for given in (3, None, {"max_attempts": 3}, RetryPolicy)),
        ("MAX_DELAY", 0),
        ("MAX_PAYLOAD", 1_023),
        ("MAX_PAYLOAD", 8 * 1024 * 1024 + 1),
        ("LEASE", 0.999_999),
        ("LEASE", 0),
        ("CONCURRENCY", 0),
        ("CONCURRENCY", 10_001),
        ("DEAD_MAX_AGE", 0),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_an_illegal_value_is_one_problem_that_names_its_key(key: str, given: Any) -> None:
    config, problems = read_config({"REDIS": URL, key: given})
    assert config is None
    [problem] = problems
    assert problem.id == "delayq.E006" and problem.hint
    assert key in problem.msg and len(problem.msg) < 400
    assert problem.msg.isprintable()


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("LAESE", "LEASE"),
        ("lease", None),
        ("CONCURENCY", "CONCURRENCY"),
        ("QUEUE", "QUEUES"),
        ("MAX_DELAYS", "MAX_DELAY"),
        ("TASKS_MODULE", "TASK_MODULES"),
        ("xyzzy", None),
        (5, None),
        (None, None),
        ("LIMIT", "LIMITS"),
        ("WAIT_REPLICA", "WAIT_REPLICAS"),
        ("SIGNS", "SIGN"),
        ("RESULTS_TTL", "RESULT_TTL"),
        ("ADMINS", "ADMIN"),
    ],
)
def test_an_unknown_key_is_a_problem_that_suggests_the_nearest_key(wrong: Any, right: str | None) -> None:
    config, problems = read_config({"REDIS": URL, wrong: 1})
    assert config is None
    [problem] = problems
    assert problem.id == "delayq.E004" and repr(wrong) in problem.msg
    assert "CONCURRENCY" in problem.hint
    if right:
        assert f"did you mean {right!r}" in problem.msg


@pytest.mark.parametrize("key", ["TIMEOUT", "HARD_TIMEOUT", "TIME_LIMIT", "SOFT_TIME_LIMIT"])
def test_a_time_limit_is_no_setting_but_an_option_of_tasks(key: str) -> None:
    config, [problem] = read_config({"REDIS": URL, key: 60})
    assert config is None and problem.id == "delayq.E004" and "did you mean" not in problem.msg
    assert f"unknown key '{key}': time limits belong to tasks, as @delayed_task(timeout=…" in problem.msg


@pytest.mark.parametrize("given", ["redis://x", ["REDIS"], 5, True, b"x"])
def test_a_setting_that_is_not_a_dict_is_a_problem(given: Any) -> None:
    config, [problem] = read_config(given)
    assert config is None and problem.id == "delayq.E002" and type(given).__name__ in problem.msg


def test_a_missing_setting_is_a_problem(settings: Any) -> None:
    # Deletion sends no setting_changed, so the change to None must drop the Config.
    settings.DELAYQ = None
    del settings.DELAYQ
    [error] = checks.check_settings()
    assert error.id == "delayq.E001" and error.hint and "DELAYQ" in error.msg
    with pytest.raises(ImproperlyConfigured, match=r"DELAYQ setting is missing.*DELAYQ = \{'REDIS'"):
        get_config()


def test_redis_is_required() -> None:
    config, [problem] = read_config({})
    assert config is None and problem.id == "delayq.E003" and "URL" in problem.hint


def test_every_mistake_is_reported_at_once(settings: Any) -> None:
    settings.DELAYQ = {"LEASE": 0, "SHARDS": "2", "LAESE": 5, "PREFIX": ""}
    errors = checks.check_settings()
    assert sorted(str(error.id) for error in errors) == ["delayq.E003", "delayq.E004", *["delayq.E006"] * 3]
    assert all(error.hint for error in errors)
    with pytest.raises(ImproperlyConfigured, match=r"DELAYQ"):
        get_config()


def test_a_sound_setting_has_no_check_errors(settings: Any) -> None:
    settings.DELAYQ = {"REDIS": URL}
    assert checks.check_settings() == []


def test_a_changed_setting_is_read_again(settings: Any) -> None:
    settings.DELAYQ = {"REDIS": URL}
    first = get_config()
    assert get_config() is first
    settings.DELAYQ = {"REDIS": URL, "LEASE": 5}
    assert get_config().worker.lease_us == 5 * SECOND


def test_objects_built_from_a_config_are_dropped_with_it(settings: Any) -> None:
    dropped: list[int] = []

    def drop() -> None:
        dropped.append(1)

    on_config_dropped.append(drop)
    try:
        settings.DELAYQ = {"REDIS": URL}
        settings.LANGUAGE_CODE = "de"
        assert dropped == [1]
        drop_config()
        assert dropped == [1, 1]
    finally:
        on_config_dropped.remove(drop)


def test_a_config_is_frozen_and_shows_no_secret() -> None:
    secret = {"ENCRYPTION_KEYS": ["canary" * 6]}
    config, _ = read_config({"REDIS": "redis://user:canary@127.0.0.1:1/0", **secret})
    assert config and isinstance(config.redis, RedisConfig)
    _, problems = read_config({"REDIS": URL, "ENCRYPTION_KEYS": ["canary"]})
    assert "canary" not in repr(problems)
    assert "canary" not in repr(config) and "user" not in repr(config)
    with pytest.raises(AttributeError):
        config.shards = 2  # type: ignore[misc]


@pytest.fixture
def queues(settings: Any) -> Iterator[Config]:
    settings.DELAYQ = {"REDIS": URL, "QUEUES": {"mail": {}, "bulk": {}}}
    yield get_config()


def test_an_undeclared_queue_is_refused_and_the_nearest_suggested(queues: Config) -> None:
    assert queues.tasks.check_queue("mail") == "mail"
    with pytest.raises(UnknownQueue, match=r"'mial' is not declared .*did you mean 'mail'.*declare") as caught:
        queues.tasks.check_queue("mial")
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("value", ["x", "a/b:c{d}*", "\0", "\ud800", " ", "%2F", "é" * 100, "x" * 200])
def test_any_text_up_to_200_bytes_is_a_name(value: str) -> None:
    assert check_name(value, name="queue") == value


@pytest.mark.parametrize("value", ["", "x" * 201, "é" * 101, b"x", None, 5, ["mail"], True])
def test_other_values_are_not_names(value: Any) -> None:
    with pytest.raises(ValueError, match="queue must be"):
        check_name(value, name="queue")


json_like = some.none() | some.booleans() | some.integers() | some.floats() | some.text() | some.binary()


@given(
    some.dictionaries(
        some.sampled_from([*DEFAULTS, "OTHER"]), json_like | some.lists(json_like) | some.timedeltas(), max_size=4
    )
)
def test_any_value_is_either_kept_or_a_problem(given: dict[str, Any]) -> None:
    config, problems = read_config({"REDIS": URL, **given})
    assert (config is None) == bool(problems)
