"""Exchange session: one exchange at a time; one whose reply was lost is repeated, a stale one is dropped."""

from collections.abc import Mapping
from typing import Any

import pytest

from django_delayq.exceptions import StaleExchange, StoreUnavailable
from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome, OutcomeKind
from django_delayq.store.claims import Claims, ExchangeReply, ExchangeRequest
from django_delayq.worker.exchange_session import ExchangeSession, InFlight
from django_delayq.worker.outcome_buffer import OutcomeBuffer
from tests.shard_apis import ShardApis

ASKS: Mapping[str, Any] = {"queues": ("default",), "strict": False, "want": 1}
CODE = b"exchangr"


class LossyClaims(Claims):
    """The API for claims, on a connection that may lose a reply."""

    #: Whether the next reply is lost.
    loses_reply = False

    def settle_and_claim(self, request: ExchangeRequest) -> ExchangeReply:
        reply = super().settle_and_claim(request)
        if self.loses_reply:
            self.loses_reply = False
            raise StoreUnavailable("the answer is lost")
        return reply


@pytest.fixture
def claims(apis: ShardApis) -> LossyClaims:
    """The API that `session` uses."""
    return LossyClaims(apis.shard, worker_id=CODE)


@pytest.fixture
def session(claims: LossyClaims) -> ExchangeSession:
    return ExchangeSession(claims, name="host:1")


def take(session: ExchangeSession) -> Claim:
    session.prepare(**ASKS)
    [claim] = session.exchange(OutcomeBuffer())[0].claims
    return claim


def fail_once(session: ExchangeSession, claims: LossyClaims) -> None:
    """Run the exchange that is under way, and lose its reply."""
    claims.loses_reply = True
    with pytest.raises(StoreUnavailable):
        session.exchange(OutcomeBuffer())


def test_the_name_of_the_worker_is_sent_once(apis: ShardApis, session: ExchangeSession) -> None:
    for first in (True, False):
        session.prepare(**ASKS)
        assert session.exchange(OutcomeBuffer())[0].unknown_worker == first
    assert apis.client.hget(apis.keys("worker_names"), CODE) == b"host:1"


def test_after_a_lost_reply_the_exchange_is_repeated_and_the_job_is_claimed_once(
    apis: ShardApis, session: ExchangeSession, claims: LossyClaims
) -> None:
    for _ in range(2):
        apis.add()
    session.prepare(**ASKS)
    fail_once(session, claims)
    assert session.in_flight is InFlight.EXCHANGE
    [claim] = session.exchange(OutcomeBuffer())[0].claims
    assert session.in_flight is InFlight.NOTHING
    assert apis.where(claim.raw_id) == ["leases"] and apis.inspection.counts().claimed == 1


def test_a_reply_that_cannot_be_read_is_requested_again(
    session: ExchangeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While there is a reply to read, the worker does nothing else; it could not even be stopped."""
    session.prepare_blocking(**ASKS)
    session.in_flight = InFlight.REPLY

    def unreadable(_: Any) -> Any:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patched, pytest.raises(RuntimeError):
        patched.setattr(session._claims, "settle_and_claim", unreadable)
        session.exchange(OutcomeBuffer())
    assert session.in_flight is InFlight.EXCHANGE
    session.exchange(OutcomeBuffer())
    assert session.in_flight is InFlight.NOTHING


def test_the_lease_counts_from_when_the_exchange_was_first_sent(
    apis: ShardApis, session: ExchangeSession, claims: LossyClaims
) -> None:
    """Redis may have made the claim at that time."""
    apis.add()
    session.prepare(**ASKS)
    fail_once(session, claims)
    assert session._request
    sent_at = session._request[0].sent_at
    [claim] = session.exchange(OutcomeBuffer())[0].claims
    assert claim.sent_at == sent_at


def test_after_a_stale_exchange_the_outcomes_are_sent_under_another_worker_id(
    apis: ShardApis, session: ExchangeSession
) -> None:
    apis.add()
    claim = take(session)
    other = Claims(apis.shard, worker_id=CODE)
    for _ in range(3):
        other.settle_and_claim(other.prepare(**{**ASKS, "want": 0}))
    ended = OutcomeBuffer()
    session.prepare(**ASKS, ended=[(claim, Outcome(kind=OutcomeKind.SUCCEEDED))])
    assert session.settling == [claim.lease]
    with pytest.raises(StaleExchange):
        session.exchange(ended)
    assert session.worker_id != CODE and session.in_flight is InFlight.NOTHING and session.settling == []
    session.prepare(**{**ASKS, "want": 0}, ended=ended.take())
    answer, _ = session.exchange(ended)
    assert answer.unknown_worker and not answer.lost and apis.where(claim.raw_id) == []
