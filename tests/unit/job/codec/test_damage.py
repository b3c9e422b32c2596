"""Damage in bodies: the head of a body, and bodies that are damaged or of a later release."""

import contextlib
import json
import pickle
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some

from django_delayq.exceptions import BadBody, NewerBody
from django_delayq.job.body import codec
from django_delayq.job.body.codec import decode, decode_head, encode, with_flags, with_queue
from django_delayq.job.job import LARGE_BODY, Flag
from django_delayq.job.retry import RetryPolicy
from tests.unit.job.codec.bodies import MEGABYTE, job_of, names, read


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


@given(names, names)
def test_a_body_can_be_moved_to_another_queue(queue: str, other: str) -> None:
    job, body = encode(job_of(1, queue=queue), max_payload=1_024)
    moved = decode(with_queue(body, other), raw_id=job.raw_id, shard=0)
    assert moved == replace(job, queue=other)


def test_flags_can_be_changed() -> None:
    job, body = encode(job_of(1), max_payload=1_024)
    assert decode(with_flags(body, Flag.DELAYED), raw_id=job.raw_id, shard=0).flags == Flag.DELAYED


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
        b'[[],{},{"r":[null,1,1,1]}]',
        b'[[],{},{"r":[5,1,1,1],"p":5}]',
        b'[[],{},{"r":[5,1,1,1],"p":"text"}]',
        b'[[],{},{"r":[5,1,1,1],"p":{"delays":["1"]}}]',
        b'[[],{},{"r":[5,1,1,1],"p":{"delays":[1e400]}}]',
        b'[[],{},{"r":[5,1,1,1],"p":{"delays":5}}]',
        b'[[],{},{"r":[5,1,1,1],"p":{"retry_on":["Nope"]}}]',
        b'[[],{},{"r":[5,1,1,1],"p":{"dead_on":[5]}}]',
        b'[[],{},{"r":[5,1,1,1],"p":{"dead_on":null}}]',
        b'[[],{},{"t":"1"}]',
        b'[[],{},{"t":1.5}]',
        b'[[],{},{"h":true}]',
        b'[[],{},{"k":5}]',
        b'[[],{},{"l":5}]',
        b'[[],{},{"l":[5]}]',
        b'[[],{},{"l":[["a",5]]}]',
        b'[[],{},{"l":[[5,null]]}]',
        b"[" * 100_000,
        b"[" + b"9" * 5_000 + b"]",
    ],
    ids=lambda tail: repr(tail[:40]),
)
def test_a_damaged_body_is_bad_and_nothing_else(tail: bytes) -> None:
    with pytest.raises(BadBody):
        read(HEAD + tail)


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
    with pytest.raises(
        NewerBody, match=rf"format {codec.ENCRYPTED_FORMAT + 1}.*up to {codec.ENCRYPTED_FORMAT}; update"
    ):
        read(bytes((codec.ENCRYPTED_FORMAT + 1,)) + HEAD[1:] + b"whatever comes")
    assert decode_head(bytes((codec.ENCRYPTED_FORMAT + 1,)) + HEAD[1:]).queue == "mail"


def test_a_job_is_a_plain_value() -> None:
    job = job_of(1, retry=RetryPolicy(max_attempts=2))
    assert pickle.loads(pickle.dumps(job)) == job
    assert json.loads(json.dumps(job.id)) == job.id
