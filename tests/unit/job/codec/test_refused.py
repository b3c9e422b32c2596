"""Refused values: JSON would change them, or they are too deep or too large; the error has a hint."""

import enum
import math
from collections import OrderedDict, UserDict, namedtuple
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.utils.safestring import mark_safe

from django_delayq.exceptions import PayloadNotSerializable, PayloadTooLarge
from django_delayq.job.body.codec import encode
from django_delayq.job.job import MAX_DEPTH
from django_delayq.task.arguments import check_payload
from django_delayq.worker.time_limit import TimeLimit
from tests.unit.job.codec.bodies import job_of, sent


class Colour(enum.IntEnum):
    RED = 1


class Word(enum.StrEnum):
    YES = "yes"


class Row:
    _meta = object()
    pk = 7


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize(
    ("value", "kind", "hint"),
    [
        ((1, 2), "tuple", "use a list"),
        (Pair(1, 2), "Pair", ""),
        ({1, 2}, "set", "use a list"),
        (frozenset(), "frozenset", "use a list"),
        (object(), "object", "convert it"),
        (Row(), "Row", "primary key"),
        (b"x", "bytes", "base64"),
        (bytearray(b"x"), "bytearray", "convert"),
        (datetime(2030, 1, 1, tzinfo=UTC), "datetime", "isoformat"),
        (date(2030, 1, 1), "date", "isoformat"),
        (timedelta(1), "timedelta", "total_seconds"),
        (Decimal("1.5"), "Decimal", "str"),
        (UUID(int=1), "UUID", "str"),
        (1j, "complex", "convert"),
        (Colour.RED, "Colour", "value"),
        (Word.YES, "Word", "value"),
        (mark_safe("x"), "SafeString", "value + ''"),
        (OrderedDict(a=1), "OrderedDict", "convert"),
        (UserDict(a=1), "UserDict", "convert"),
        (len, "builtin_function_or_method", "convert"),
        (range(3), "range", "convert"),
    ],
    ids=lambda value: value if isinstance(value, str) and type(value) is str else "value",
)
def test_values_that_json_would_change_are_refused_with_a_hint(value: Any, kind: str, hint: str) -> None:
    with pytest.raises(PayloadNotSerializable) as caught:
        check_payload({"x": [0, value]}, "kwargs['user']")
    assert f"kwargs['user']['x'][1] is a {kind}" in str(caught.value)
    assert hint in str(caught.value)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_numbers_json_does_not_have_are_refused(value: float) -> None:
    with pytest.raises(PayloadNotSerializable, match=r"args\[0\]\['x'\] is -?(nan|inf).* send"):
        check_payload({"x": value}, "args[0]")


@pytest.mark.parametrize("key", [1, None, True, 1.5, (1,), b"k", Word.YES])
def test_keys_that_are_no_strings_are_refused(key: Any) -> None:
    with pytest.raises(PayloadNotSerializable, match=rf"args\[0\] has a key of type {type(key).__name__}.*str"):
        check_payload({key: 1}, "args[0]")


def test_a_value_that_contains_itself_is_not_serializable() -> None:
    circular: list[Any] = []
    circular.append({"again": circular})
    with pytest.raises(PayloadNotSerializable, match=r"args\[0\]"):
        check_payload(circular, "args[0]")


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_nesting_ends_at_64_levels() -> None:
    check_payload(nested(MAX_DEPTH), "args[0]")
    assert sent(job_of(nested(MAX_DEPTH))).args == [nested(MAX_DEPTH)]
    for levels in (MAX_DEPTH + 1, 100_000):
        with pytest.raises(PayloadTooLarge, match=f"nested deeper than {MAX_DEPTH} levels"):
            check_payload(nested(levels), "args[0]")


def test_a_value_that_grows_by_sharing_is_refused_in_time() -> None:
    # 2^50 leaves in 50 small lists: written out, it would not fit any machine.
    value: list[Any] = [0]
    for _ in range(50):
        value = [value, value]
    # The limit only ends a test that would never end.
    with TimeLimit(300_000_000), pytest.raises(PayloadTooLarge):
        check_payload(value, "args[0]")


def test_an_error_never_shows_the_payload() -> None:
    for value in ({"secret" * 1_000: {1}}, ["secret" * 100_000]):
        with pytest.raises((PayloadNotSerializable, PayloadTooLarge)) as caught:
            check_payload(value, "args[0]")
            encode(job_of(value), max_payload=1_024)
        assert len(str(caught.value)) < 600


def test_a_payload_over_its_limit_is_refused_with_the_cure() -> None:
    job = job_of("x" * 1_000)
    encode(job, max_payload=1_006)
    with pytest.raises(PayloadTooLarge, match=r"1,006 bytes, more than MAX_PAYLOAD \(1,005\).*pass a reference"):
        encode(job, max_payload=1_005)
