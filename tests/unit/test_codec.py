"""Codec: arguments survive exactly, or are refused when they are sent."""

import contextlib
import copy
import enum
import json
import math
import pickle
from collections import OrderedDict, UserDict, namedtuple
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from django.utils.safestring import mark_safe
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from django_delayq.exceptions import BadBody, NewerBody, PayloadNotSerializable, PayloadTooLarge
from django_delayq.job import codec
from django_delayq.job.codec import decode, decode_head, encode, read_queue, with_flags, with_queue
from django_delayq.job.ids import next_id
from django_delayq.job.job import DJANGO_TASK, LARGE_BODY, MAX_DEPTH, Flag, Job
from django_delayq.job.retry import RetryPolicy
from django_delayq.task.arguments import check_payload
from django_delayq.worker.time_limit import TimeLimit

#: No verdict from how long an example took: the machine may be busy.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
MEGABYTE = 1024 * 1024


def job_of(*args: Any, **facts: Any) -> Job:
    return Job(raw_id=next_id(), shard=0, **{"task": "shop.tasks.remind", "queue": "mail", "args": list(args), **facts})


def sent(job: Job) -> Job:
    """Send a job through its body."""
    job, body = encode(job, max_payload=8 * MEGABYTE)
    return decode(body, raw_id=job.raw_id, shard=job.shard)


