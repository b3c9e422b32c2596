"""Exchanger: one exchange is under way at a time; one whose answer was lost is sent again, a stale one is given up."""

from collections.abc import Mapping
from typing import Any

import pytest

from django_delayq.exceptions import StaleExchange, StoreUnavailable
from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome, OutcomeKind
from django_delayq.worker.exchange_session import ExchangeSession, InFlight
from django_delayq.worker.outcome_buffer import OutcomeBuffer
from tests.shard_apis import ShardApis

ASKS: Mapping[str, Any] = {"queues": ("default",), "strict": False, "want": 1}
CODE = b"exchangr"


@pytest.fixture
def exchanger(apis: ShardApis) -> ExchangeSession:
    return ExchangeSession(apis.store.claims(apis.shard, worker_id=CODE), name="host:1")


def take(exchanger: ExchangeSession) -> Claim:
    exchanger.prepare(**ASKS)
    [claim] = exchanger.exchange(OutcomeBuffer())[0].claims
    return claim


def fail_once(exchanger: ExchangeSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Carry out what is under way, and lose the answer."""
    whole = exchanger._claims.settle_and_claim

    def lost(exchange: Any) -> Any:
        whole(exchange)
        monkeypatch.undo()
        raise StoreUnavailable("the answer is lost")

    monkeypatch.setattr(exchanger._claims, "settle_and_claim", lost)
    with pytest.raises(StoreUnavailable):
        exchanger.exchange(OutcomeBuffer())


def test_the_server_is_told_once_whose_worker_this_is(apis: ShardApis, exchanger: ExchangeSession) -> None:
    for first in (True, False):
        exchanger.prepare(**ASKS)
        assert exchanger.exchange(OutcomeBuffer())[0].unknown_worker == first
    assert apis.client.hget(apis.keys("worker_names"), CODE) == b"host:1"


def test_an_answer_that_is_lost_is_asked_for_again_and_the_job_is_claimed_once(
    apis: ShardApis, exchanger: ExchangeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        apis.add()
    exchanger.prepare(**ASKS)
    fail_once(exchanger, monkeypatch)
    assert exchanger.in_flight is InFlight.EXCHANGE
    [claim] = exchanger.exchange(OutcomeBuffer())[0].claims
    assert exchanger.in_flight is InFlight.NOTHING
    assert apis.where(claim.raw_id) == ["leases"] and apis.inspection.counts().claimed == 1


def test_the_lease_counts_from_when_the_exchange_was_first_sent(
    apis: ShardApis, exchanger: ExchangeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis may have made the claim then, for all this process knows."""
    apis.add()
    exchanger.prepare(**ASKS)
    fail_once(exchanger, monkeypatch)
    assert exchanger._request
    sent_at = exchanger._request[0].sent_at
    [claim] = exchanger.exchange(OutcomeBuffer())[0].claims
    assert claim.sent_at == sent_at


def test_after_a_stale_exchange_it_is_another_worker_that_hands_the_outcomes_in(
    apis: ShardApis, exchanger: ExchangeSession
) -> None:
    apis.add()
    claim = take(exchanger)
    other = apis.store.claims(apis.shard, worker_id=CODE)
    for _ in range(3):
        other.settle_and_claim(other.prepare(**{**ASKS, "want": 0}))
    ended = OutcomeBuffer()
    exchanger.prepare(**ASKS, ended=[(claim, Outcome(kind=OutcomeKind.SUCCEEDED))])
    assert exchanger.settling == [claim.lease]
    with pytest.raises(StaleExchange):
        exchanger.exchange(ended)
    assert exchanger.worker_id != CODE and exchanger.in_flight is InFlight.NOTHING and exchanger.settling == []
    exchanger.prepare(**{**ASKS, "want": 0}, ended=ended.take())
    answer, _ = exchanger.exchange(ended)
    assert answer.unknown_worker and not answer.lost and apis.where(claim.raw_id) == []
