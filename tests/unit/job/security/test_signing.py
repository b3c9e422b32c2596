"""Signing: only a body that this project signed for this job passes."""

from typing import Any

import pytest
from django.core.exceptions import ImproperlyConfigured
from django.utils.crypto import salted_hmac

from django_delayq import get_store
from django_delayq.exceptions import BadBody, BadSignature, NewerBody
from django_delayq.job.body.codec import (
    ENCRYPTED_FORMAT,
    SIGNATURE,
    SIGNED,
    decode,
    decode_head,
    encode,
    unsigned,
    with_queue,
)
from django_delayq.job.ids import next_id
from django_delayq.job.job import Job
from django_delayq.job.security.signing import BodySigner

JOB = Job(raw_id=next_id(), shard=0, task="shop.tasks.pay", queue="mail", priority=7, args=[1, "x"], kwargs={"k": []})
BODY = encode(JOB, max_payload=1_000)[1]


@pytest.fixture(autouse=True)
def first_key(settings: Any) -> None:
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "first", []


def test_a_signed_body_passes_and_reads_as_the_same_job() -> None:
    signer = BodySigner(on=True)
    body = signer.sign(JOB.raw_id, BODY)
    assert len(body) == len(BODY) + SIGNATURE
    signer.verify(JOB.raw_id, body, queue="mail")
    assert decode(body, raw_id=JOB.raw_id, shard=0) == JOB
    assert decode_head(body) == decode_head(BODY)
    assert unsigned(body) == BODY


def test_the_signature_is_the_one_that_django_makes() -> None:
    body = BodySigner(on=True).sign(JOB.raw_id, BODY)
    code = salted_hmac("django_delayq.job.signing", JOB.raw_id + body[:-SIGNATURE], secret="first", algorithm="sha256")
    assert body[-SIGNATURE:] == code.digest()


def test_any_byte_changed_or_cut_off_is_noticed() -> None:
    signer = BodySigner(on=True)
    body = signer.sign(JOB.raw_id, BODY)
    for at in range(len(body)):
        for bit in (1, 0x80):
            changed = bytearray(body)
            changed[at] ^= bit
            if changed[0] & ~SIGNED <= ENCRYPTED_FORMAT:
                with pytest.raises(BadSignature):
                    signer.verify(JOB.raw_id, bytes(changed))
        with pytest.raises(BadSignature):
            signer.verify(JOB.raw_id, body[:at])
    with pytest.raises(BadSignature):
        signer.verify(JOB.raw_id, body + b"\0")


def test_a_body_without_a_signature_is_refused() -> None:
    for body in (BODY, b"", BODY[:1] + bytes(200)):
        with pytest.raises(BadSignature, match="is not signed"):
            BodySigner(on=True).verify(JOB.raw_id, body)
    with pytest.raises(BadSignature, match="is wrong"):
        BodySigner(on=True).verify(JOB.raw_id, bytes((ENCRYPTED_FORMAT | SIGNED,)))


def test_a_body_of_another_job_or_queue_is_refused() -> None:
    signer = BodySigner(on=True)
    body = signer.sign(JOB.raw_id, BODY)
    with pytest.raises(BadSignature, match="another job's"):
        signer.verify(next_id(), body)
    with pytest.raises(BadSignature, match="another queue"):
        signer.verify(JOB.raw_id, body, queue="bulk")


def test_an_old_key_is_valid_while_it_is_a_fallback(settings: Any) -> None:
    old = BodySigner(on=True).sign(JOB.raw_id, BODY)
    settings.SECRET_KEY, settings.SECRET_KEY_FALLBACKS = "second", ["zeroth", "first"]
    rotated = BodySigner(on=True)
    rotated.verify(JOB.raw_id, old)
    new = rotated.sign(JOB.raw_id, BODY)
    assert new != old
    settings.SECRET_KEY_FALLBACKS = []
    BodySigner(on=True).verify(JOB.raw_id, new)
    with pytest.raises(BadSignature, match="SECRET_KEY_FALLBACKS"):
        BodySigner(on=True).verify(JOB.raw_id, old)


def test_without_signing_nothing_is_signed_or_refused() -> None:
    off, signed = BodySigner(on=False), BodySigner(on=True).sign(JOB.raw_id, BODY)
    assert off.sign(JOB.raw_id, BODY) is BODY
    for body in (BODY, signed, signed[:-1], b"", None):
        off.verify(next_id(), body, queue="elsewhere")
    assert decode(signed, raw_id=JOB.raw_id, shard=0) == JOB


def test_a_rewritten_body_is_verified_before_and_signed_after() -> None:
    signer = BodySigner(on=True)
    body = signer.sign(JOB.raw_id, BODY)
    moved = signer.resign(JOB.raw_id, body, lambda text: with_queue(text, "bulk"))
    signer.verify(JOB.raw_id, moved, queue="bulk")
    assert unsigned(moved) == with_queue(BODY, "bulk")
    for forged in (BODY, with_queue(body, "bulk"), signer.sign(next_id(), BODY)):
        with pytest.raises(BadSignature):
            signer.resign(JOB.raw_id, forged, lambda text: text)


def test_without_signing_a_rewritten_body_loses_its_signature() -> None:
    body = BodySigner(on=True).sign(JOB.raw_id, BODY)
    for stored in (body, BODY):
        moved = BodySigner(on=False).resign(JOB.raw_id, stored, lambda text: with_queue(text, "bulk"))
        assert moved == with_queue(BODY, "bulk")


@pytest.mark.parametrize("top", [0, SIGNED])
def test_a_body_of_a_later_release_is_left_to_that_release(top: int) -> None:
    body = bytes((top | ENCRYPTED_FORMAT + 1,)) + BODY[1:]
    BodySigner(on=True).verify(JOB.raw_id, body)
    with pytest.raises(NewerBody, match=f"format {ENCRYPTED_FORMAT + 1},"):
        decode(body, raw_id=JOB.raw_id, shard=0)


@pytest.mark.parametrize("size", range(SIGNATURE))
def test_a_body_too_short_for_the_signature_it_claims_is_damaged(size: int) -> None:
    head = decode_head(BODY).size
    body = bytes((BODY[0] | SIGNED,)) + BODY[1:head] + bytes(size)
    with pytest.raises(BadBody):
        decode(body, raw_id=JOB.raw_id, shard=0)


@pytest.mark.parametrize(("name", "value"), [("SECRET_KEY", "second"), ("SECRET_KEY_FALLBACKS", ["second"])])
def test_changed_secrets_are_used(name: str, value: Any, settings: Any) -> None:
    settings.DELAYQ = {"REDIS": "redis://127.0.0.1:1/0", "SIGN": True}
    before = get_store().signer
    setattr(settings, name, value)
    assert get_store().signer is not before


def test_signing_without_a_secret_fails_before_anything_is_sent(settings: Any) -> None:
    settings.DELAYQ, settings.SECRET_KEY = {"REDIS": "redis://127.0.0.1:1/0", "SIGN": True}, ""
    with pytest.raises(ImproperlyConfigured, match="SECRET_KEY"):
        get_store()