def exactly(one: Any, other: Any) -> bool:
    """Tell whether two values are equal to the type, the sign of zero and the order of keys."""
    if type(one) is not type(other):
        return False
    if isinstance(one, list):
        return len(one) == len(other) and all(map(exactly, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(exactly(one[key], other[key]) for key in one)
    if isinstance(one, float):
        return one == other and math.copysign(1, one) == math.copysign(1, other)
    return bool(one == other)


@pytest.mark.parametrize(
    "value",
    [
        2**53 + 1,
        -(2**53) - 1,
        2**63,
        2**64 + 1,
        10**300,
        0,
        -0.0,
        0.1,
        1e22,
        1.7976931348623157e308,
        5e-324,
        1.0,
        True,
        False,
        None,
        "",
        "\0",
        "a\0b",
        "\ud800",
        "\udfff tail",
        "\u2028\u2029",
        "\U0001f600",
        "\x7f\x80\xff",
        '"\\/\b\f\n\r\t',
        "</script>",
        [],
        {},
        [[]],
        [{}],
        {"": {}},
        [None, [None]],
        {"b": 1, "a": 2},
        {"\0": "\ud800"},
        {"__class__": "x", "constructor": None},
    ],
    ids=ascii,
)
def test_a_value_survives_exactly(value: Any) -> None:
    check_payload(value, "args[0]")
    assert exactly(sent(job_of(value)).args, [value])
    assert exactly(sent(job_of(kwargs={"value": value})).kwargs, {"value": value})


def test_a_surrogate_pair_is_kept_or_refused_never_changed() -> None:
    # Two code units of a str that is not well-formed; JSON readers join them to one character.
    value = "\ud83d\ude00"
    try:
        check_payload(value, "args[0]")
    except PayloadNotSerializable:
        return
    assert sent(job_of(value)).args == [value]


def test_a_string_of_a_megabyte_survives() -> None:
    text = "é\n" * (MEGABYTE // 2)
    assert sent(job_of(text)).args == [text]


def test_an_integer_of_thousands_of_digits_survives_or_is_refused() -> None:
    largest = 2**13_000 - 1
    check_payload(largest, "args[0]")
    assert sent(job_of(largest)).args == [largest]
    with pytest.raises(PayloadTooLarge, match=r"args\[0\] is an integer .* send it as"):
        check_payload(10**5_000, "args[0]")


surrogates_not_paired = some.text(some.characters(exclude_categories=())).filter(
    lambda text: text == text.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
)
json_values = some.recursive(
    some.none()
    | some.booleans()
    | some.integers(min_value=-(2**200), max_value=2**200)
    | some.floats(allow_nan=False, allow_infinity=False)
    | surrogates_not_paired,
    lambda inner: some.lists(inner, max_size=4) | some.dictionaries(surrogates_not_paired, inner, max_size=4),
    max_leaves=20,
)


@patient
@given(some.lists(json_values, max_size=4), some.dictionaries(surrogates_not_paired, json_values, max_size=4))
def test_any_arguments_survive_exactly(args: list[Any], kwargs: dict[str, Any]) -> None:
    before = copy.deepcopy((args, kwargs))
    check_payload(args, "args")
    check_payload(kwargs, "kwargs")
    found = sent(job_of(*args, kwargs=kwargs))
    assert exactly(found.args, args) and exactly(found.kwargs, kwargs)
    assert exactly([args, kwargs], list(before)), "the caller's values were changed"


names = some.text(some.characters(exclude_categories=()), min_size=1, max_size=40)
policies = some.builds(
    RetryPolicy,
    max_attempts=some.integers(min_value=1, max_value=1_000),
    base=some.timedeltas(min_value=timedelta(0)),
    cap=some.timedeltas(min_value=timedelta(0)),
    on_error=some.booleans(),
)


@patient
@given(
    task=names,
    queue=names,
    priority=some.integers(min_value=-100, max_value=100),
    retry=policies,
    timeout_us=some.none() | some.integers(min_value=1, max_value=2**62),
    hard_timeout_us=some.none() | some.integers(min_value=1, max_value=2**62),
    key=some.none() | surrogates_not_paired.filter(bool),
    flags=some.sampled_from([Flag.HAS_EXTRAS, Flag.DELAYED, Flag.LARGE]),
    django=some.booleans(),
    result_ttl_us=some.none() | some.integers(min_value=1, max_value=2**62),
    run_after_us=some.none() | some.integers(min_value=-(2**62), max_value=2**62),
    backend=some.none() | names,
)
def test_any_options_survive(flags: Flag, **facts: Any) -> None:
    if not facts["django"]:
        facts |= {"run_after_us": None, "backend": None}
    flags |= (Flag.KEEPS_RESULT if facts["result_ttl_us"] is not None else Flag(0)) | (
        Flag.DJANGO if facts["django"] else Flag(0)
    )
    job = job_of(1, flags=flags, **facts)
    assert sent(job) == job


@pytest.mark.parametrize("span", [timedelta.max, timedelta(microseconds=2**60 + 1), timedelta(days=200_000)])
def test_the_longest_durations_survive_exactly(span: timedelta) -> None:
    retry = RetryPolicy(base=span, cap=span)
    assert sent(job_of(retry=retry)).retry == retry


def test_default_values_are_not_stored() -> None:
    _, body = encode(job_of(), max_payload=1_024)
    assert len(body) == 4 + len("mail") + 2 + len("shop.tasks.remind") + 2
    _, shorter = encode(job_of(queue="default"), max_payload=1_024)
    assert len(shorter) == len(body) - len("mail")
    assert shorter == with_queue(body, "default") and with_queue(shorter, "mail") == body


@pytest.mark.parametrize("queue", ["mail", "default"])
def test_read_queue_agrees_with_decode(queue: str) -> None:
    _, body = encode(job_of(queue=queue), max_payload=1_024)
    assert read_queue(body) == decode_head(body).queue == read(body).queue == queue


def test_a_body_may_contain_the_default_queues_name() -> None:
    _, body = encode(job_of(queue="default"), max_payload=1_024)
    assert read(body[:3] + bytes((7,)) + b"default" + body[4:]).queue == "default"


def test_default_values_of_djangos_tasks_are_not_stored() -> None:
    kept = {"django": True, "retry": DJANGO_TASK.retry, "result_ttl_us": 86_400_000_000}
    _, body = encode(job_of(flags=Flag.KEEPS_RESULT | Flag.DJANGO, **kept), max_payload=1_024)
    assert len(body) == len(encode(job_of(), max_payload=1_024)[1])


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


def test_a_large_body_is_flagged() -> None:
    small, body = encode(job_of("x" * (LARGE_BODY - 100)), max_payload=MEGABYTE)
    assert len(body) <= LARGE_BODY and not small.flags & Flag.LARGE and not decode_head(body).flags & Flag.LARGE
    large, body = encode(job_of("x" * LARGE_BODY), max_payload=MEGABYTE)
    assert large.flags & Flag.LARGE and decode_head(body).flags & Flag.LARGE


def test_the_head_makes_the_member() -> None:
    job, body = encode(job_of(priority=-100, flags=Flag.DELAYED), max_payload=1_024)
    head = decode_head(body)
    assert (head.queue, head.task, head.priority) == (job.queue, job.task, -100)
    assert head.member(job.raw_id) == job.member and len(job.member) == 14
    assert decode_head(body[: head.size]) == head


@patient
@given(names, names)
def test_a_body_can_be_moved_to_another_queue(queue: str, other: str) -> None:
    job, body = encode(job_of(1, queue=queue), max_payload=1_024)
    moved = decode(with_queue(body, other), raw_id=job.raw_id, shard=0)
    assert moved == replace(job, queue=other)


def test_flags_can_be_changed() -> None:
    job, body = encode(job_of(1), max_payload=1_024)
    assert decode(with_flags(body, Flag.DELAYED), raw_id=job.raw_id, shard=0).flags == Flag.DELAYED


def read(body: bytes | None) -> Job:
    return decode(body, raw_id=bytes(12), shard=0)


HEAD = encode(job_of(), max_payload=1_024)[1][:-2]


def test_a_missing_body_is_a_bad_one() -> None:
    with pytest.raises(BadBody, match="missing"):
        read(None)


@pytest.mark.parametrize("size", range(len(HEAD)))
def test_a_body_cut_short_is_bad(size: int) -> None:
    with pytest.raises(BadBody):
        read(HEAD[:size])


@pytest.mark.parametrize(
    "tail",
    [
        b"",
        b"x",
        b"[",
        b"\xff",
        b"null",
        b"5",
        b"true",
        b'"text"',
        b"{}",
        b'""',
        b'{"a":1}',
        b"[1]",
        b"[[],[]]",
        b"[null]",
        b"[[],{},5]",
        b"[[],{},[1]]",
        b"[[],{},{},1]",
        b'[[],{},{"r":5}]',
        b'[[],{},{"r":[]}]',
        b'[[],{},{"r":[0,1,1,1]}]',
        b'[[],{},{"r":["5",1,1,1]}]',
        b'[[],{},{"r":[5,-1,1,1]}]',
        b'[[],{},{"r":[5,1e400,1,1]}]',
        b'[[],{},{"r":[5,1e30,1,1]}]',
        b'[[],{},{"r":[5,NaN,1,1]}]',
        b'[[],{},{"r":[5,null,1,1]}]',
        b'[[],{},{"t":"1"}]',
        b'[[],{},{"t":1.5}]',
        b'[[],{},{"h":true}]',
        b'[[],{},{"k":5}]',
        b"[" * 100_000,
        b"[" + b"9" * 5_000 + b"]",
    ],
    ids=lambda tail: repr(tail[:40]),
)
def test_a_damaged_body_is_bad_and_nothing_else(tail: bytes) -> None:
    with pytest.raises(BadBody):
        read(HEAD + tail)


@patient
@given(some.data())
def test_any_damage_is_bad_or_readable(data: some.DataObject) -> None:
    job, body = encode(
        job_of([1, "ü"], kwargs={"a": None}, retry=RetryPolicy(max_attempts=2), key="k", timeout_us=5),
        max_payload=1_024,
    )
    at = data.draw(some.integers(min_value=1, max_value=len(body) - 1))
    body = body[:at] + data.draw(some.binary(max_size=4)) + body[at + data.draw(some.integers(0, 4)) :]
    with contextlib.suppress(BadBody):
        read(body)


def test_a_body_of_a_later_release_is_recognized() -> None:
    with pytest.raises(NewerBody, match=rf"format {codec.FORMAT + 1}.*up to {codec.FORMAT}; update"):
        read(bytes((codec.FORMAT + 1,)) + HEAD[1:] + b"whatever comes")
    assert decode_head(bytes((codec.FORMAT + 1,)) + HEAD[1:]).queue == "mail"


def test_a_job_is_a_plain_value() -> None:
    job = job_of(1, retry=RetryPolicy(max_attempts=2))
    assert pickle.loads(pickle.dumps(job)) == job
    assert json.loads(json.dumps(job.id)) == job.id
