"""Exchange, sent again: the same number gets the same answer, an earlier one is refused."""

import pytest

from django_delayq.exceptions import StaleExchange
from django_delayq.job.outcome import Action
from tests.shard_apis import SECOND, START, Doors, ids, settlement


def test_exchange_sent_again_gets_the_same_claims(doors: Doors) -> None:
    doors.enqueue(*[doors.draft(number) for number in range(5)])
    worker = doors.worker()
    first = worker.take(3)
    doors.clock.advance(SECOND)
    second = worker.again()
    assert [claim.lease for claim in second.claims] == [claim.lease for claim in first.claims]
    assert [claim.job for claim in second.claims] == [claim.job for claim in first.claims]
    assert [claim.rank for claim in second.claims] == [claim.rank for claim in first.claims]
    assert len(doors.ready()) == 2


def test_exchange_sent_again_names_the_queues_of_its_claims(doors: Doors) -> None:
    doors.add(queue="b")
    doors.add(queue="a", priority=5)
    worker = doors.worker()
    first = worker.take(2, "a", "b")
    assert [claim.queue for claim in worker.again().claims] == [claim.queue for claim in first.claims] == ["a", "b"]


def test_exchange_sent_again_gives_only_what_is_still_held(doors: Doors) -> None:
    lapsed = doors.add()
    worker = doors.worker()
    worker.take()
    doors.lapse()
    assert worker.again().claims == []
    assert doors.where(lapsed) == ["ready:default"]


def test_exchange_sent_again_does_not_settle_twice(doors: Doors) -> None:
    raw_id = doors.add()
    worker = doors.worker()
    (claim,) = worker.take().claims
    worker.settle(claim, Action.RETRY, delay=SECOND)
    doors.clock.advance(SECOND)
    assert not worker.again().lost
    assert doors.schedule() == {raw_id: START + SECOND}


def test_exchange_sent_again_tells_the_same_losses(doors: Doors) -> None:
    doors.add()
    worker = doors.worker()
    (claim,) = worker.take().claims
    doors.lapse()
    doors.worker().take()
    doors.add()
    first = worker.take(1, settle=[settlement(claim, Action.ACKNOWLEDGE)])
    second = worker.again()
    assert second.lost == first.lost == {claim.lease}
    assert ids(second.claims) == ids(first.claims) != []


def test_exchange_sent_again_after_a_script_flush_is_still_the_same(doors: Doors) -> None:
    doors.add()
    worker = doors.worker()
    first = worker.take()
    doors.client.script_flush()
    assert [claim.lease for claim in worker.again().claims] == [claim.lease for claim in first.claims]


def test_earlier_exchange_is_refused_and_changes_nothing(doors: Doors) -> None:
    worker = doors.worker()
    worker.take()
    delayed = worker.last
    assert delayed is not None
    worker.take()
    raw_id = doors.add()
    with pytest.raises(StaleExchange):
        worker.door.settle_and_claim(delayed)
    assert doors.where(raw_id) == ["ready:default"]


def test_workers_do_not_disturb_one_anothers_numbers(doors: Doors) -> None:
    first, second = doors.worker(), doors.worker()
    for _ in range(3):
        first.take()
    raw_id = doors.add()
    assert ids(second.take().claims) == [raw_id]
