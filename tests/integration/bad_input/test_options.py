"""Options of a task: bad names, queues, keys and other options, in every call that accepts them."""

import math
from collections.abc import Callable
from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from redis import Redis

from django_delayq import RetryPolicy, delayed_task, execute_later
from django_delayq.exceptions import (
    DelayQError,
    InvalidDelay,
    InvalidMoment,
    KeyHeld,
    PayloadNotSerializable,
    PayloadTooLarge,
    UnknownQueue,
    UnknownTask,
)
from tests.inspection import inspection
from tests.integration.bad_input.refusals import NAME, narrow, narrow_async, refused
from tests.sample_app.tasks import noop


@pytest.mark.parametrize("name", ["tests.sample_app.tasks.nop", "os.system", "", "x" * 2_000, None, 5, b"x"])
def test_an_unregistered_task_is_refused(name: Any) -> None:
    refused(UnknownTask, LookupError, "No task is registered", lambda: execute_later("mail", name, []))


@pytest.mark.parametrize("args", ["abc", b"abc", {"a": 1}])
def test_arguments_of_execute_later_must_be_a_list(args: Any) -> None:
    with pytest.raises(TypeError, match="args must be a list of positional arguments"):
        execute_later("mail", NAME, args)


@pytest.mark.parametrize("args", [5, None])
def test_arguments_of_execute_later_must_be_iterable(args: Any) -> None:
    with pytest.raises(TypeError):
        execute_later("mail", NAME, args)


def test_two_functions_with_one_name_are_refused(own_registry: None) -> None:
    delayed_task(name="shop.remind")(narrow)
    with pytest.raises(ImproperlyConfigured, match=r"narrow.*narrow_async.*Rename"):
        delayed_task(name="shop.remind")(narrow_async)


class Shop:
    def remind(self) -> None: ...


@pytest.mark.parametrize("func", [lambda: None, Shop.remind, Shop, len, 5])
def test_an_object_that_cannot_be_a_task_is_refused(func: Any, own_registry: None) -> None:
    for decorate in (delayed_task, delayed_task(queue="mail")):
        with pytest.raises(ImproperlyConfigured, match="@delayed_task"):
            decorate(func)


QUEUES: dict[str, Callable[[Any], Any]] = {
    "using": lambda queue: noop.using(queue=queue).enqueue(),
    "queue_name": lambda queue: noop.using(queue_name=queue).enqueue(),
    "execute_later": lambda queue: execute_later(queue, NAME, []),
    "decorator": lambda queue: delayed_task(queue=queue)(narrow),
}


@pytest.mark.parametrize("call", QUEUES)
@pytest.mark.parametrize("queue", ["", "x" * 201, "é" * 101, 5, b"mail", True, ["mail"]], ids=lambda q: repr(q)[:9])
def test_a_bad_queue_name_is_refused(call: str, queue: Any, own_registry: None) -> None:
    with pytest.raises(ValueError, match="queue must be .*, got"):
        QUEUES[call](queue)


@pytest.mark.parametrize("call", ["execute_later", "decorator"])
def test_none_is_refused_if_a_queue_is_required(call: str, own_registry: None) -> None:
    with pytest.raises(ValueError, match="queue must be .*, got"):
        QUEUES[call](None)


@pytest.mark.parametrize("call", ["using", "queue_name", "execute_later"])
def test_an_undeclared_queue_is_refused(call: str, delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "QUEUES": {"default": {}, "mail": {}}}
    words = "queue 'mial' is not declared.*did you mean 'mail'"
    refused(UnknownQueue, ValueError, words, lambda: QUEUES[call]("mial"))


def test_a_task_with_an_undeclared_queue_is_refused(delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "QUEUES": {"mail": {}}}
    refused(UnknownQueue, ValueError, "'default' is not declared", noop.enqueue)


def test_two_queues_for_one_job_are_refused() -> None:
    with pytest.raises(TypeError, match="queue and queue_name"):
        noop.using(queue="a", queue_name="b")


@pytest.mark.parametrize("key", ["", "x" * 201, 5, b"k", True, ("k", 1)], ids=lambda key: repr(key)[:9])
def test_a_bad_key_is_refused(key: Any) -> None:
    for act in (lambda: noop.using(key=key).enqueue(), lambda: noop.get_job(key=key)):
        with pytest.raises(ValueError, match="key must be .*, got"):
            act()


@pytest.mark.parametrize("unique", ["overwrite", "KEEP", "", 5, True])
def test_an_unknown_mode_of_unique_is_refused(unique: Any) -> None:
    with pytest.raises(ValueError, match="unique must be 'keep', 'reject' or 'replace'"):
        noop.using(key="k", unique=unique).enqueue()


