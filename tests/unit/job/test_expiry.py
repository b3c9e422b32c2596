"""Expiry: when a job expires, as its body stores it, and as a worker judges its claim."""

import json
from typing import Any

import pytest

from django_delayq.clock import LATEST_US, SECOND_US
from django_delayq.exceptions import BadBody
from django_delayq.job.attempts import NO_ATTEMPTS, AttemptHistory
from django_delayq.job.body.codec import decode, decode_head, with_due, with_flags, with_queue
from django_delayq.job.job import Claim, Expiry, Flag, Job
from django_delayq.job.unsent import encode_new
from tests.factories import claim_for

#: A due time in 2027, and a span.
DUE, SPAN = 1_800_000_000_000_000, 60 * SECOND_US
RAW_ID = bytes(range(12))
AFTER_DUE, AT_MOMENT = Expiry(moment_us=DUE + SPAN, span_us=SPAN), Expiry(moment_us=DUE + SPAN, dead=True)
FAILED_ONCE = AttemptHistory(ended=1)


def job_of(expiry: Expiry | None, *args: Any, **facts: Any) -> Job:
    return Job(raw_id=RAW_ID, shard=0, task="shop.remind", queue="mail", args=list(args), expiry=expiry, **facts)


def body_of(expiry: Expiry | None, *args: Any, **facts: Any) -> bytes:
    return encode_new(job_of(expiry, *args, **facts), max_payload=10_000)[1]


def read(body: bytes) -> Job:
    return decode(body, raw_id=RAW_ID, shard=0)


def claim_of(expiry: Expiry | None, *, due_us: int = DUE, attempts: AttemptHistory = NO_ATTEMPTS) -> Claim:
    return claim_for(job_of(expiry), due_us=due_us, claimed_us=DUE, received_at=100.0, attempts=attempts)


@pytest.mark.parametrize("expiry", [AFTER_DUE, AT_MOMENT, Expiry(moment_us=5, span_us=1, dead=True)])
@pytest.mark.parametrize("facts", [{}, {"key": "k"}, {"result_ttl_us": 5, "django": True, "backend": "b"}])
def test_a_body_carries_the_expiry(expiry: Expiry, facts: dict[str, Any]) -> None:
    job = read(body_of(expiry, 1, **facts))
    assert job.expiry == expiry
    assert job.flags & Flag.EXPIRES


def test_a_job_without_an_expiry_stores_nothing_of_it() -> None:
    body = body_of(None, 1)
    assert body.endswith(b"[[1]]")
    assert not decode_head(body).expires
    assert read(body).expiry is None


def test_a_span_follows_the_due_time_and_a_moment_stays() -> None:
    later = DUE + 7 * SECOND_US
    assert read(with_due(body_of(AFTER_DUE), later)).expiry == Expiry(moment_us=later + SPAN, span_us=SPAN)
    assert with_due(body_of(AT_MOMENT), later) == body_of(AT_MOMENT)
    assert AFTER_DUE.from_due(LATEST_US).moment_us == LATEST_US


def test_a_new_due_time_changes_nothing_else() -> None:
    # Also what only a later release knows, and what looks like the option.
    body = body_of(AFTER_DUE, '"e":[1,2,0]', {"e": [1, 2, 0]}, 1e22, -0.0, "\ud800", key="k")
    head = decode_head(body).size
    payload = json.loads(body[head:])
    payload[2]["z"] = "later"
    known = body[:head] + json.dumps(payload, separators=(",", ":")).encode()
    moved = with_due(known, DUE + 1)
    assert moved == known.replace(str(DUE + SPAN).encode(), str(DUE + SPAN + 1).encode())
    assert moved != known


@pytest.mark.parametrize("expiry", [AFTER_DUE, AT_MOMENT])
def test_a_revived_job_has_no_expiry_that_is_over(expiry: Expiry) -> None:
    body = body_of(expiry, key="k")
    late = DUE + SPAN
    revived = read(with_due(body, late, revived=True))
    assert revived.key == "k"
    assert revived.expiry == (None if expiry is AT_MOMENT else Expiry(moment_us=late + SPAN, span_us=SPAN))
    assert with_due(with_due(body, late, revived=True), late) is not None
    assert read(with_due(body, late - 1, revived=True)).expiry is not None


def test_the_expiry_survives_a_move_and_new_flags() -> None:
    body = with_flags(with_queue(body_of(AFTER_DUE), "bulk"), Flag.EXPIRES | Flag.DELAYED)
    assert (read(body).queue, read(body).expiry) == ("bulk", AFTER_DUE)


@pytest.mark.parametrize("option", [5, [], [1, 2], ["1", None, 0], [1.5, None, 0], [1, "x", 0], [2**63, None, 0], None])
def test_a_damaged_expiry_is_a_damaged_body(option: Any) -> None:
    body = body_of(AFTER_DUE)
    head = decode_head(body).size
    with pytest.raises(BadBody):
        read(body[:head] + json.dumps([[], {}, {"e": option}]).encode())
    with pytest.raises(BadBody):
        with_due(body[:head] + json.dumps([[], {}, {"e": option}]).encode(), DUE)


@pytest.mark.parametrize("payload", [b"[[], {}, {", b"5", b'{"a": 1, "b": 2, "c": 3}', b"[[], {}, 5]", b"\xff"])
def test_a_due_time_for_a_damaged_body_is_refused(payload: bytes) -> None:
    body = body_of(AFTER_DUE)
    with pytest.raises(BadBody):
        with_due(body[: decode_head(body).size] + payload, DUE)


@pytest.mark.parametrize(("late_us", "expired"), [(0, False), (SPAN, False), (SPAN + 1, True)])
@pytest.mark.parametrize("expiry", [AFTER_DUE, AT_MOMENT])
def test_a_claim_expires_right_after_its_moment(expiry: Expiry, late_us: int, expired: bool) -> None:
    claim = claim_of(expiry)
    # By Redis's clock: the time of the claim, and the seconds since then on this host.
    assert claim.has_expired(100.0 + late_us / SECOND_US) is expired
    assert not claim_of(None).has_expired(1e9)


def test_a_first_attempt_is_judged_by_the_due_time_in_redis() -> None:
    # The enqueueing host is an hour slow: by its clock the job expired before it was due.
    slow = Expiry(moment_us=DUE + SPAN - 3_600 * SECOND_US, span_us=SPAN)
    assert claim_of(slow).expires_us == DUE + SPAN
    assert not claim_of(slow).has_expired(100.0)


def test_a_retry_does_not_move_the_moment() -> None:
    retried = claim_of(AFTER_DUE, due_us=DUE + 30 * SECOND_US, attempts=FAILED_ONCE)
    assert retried.expires_us == DUE + SPAN
    assert claim_of(AT_MOMENT, due_us=DUE + SPAN - 1, attempts=FAILED_ONCE).expires_us == DUE + SPAN
