"""Settle and claim, repeated: the same number gets the same reply, an earlier one is refused."""

import pytest

from django_delayq.exceptions import StaleExchange
from django_delayq.job.outcome import Action
from tests.shard_apis import SECOND, START, ShardApis, ids, settlement


def test_a_repeated_exchange_gets_the_same_claims(apis: ShardApis) -> None:
    apis.enqueue(*[apis.draft(number) for number in range(5)])
    worker = apis.worker()
    first = worker.take(3)
    apis.clock.advance(SECOND)
    second = worker.again()
    assert [claim.lease for claim in second.claims] == [claim.lease for claim in first.claims]
    assert [claim.job for claim in second.claims] == [claim.job for claim in first.claims]
    assert [claim.rank for claim in second.claims] == [claim.rank for claim in first.claims]
    assert len(apis.ready()) == 2


def test_a_repeated_exchange_names_the_queues_of_its_claims(apis: ShardApis) -> None:
    apis.add(queue="b")
    apis.add(queue="a", priority=5)
    worker = apis.worker()
    first = worker.take(2, "a", "b")
    assert [claim.queue for claim in worker.again().claims] == [claim.queue for claim in first.claims] == ["a", "b"]


def test_a_repeated_exchange_returns_only_claims_that_are_still_held(apis: ShardApis) -> None:
    raw_id = apis.add()
    worker = apis.worker()
    worker.take()
    apis.expire_leases()
    assert worker.again().claims == []
    assert apis.where(raw_id) == ["ready:default"]


def test_a_repeated_exchange_does_not_settle_twice(apis: ShardApis) -> None:
    raw_id = apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    worker.settle(claim, Action.RETRY, delay=SECOND)
    apis.clock.advance(SECOND)
    assert not worker.again().lost
    assert apis.scheduled() == {raw_id: START + SECOND}


def test_a_repeated_exchange_returns_the_same_lost_leases(apis: ShardApis) -> None:
    apis.add()
    worker = apis.worker()
    (claim,) = worker.take().claims
    apis.expire_leases()
    apis.worker().take()
    apis.add()
    first = worker.take(1, settle=[settlement(claim, Action.ACKNOWLEDGE)])
    second = worker.again()
    assert second.lost == first.lost == {claim.lease}
    assert ids(second.claims) == ids(first.claims) != []


def test_a_repeated_exchange_after_a_script_flush_is_the_same(apis: ShardApis) -> None:
    apis.add()
    worker = apis.worker()
    first = worker.take()
    apis.client.script_flush()
    assert [claim.lease for claim in worker.again().claims] == [claim.lease for claim in first.claims]


def test_earlier_exchange_is_refused_and_changes_nothing(apis: ShardApis) -> None:
    worker = apis.worker()
    worker.take()
    delayed = worker.last
    assert delayed is not None
    worker.take()
    raw_id = apis.add()
    with pytest.raises(StaleExchange):
        worker.api.settle_and_claim(delayed)
    assert apis.where(raw_id) == ["ready:default"]


def test_workers_do_not_disturb_one_anothers_numbers(apis: ShardApis) -> None:
    first, second = apis.worker(), apis.worker()
    for _ in range(3):
        first.take()
    raw_id = apis.add()
    assert ids(second.take().claims) == [raw_id]