def test_the_key_of_a_live_job_can_be_refused(client: Redis) -> None:
    holder = noop.using(key="k").after(60).enqueue()
    before = sorted((key, client.type(key)) for key in client.scan_iter())
    error = refused(KeyHeld, ValueError, rf"'k'.*{holder.id}", noop.using(key="k", unique="reject").enqueue)
    assert isinstance(error, KeyHeld) and error.holder == holder.id
    assert sorted((key, client.type(key)) for key in client.scan_iter()) == before
    assert inspection().counts().scheduled == {"default": 1}
    client.flushall()


@pytest.mark.parametrize("number", [0, -1, True, 1_001, "3", 2.0])
def test_max_attempts_must_be_a_positive_whole_number(number: Any) -> None:
    with pytest.raises(ValueError, match=r"max_attempts must be .*, got"):
        RetryPolicy(max_attempts=number)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"retry": 3}, "retry must be a RetryPolicy, got int"),
        ({"retry": {"max_attempts": 3}}, "retry must be a RetryPolicy, got dict"),
        ({"priority": 101}, "priority must be -100 to 100.*got 101"),
        ({"priority": -101}, "priority must be -100 to 100"),
        ({"priority": True}, "priority must be a whole number"),
        ({"priority": 1.0}, "priority must be a whole number"),
        ({"priority": "1"}, "priority must be a whole number"),
        ({"timeout": 0}, "timeout must be more than 0"),
        ({"timeout": -1}, "timeout must not be negative"),
        ({"timeout": math.nan}, "timeout must be a finite"),
        ({"hard_timeout": 0}, "hard_timeout must be more than 0"),
        ({"timeout": 60, "hard_timeout": 30}, "hard_timeout must not be shorter"),
    ],
    ids=repr,
)
def test_options_that_cannot_work_are_refused(options: Any, words: str, own_registry: None) -> None:
    for act in (lambda: noop.using(**options), lambda: delayed_task(**options)(narrow)):
        with pytest.raises(ValueError, match=words):
            act()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("ValueErrr", "has 'ValueErrr', which is no builtin exception"),
        (
            "no_such_package.Error",
            "there is no module 'no_such_package' here; correct the path, or install the package",
        ),
        ("json.decoder.JSONDecodeErrr", r"json.decoder has no 'JSONDecodeErrr' \(did you mean 'JSONDecodeError'\?\)"),
        ("json.no_such_module.Error", "json has no 'no_such_module'"),
        ("json.JSONDecoder", "has 'json.JSONDecoder', which is no exception class"),
        ("json.dumps", "which is no exception class"),
    ],
)
@pytest.mark.parametrize("rule", ["retry_on", "dead_on"])
def test_a_rule_that_names_no_exception_is_refused(path: str, words: str, rule: str, own_registry: None) -> None:
    for act in (
        lambda: noop.using(retry=RetryPolicy(**{rule: path})),
        lambda: delayed_task(retry=RetryPolicy(**{rule: [OSError, path]}))(narrow),
    ):
        with pytest.raises(ValueError, match=f"{rule}.*{words}"):
            act()


@pytest.mark.parametrize("value", [5, "shop.delay", [5, 60]])
def test_a_retry_delay_that_is_no_function_is_refused(value: Any, own_registry: None) -> None:
    with pytest.raises(ValueError, match=r"retry_delay must be a function .*use RetryPolicy\(delays=…\)"):
        delayed_task(retry_delay=value)(narrow)


def test_a_retry_delay_that_is_async_is_refused(own_registry: None) -> None:
    async def delay(attempt: int, error: BaseException) -> float:
        return 5.0

    with pytest.raises(ValueError, match="retry_delay must be a plain function, not async def"):
        delayed_task(retry_delay=delay)(narrow)  # type: ignore[arg-type]


@pytest.mark.parametrize("option", ["timeout", "hard_timeout"])
@pytest.mark.parametrize("value", ["30", True, 1j])
def test_a_time_limit_of_another_type_is_refused(option: str, value: Any, own_registry: None) -> None:
    for act in (lambda: noop.using(**{option: value}), lambda: delayed_task(**{option: value})(narrow)):
        refused(InvalidDelay, TypeError, f"{option} must be a number of seconds or a timedelta", act)


@pytest.mark.parametrize("option", ["max_attempts", "delay", "qeue", "tenant", "limit"])
def test_the_decorator_refuses_unknown_options(option: str) -> None:
    with pytest.raises(TypeError, match=option):
        delayed_task(**{option: 1})(narrow)  # type: ignore[call-overload]


def test_aliases_as_one_string_are_refused() -> None:
    with pytest.raises(ValueError, match="aliases must be a list"):
        delayed_task(aliases="old.name")(narrow)


def test_every_error_is_a_delayq_error() -> None:
    for kind in (
        InvalidDelay,
        InvalidMoment,
        PayloadNotSerializable,
        PayloadTooLarge,
        UnknownTask,
        UnknownQueue,
        KeyHeld,
    ):
        assert issubclass(kind, DelayQError)
        assert kind.__doc__ and str(kind()).startswith(kind.__doc__)
