"""Armed: what waits behind a bell is carried out when that rings, and once, whatever becomes of its answer."""

import select
from collections.abc import Iterator, Mapping
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from redis import Redis

from django_delayq.conf.config import WorkerConfig
from django_delayq.exceptions import StaleExchange, StoreUnavailable
from django_delayq.store.claims import ExchangeReply
from django_delayq.worker.blocking_claim import BlockingClaim
from django_delayq.worker.exchange_session import ExchangeSession, InFlight
from django_delayq.worker.outcome_buffer import OutcomeBuffer
from django_delayq.worker.queue_listener import QueueListener
from tests.shard_apis import ShardApis
from tests.subprocesses import listeners, until

ASKS: Mapping[str, Any] = {"queues": ("default",), "strict": True, "want": 0}
CODE = b"exchangr"
#: Seconds until a readable socket is given up.
PATIENCE = 30.0


class Bell:
    """An idle worker's side of its bell."""

    def __init__(self, apis: ShardApis, **config: Any) -> None:
        self.apis = apis
        self.served = QueueListener(apis.shard, ("default",))
        self.exchanger = ExchangeSession(apis.store.claims(apis.shard, worker_id=CODE), name="host:1")
        self.pool: Any = SimpleNamespace(size=1, held=0, recovery=None)
        self.claim = BlockingClaim(self.exchanger, self.served, self.pool, WorkerConfig(**config))
        # As a worker does before it first listens: by then the server knows it, and the script.
        self.exchanger.prepare(**ASKS)
        assert self.exchange().unknown_worker

    def arm(self, *, idle: bool = True, seconds: float = 5.0) -> int:
        return self.claim.listen(idle=idle, wanted=True, until=monotonic() + seconds)

    def rings(self) -> None:
        assert select.select([self.served.listen(wanted=False, block=1)], [], [], PATIENCE)[0]
        assert self.claim.consume_wakeup(wanted=False)

    def exchange(self) -> ExchangeReply:
        return self.exchanger.exchange(OutcomeBuffer())[0]

    def until_claimed(self) -> None:
        """Wait until Redis has carried it out; its answer waits to be read."""
        until(lambda: self.apis.inspection.counts().claimed == 1, what="a claim")

    @property
    def unconfirmed(self) -> set[bytes]:
        return set(self.apis.client.smembers(self.apis.keys("unconfirmed")))


@pytest.fixture
def bell(apis: ShardApis) -> Iterator[Bell]:
    made = Bell(apis)
    yield made
    made.served.close()


def test_what_is_armed_brings_what_comes_with_the_bell(apis: ShardApis, bell: Bell) -> None:
    bell.arm()
    assert bell.exchanger.in_flight is InFlight.BLOCKING and bell.claim.wait(wanted=True) > 1
    raw_id = apis.add()
    bell.until_claimed()
    bell.rings()
    assert bell.exchanger.in_flight is not InFlight.BLOCKING and bell.claim.wait(wanted=True) == 0
    answer = bell.exchange()
    [claim] = answer.claims
    assert answer.blocking and claim.raw_id == raw_id and bell.exchanger.in_flight is InFlight.NOTHING


def test_its_claim_is_unconfirmed_until_the_worker_says_so(apis: ShardApis, bell: Bell) -> None:
    bell.arm()
    apis.add()
    bell.rings()
    answer = bell.exchange()
    assert bell.unconfirmed == {claim.lease for claim in answer.claims}
    assert bell.claim.confirm(answer)
    until(lambda: not bell.unconfirmed, what="the mark")
    # The answer to the mark is not taken for a bell.
    bell.arm()
    assert not select.select([bell.served.listen(wanted=False, block=1)], [], [], 0)[0]
    second = apis.add()
    bell.rings()
    assert [claim.raw_id for claim in bell.exchange().claims] == [second]


