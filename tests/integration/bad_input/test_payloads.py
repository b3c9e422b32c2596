"""Payloads: arguments that JSON cannot hold, that are too large, or that do not fit the signature."""

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from redis import Redis

from django_delayq import delayed_task, enqueue_many, execute_later, get_job
from django_delayq.exceptions import (
    PayloadNotSerializable,
    PayloadTooLarge,
)
from tests.integration.bad_input.refusals import NAME, SECRET, narrow, narrow_async, refused
from tests.sample_app.tasks import noop

#: Every way to send arguments.
PAYLOADS: dict[str, Callable[[Any], Any]] = {
    "enqueue": lambda value: noop.enqueue(user={"x": [0, value]}),
    "enqueue_many": lambda value: noop.enqueue_many([(1,), ({"x": [0, value]},)]),
    "job": lambda value: enqueue_many([noop.job(1), noop.job(user={"x": [0, value]})]),
    "execute_later": lambda value: execute_later("mail", NAME, [{"x": [0, value]}]),
}
circular: list[Any] = []
circular.append(circular)


@pytest.mark.parametrize("call", PAYLOADS)
@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({1, 2}, "is a set.*list"),
        (object(), "is a object.*convert"),
        (User(pk=7, username=SECRET), "is a User.*primary key"),
        (SECRET.encode(), "is a bytes.*base64"),
        (math.nan, "is nan.*None or a string"),
        (math.inf, "is inf.*None or a string"),
        (-math.inf, "is -inf.*None or a string"),
        ({1: 2}, "key of type int.*str"),
        ((1, 2), "is a tuple.*list"),
        (Decimal("1.5"), r"is a Decimal.*str\(value\)"),
        (UUID(int=7), r"is a UUID.*str\(value\)"),
        (datetime(2030, 1, 1, tzinfo=UTC), "is a datetime.*isoformat"),
        (date(2030, 1, 1), "is a date.*isoformat"),
        (timedelta(1), "is a timedelta.*total_seconds"),
        (circular, "itself"),
    ],
    ids=lambda value: value if type(value) is str else type(value).__name__,
)
def test_a_value_that_json_cannot_hold_is_refused(call: str, value: Any, words: str) -> None:
    path = r"kwargs\['user'\]\['x'\]\[1\]" if call in ("enqueue", "job") else r"args\[0\]\['x'\]\[1\]"
    refused(PayloadNotSerializable, TypeError, rf"{path}.*{words}", lambda: PAYLOADS[call](value))


@pytest.mark.parametrize("call", PAYLOADS)
def test_a_payload_over_its_limit_is_refused(call: str) -> None:
    text = SECRET * 30_000
    words = "bytes, more than MAX_PAYLOAD.*reference"
    refused(PayloadTooLarge, ValueError, words, lambda: PAYLOADS[call](text))


@pytest.mark.parametrize("call", PAYLOADS)
@pytest.mark.parametrize("levels", [63, 10_000])
def test_a_payload_that_is_nested_too_deep_is_refused(call: str, levels: int) -> None:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    refused(PayloadTooLarge, ValueError, "nested deeper than 64 levels.*reference", lambda: PAYLOADS[call](value))


@pytest.mark.parametrize("value", ["\ud800", "a\0b", 2**63, -(2**53) - 1, 1e22, -0.0, [], {}, None])
def test_odd_values_that_json_can_hold_are_kept_exactly(value: Any, client: Redis) -> None:
    handle = noop.after(60).enqueue(value)
    found = get_job(handle.id)
    assert found and found.job and repr(found.job.args) == repr([value])
    client.flushall()


@pytest.mark.parametrize("args", [(), (1, 2), (1, 2, 3)])
def test_arguments_that_do_not_fit_the_signature_are_refused(args: tuple[int, ...], own_registry: None) -> None:
    for func in (narrow, narrow_async):
        task: Any = delayed_task(func)
        enqueues: list[Callable[[], Any]] = [
            lambda task=task: task.enqueue(*args),
            lambda task=task: task.job(*args),
            lambda task=task: task.enqueue_many([(1,), args]),
            lambda task=task: execute_later("mail", task.name, args),
        ]
        for act in enqueues:
            with pytest.raises(TypeError, match="argument"):
                act()
    with pytest.raises(TypeError, match="nmae"):
        delayed_task(narrow).enqueue(1, nmae="x")  # type: ignore[call-arg]
