"""ExchangeSession: one request is in flight at a time; it is repeated after a lost reply, and dropped if stale."""

from collections.abc import Mapping
from typing import Any

import pytest

from django_delayq.exceptions import StaleExchange, StoreUnavailable
from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome, OutcomeKind
from django_delayq.worker.exchange_session import ExchangeSession, InFlight
from django_delayq.worker.outcome_buffer import OutcomeBuffer
from tests.shard_apis import ShardApis

REQUEST: Mapping[str, Any] = {"queues": ("default",), "strict": False, "want": 1}
WORKER_ID = b"worker 1"


@pytest.fixture
def session(apis: ShardApis) -> ExchangeSession:
    return ExchangeSession(apis.store.claims(apis.shard, worker_id=WORKER_ID), name="host:1")


def take(session: ExchangeSession) -> Claim:
    session.prepare(**REQUEST)
    [claim] = session.exchange(OutcomeBuffer())[0].claims
    return claim


def fail_once(session: ExchangeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the request in flight, and lose its reply."""
    settle_and_claim = session._claims.settle_and_claim

    def lose_reply(request: Any) -> Any:
        settle_and_claim(request)
        monkeypatch.undo()
        raise StoreUnavailable("the reply is lost")

    monkeypatch.setattr(session._claims, "settle_and_claim", lose_reply)
    with pytest.raises(StoreUnavailable):
        session.exchange(OutcomeBuffer())


def test_the_first_request_sends_the_workers_name(apis: ShardApis, session: ExchangeSession) -> None:
    for first in (True, False):
        session.prepare(**REQUEST)
        assert session.exchange(OutcomeBuffer())[0].unknown_worker == first
    assert apis.client.hget(apis.keys("worker_names"), WORKER_ID) == b"host:1"


def test_after_a_lost_reply_the_request_is_repeated_and_the_job_claimed_once(
    apis: ShardApis, session: ExchangeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        apis.add()
    session.prepare(**REQUEST)
    fail_once(session, monkeypatch)
    assert session.in_flight is InFlight.EXCHANGE
    [claim] = session.exchange(OutcomeBuffer())[0].claims
    assert session.in_flight is InFlight.NOTHING
    assert apis.where(claim.raw_id) == ["leases"] and apis.inspection.counts().claimed == 1


def test_the_lease_counts_from_when_the_request_was_first_sent(
    apis: ShardApis, session: ExchangeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis may have made the claim at that time."""
    apis.add()
    session.prepare(**REQUEST)
    fail_once(session, monkeypatch)
    assert session._request
    sent_at = session._request[0].sent_at
    [claim] = session.exchange(OutcomeBuffer())[0].claims
    assert claim.sent_at == sent_at


def test_after_a_stale_request_a_new_worker_id_sends_the_outcomes(apis: ShardApis, session: ExchangeSession) -> None:
    apis.add()
    claim = take(session)
    other = apis.store.claims(apis.shard, worker_id=WORKER_ID)
    for _ in range(3):
        other.settle_and_claim(other.prepare(**{**REQUEST, "want": 0}))
    outcomes = OutcomeBuffer()
    session.prepare(**REQUEST, ended=[(claim, Outcome(kind=OutcomeKind.SUCCEEDED))])
    assert session.settling == [claim.lease]
    with pytest.raises(StaleExchange):
        session.exchange(outcomes)
    assert session.worker_id != WORKER_ID and session.in_flight is InFlight.NOTHING and session.settling == []
    session.prepare(**{**REQUEST, "want": 0}, ended=outcomes.take())
    reply, _ = session.exchange(outcomes)
    assert reply.unknown_worker and not reply.lost and apis.where(claim.raw_id) == []