def test_it_asks_for_one_and_wakes_others_for_the_rest(apis: ShardApis, bell: Bell) -> None:
    bell.arm()
    apis.enqueue(*(apis.draft() for _ in range(3)))
    bell.rings()
    answer = bell.exchange()
    assert len(answer.claims) == 1 and answer.has_more
    assert apis.client.llen(apis.keys.notify("default")) == 1


def test_a_claim_for_which_no_slot_is_left_is_not_confirmed(apis: ShardApis, bell: Bell) -> None:
    bell.arm()
    apis.add()
    bell.rings()
    bell.pool.held = 1
    assert not bell.claim.confirm(bell.exchange())
    assert len(bell.unconfirmed) == 1


def test_a_claim_whose_connection_is_gone_is_not_confirmed(apis: ShardApis, bell: Bell) -> None:
    bell.arm()
    apis.add()
    bell.rings()
    answer = bell.exchange()
    bell.served.close()
    assert not bell.claim.confirm(answer)


def test_what_no_bell_brought_needs_no_mark(apis: ShardApis, bell: Bell) -> None:
    apis.add()
    bell.exchanger.prepare(**{**ASKS, "want": 1})
    answer = bell.exchange()
    assert answer.claims and bell.claim.confirm(answer) and not bell.unconfirmed


@pytest.mark.parametrize("idle", [True, False])
def test_it_is_armed_once_and_where_the_worker_is_idle(apis: ShardApis, bell: Bell, idle: bool) -> None:
    bell.arm(idle=False)
    assert bell.exchanger.in_flight is not InFlight.BLOCKING
    # Behind the pop that is outstanding already.
    bell.arm(idle=idle)
    bell.arm(idle=idle)
    assert bell.exchanger.in_flight is (InFlight.BLOCKING if idle else InFlight.NOTHING)
    raw_id = apis.add()
    assert select.select([bell.served.listen(wanted=False, block=1)], [], [], PATIENCE)[0]
    assert apis.where(raw_id) == (["leases"] if idle else ["ready:default"])


def test_where_the_setting_says_so_nothing_is_sent_behind_a_pop(apis: ShardApis) -> None:
    bell = Bell(apis, claim_behind_pop=False)
    bell.arm()
    assert bell.exchanger.in_flight is InFlight.NOTHING
    bell.served.close()


def test_a_pop_that_ends_without_a_bell_is_an_exchange_as_well(apis: ShardApis, bell: Bell) -> None:
    bell.arm(seconds=0.1)
    assert select.select([bell.served.listen(wanted=False, block=1)], [], [], PATIENCE)[0]
    assert not bell.claim.consume_wakeup(wanted=True)
    answer = bell.exchange()
    assert answer.claimed and not answer.claims


def test_no_pop_lasts_longer_than_a_third_of_a_lease(apis: ShardApis) -> None:
    bell = Bell(apis, lease_us=1_500_000)
    bell.arm(seconds=3_600)
    assert bell.claim.wait(wanted=True) <= 0.5 + 1
    bell.served.close()


def test_an_answer_that_is_lost_is_asked_for_again_and_the_job_is_claimed_once(apis: ShardApis, bell: Bell) -> None:
    for _ in range(2):
        apis.add()
    bell.arm()
    bell.until_claimed()
    bell.claim.cancel()
    assert bell.served.wakeup_missed and not bell.served.listening
    answer = bell.exchange()
    [claim] = answer.claims
    assert apis.where(claim.raw_id) == ["leases"] and apis.inspection.counts().claimed == 1
    assert not bell.claim.confirm(answer)


def test_an_answer_that_breaks_off_is_asked_for_again(apis: ShardApis, bell: Bell) -> None:
    apis.add()
    bell.arm()
    bell.rings()
    bell.served.close()
    with pytest.raises(StoreUnavailable):
        bell.exchange()
    [claim] = bell.exchange().claims
    assert apis.where(claim.raw_id) == ["leases"]


