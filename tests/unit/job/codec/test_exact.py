"""Codec of exact values: a body decodes to exactly the encoded job, and defaults take no space."""

import copy
import json
import math
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from django_delayq.exceptions import PayloadNotSerializable, PayloadTooLarge
from django_delayq.job.body.codec import decode_head, encode, read_queue, with_queue
from django_delayq.job.job import DJANGO_TASK, Flag
from django_delayq.job.retry import LONGEST_DELAY, RetryPolicy
from django_delayq.task.arguments import check_payload
from tests.unit.job.codec.bodies import (
    MEGABYTE,
    job_of,
    json_values,
    names,
    policies,
    policies_with_rules,
    read,
    sent,
    surrogates_not_paired,
)


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


@given(some.lists(json_values, max_size=4), some.dictionaries(surrogates_not_paired, json_values, max_size=4))
def test_any_arguments_survive_exactly(args: list[Any], kwargs: dict[str, Any]) -> None:
    before = copy.deepcopy((args, kwargs))
    check_payload(args, "args")
    check_payload(kwargs, "kwargs")
    found = sent(job_of(*args, kwargs=kwargs))
    assert exactly(found.args, args) and exactly(found.kwargs, kwargs)
    assert exactly([args, kwargs], list(before)), "the caller's values were changed"


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


@given(policies_with_rules)
def test_a_policy_with_rules_survives(policy: RetryPolicy) -> None:
    assert sent(job_of(retry=policy)).retry == policy


@pytest.mark.parametrize(
    ("policy", "stored"),
    [
        (RetryPolicy(max_attempts=3), {"r": [3, 2_000_000, 3_600_000_000, 1]}),
        (
            RetryPolicy(max_attempts=None, retry_on=OSError, dead_on="shop.errors.Declined", delays=[5]),
            {
                "r": [1_000, 2_000_000, 3_600_000_000, 1],
                "p": {
                    "forever": 1,
                    "delays": [5_000_000],
                    "retry_on": ["builtins.OSError"],
                    "dead_on": ["shop.errors.Declined"],
                },
            },
        ),
    ],
)
def test_four_numbers_of_a_policy_stand_where_they_always_did(policy: RetryPolicy, stored: Any) -> None:
    _, body = encode(job_of(retry=policy), max_payload=1_024)
    assert json.loads(body[decode_head(body).size :])[2] == stored


def test_a_stored_policy_with_longer_delays_than_may_be_declared_is_read() -> None:
    _, body = encode(job_of(retry=RetryPolicy(delays=[5, LONGEST_DELAY])), max_payload=1_024)
    longest = str(LONGEST_DELAY // timedelta(microseconds=1)).encode()
    longer = str(timedelta(days=200_000) // timedelta(microseconds=1)).encode()
    assert read(body.replace(longest, longer)).retry == RetryPolicy(delays=[5, LONGEST_DELAY])
    assert longest in body


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