def test_a_pop_that_breaks_off_takes_nothing_that_came_since(apis: ShardApis, bell: Bell, client: Redis) -> None:
    bell.arm()
    until(lambda: listeners(client) == 1, what="the pop")
    for number in [int(each["id"]) for each in client.client_list() if each["cmd"] == "blpop"]:
        client.client_kill_filter(_id=str(number))
    assert select.select([bell.served.listen(wanted=False, block=1)], [], [], PATIENCE)[0]
    with pytest.raises(StoreUnavailable):
        bell.claim.consume_wakeup(wanted=True)
    raw_id = apis.add()
    # It may be asked for after a long outage: a lease that counts from before it would not be trusted any more.
    assert bell.exchange().claims == [] and apis.where(raw_id) == ["ready:default"]


def test_one_that_is_overdue_is_disarmed(
    apis: ShardApis, bell: Bell, client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    bell.arm()
    late = monotonic() + 60
    monkeypatch.setattr("django_delayq.worker.blocking_claim.monotonic", lambda: late)
    assert bell.claim.wait(wanted=True) == 0 and bell.exchanger.in_flight is not InFlight.BLOCKING
    until(lambda: listeners(client) == 0, what="the connection's end")
    assert bell.exchange().claims == []


def test_what_is_disarmed_takes_nothing_and_leaves_the_bell_to_others(apis: ShardApis, bell: Bell) -> None:
    """Its connection may be closed too late: Redis carries it out all the same."""
    for later in (False, True):
        bell.arm()
        waker, bell.served._listener = bell.served._listener, apis.shard.blocking_listener()
        bell.claim.cancel()
        assert bell.exchange().claims == []
        if later:
            bell.exchanger.prepare(**ASKS)
            bell.exchange()
        raw_id = apis.add()
        assert select.select([waker], [], [], PATIENCE)[0]
        waker.close()
        assert apis.where(raw_id) == ["ready:default"]
        assert apis.client.llen(apis.keys.notify("default")) == 1
        bell.arm()
        bell.rings()
        assert [claim.raw_id for claim in bell.exchange().claims] == [raw_id]


def test_one_of_a_worker_that_has_left_takes_nothing(apis: ShardApis, bell: Bell) -> None:
    bell.arm()
    apis.store.process_reports(apis.shard).deregister(CODE, {})
    raw_id = apis.add()
    bell.rings()
    assert apis.where(raw_id) == ["ready:default"]
    assert apis.client.llen(apis.keys.notify("default")) == 1
    assert not apis.client.exists(apis.keys("exchanges"), apis.keys("workers"))
    # A server that was flushed knows nobody: the worker hears of it, and asks again.
    answer = bell.exchange()
    assert answer.unknown_worker and answer.has_more and not answer.claims


def test_after_a_script_flush_it_brings_the_same(apis: ShardApis, bell: Bell) -> None:
    bell.arm()
    apis.client.script_flush()
    raw_id = apis.add()
    bell.rings()
    assert [claim.raw_id for claim in bell.exchange().claims] == [raw_id]


def test_after_a_stale_one_it_is_another_worker_that_asks(apis: ShardApis, bell: Bell) -> None:
    bell.arm()
    other = apis.store.claims(apis.shard, worker_id=CODE)
    for _ in range(9):
        other.settle_and_claim(other.prepare(**ASKS))
    apis.add()
    bell.rings()
    with pytest.raises(StaleExchange):
        bell.exchange()
    assert bell.exchanger.worker_id != CODE and bell.exchanger.in_flight is InFlight.NOTHING


def test_one_that_is_not_wanted_any_more_is_disarmed(bell: Bell, client: Redis) -> None:
    bell.arm()
    assert bell.claim.wait(wanted=False) == 0 and bell.exchanger.in_flight is not InFlight.BLOCKING
    until(lambda: listeners(client) == 0, what="the connection's end")
    assert not bell.exchange().claimed
