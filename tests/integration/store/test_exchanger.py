"""Exchanger: what is armed behind a bell is carried out when that rings, and once, whatever becomes of its answer."""

import select
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import Any

import pytest
from redis import Redis

from django_delayq.clock import lease_time
from django_delayq.endings import Endings
from django_delayq.exceptions import StaleExchange, StoreUnavailable
from django_delayq.exchanger import Exchanger
from django_delayq.outcome import Ending, Outcome
from django_delayq.store.exchange import ARMED, Answer
from django_delayq.store.waker import Waker
from tests.doors import Doors
from tests.processes import listeners, until

SERVES: Mapping[str, Any] = {"queues": ("default",), "strict": False}
ASKS: Mapping[str, Any] = {**SERVES, "want": 1}
CODE = b"exchangr"
#: Seconds until a readable socket is given up.
PATIENCE = 30.0


class Bell:
    """An exchanger, and the connection behind whose pop it arms."""

    def __init__(self, doors: Doors) -> None:
        self.doors = doors
        self.exchanger = Exchanger(doors.store.claims(doors.shard, worker=CODE), name="host:1")
        self.waker: Waker = doors.shard.waker()
        self.begin()

    def begin(self) -> None:
        """Do as a worker does before it first listens: by then the server knows it, and the script."""
        self.exchanger.prepare(**{**ASKS, "want": 0})
        assert self.exchange().first

    def arm(self) -> None:
        keys = [self.doors.keys.bell("default")]
        self.waker.listen(keys, now=monotonic(), behind=lambda: self.exchanger.arm(**SERVES))

    def rings(self) -> None:
        assert select.select([self.waker], [], [], PATIENCE)[0]
        self.waker.take()
        self.exchanger.fired()

    def until_claimed(self, number: int = 1) -> None:
        """Wait until Redis has carried it out; its answer waits to be read."""
        until(lambda: self.doors.inspection.counts().claimed == number, what="claims")

    def exchange(self) -> Answer:
        return self.exchanger.exchange(Endings())[0]


@pytest.fixture
def bell(doors: Doors) -> Iterator[Bell]:
    made = Bell(doors)
    yield made
    made.waker.close()


def test_what_is_armed_brings_what_comes_with_the_bell(doors: Doors, bell: Bell) -> None:
    armed_at = lease_time()
    bell.arm()
    sent_at, armed_by = lease_time(), monotonic()
    raw_id = doors.add()
    bell.until_claimed()
    assert not bell.exchanger.under_way
    bell.rings()
    assert bell.exchanger.under_way and bell.exchanger.settling == [] and bell.exchanger.promised == 0
    read_at = monotonic()
    [claim] = bell.exchange().claims
    assert claim.raw_id == raw_id and not bell.exchanger.under_way
    # Redis may have made the claim right after it was armed, for all this process knows; it came in just now.
    assert armed_at <= claim.sent_at <= sent_at
    assert armed_by < read_at <= claim.taken_at


def test_what_is_armed_waits_while_others_are_answered(doors: Doors, bell: Bell) -> None:
    other = doors.add(queue="mail")
    bell.arm()
    assert bell.exchanger.promised == 1
    bell.exchanger.prepare(**{**ASKS, "queues": ("mail",)})
    [claim] = bell.exchange().claims
    assert claim.raw_id == other
    bell.exchanger.prepare(**{**ASKS, "want": 0}, ended=[(claim, Outcome(ending=Ending.SUCCEEDED))])
    assert bell.exchanger.settling == [claim.lease]
    assert not bell.exchange().lost
    assert doors.where(other) == []
    raw_id = doors.add()
    bell.rings()
    assert [claim.raw_id for claim in bell.exchange().claims] == [raw_id]


def test_an_exchange_of_its_own_number_does_not_make_another_stale(doors: Doors, bell: Bell) -> None:
    bell.arm()
    bell.exchanger.prepare(**ASKS)
    bell.exchange()
    doors.add()
    bell.rings()
    bell.exchanger.exchange(Endings())
    for _ in range(2):
        bell.exchanger.prepare(**ASKS)
        bell.exchange()
    assert bell.exchanger.code == CODE


def test_an_answer_that_is_lost_is_asked_for_again_and_the_job_is_claimed_once(doors: Doors, bell: Bell) -> None:
    for _ in range(2):
        doors.add()
    bell.arm()
    bell.until_claimed()
    bell.waker.close()
    assert bell.exchanger.disarm() and bell.exchanger.under_way
    [claim] = bell.exchange().claims
    assert doors.where(claim.raw_id) == ["leases"] and doors.inspection.counts().claimed == 1


def test_an_answer_that_breaks_off_is_asked_for_again(doors: Doors, bell: Bell) -> None:
    doors.add()
    bell.arm()
    bell.rings()
    bell.waker._connection.disconnect()
    with pytest.raises(StoreUnavailable):
        bell.exchange()
    [claim] = bell.exchange().claims
    assert doors.where(claim.raw_id) == ["leases"]


def test_what_is_disarmed_takes_nothing_whatever_rings(doors: Doors, bell: Bell) -> None:
    bell.arm()
    assert bell.exchanger.disarm()
    answer = bell.exchange()
    assert answer.claims == [] and not bell.exchanger.under_way and not bell.exchanger.disarm()
    # Its connection is not closed: Redis carries it out all the same.
    raw_id = doors.add()
    assert select.select([bell.waker], [], [], PATIENCE)[0]
    assert doors.where(raw_id) == ["ready:default"]


def test_what_is_disarmed_because_its_connection_broke_leaves_the_work_that_came_since(
    doors: Doors, bell: Bell, client: Redis
) -> None:
    bell.arm()
    bell.waker.close()
    until(lambda: listeners(client) == 0, what="the connection's end")
    raw_id = doors.add()
    assert bell.exchanger.disarm()
    # It may be asked for after a long outage: a lease that counts from before it would not be trusted any more.
    assert bell.exchange().claims == [] and doors.where(raw_id) == ["ready:default"]


def test_it_is_not_disarmed_while_another_is_under_way(doors: Doors, bell: Bell) -> None:
    bell.arm()
    bell.exchanger.prepare(**ASKS)
    assert not bell.exchanger.disarm()
    bell.exchange()
    assert bell.exchanger.disarm()


def test_after_a_script_flush_it_brings_the_same(doors: Doors, bell: Bell) -> None:
    bell.arm()
    doors.client.script_flush()
    raw_id = doors.add()
    bell.rings()
    assert [claim.raw_id for claim in bell.exchange().claims] == [raw_id]


def test_after_a_flush_of_all_it_says_that_the_server_does_not_know_this_worker(doors: Doors, bell: Bell) -> None:
    bell.arm()
    doors.add()
    bell.rings()
    assert not bell.exchange().first
    bell.arm()
    doors.client.flushall()
    doors.add()
    bell.rings()
    assert bell.exchange().first


def test_after_a_stale_exchange_it_is_another_worker_that_arms(doors: Doors, bell: Bell) -> None:
    other = doors.store.claims(doors.shard, worker=CODE)
    for _ in range(3):
        other.exchange(other.prepare(**ASKS, armed=True))
    doors.add()
    bell.arm()
    bell.rings()
    with pytest.raises(StaleExchange):
        bell.exchange()
    assert bell.exchanger.code != CODE and not bell.exchanger.under_way
    bell.begin()
    bell.arm()
    bell.rings()
    assert len(bell.exchange().claims) == 1
    # Its lease is that of the worker that took it.
    raw_id = doors.add()
    bell.arm()
    bell.rings()
    [claim] = bell.exchange().claims
    assert claim.raw_id == raw_id and bell.exchanger.code in claim.lease


def test_a_claim_keeps_the_code_it_was_made_under(doors: Doors, bell: Bell) -> None:
    """Another exchange went stale while this one waited, and the worker has another code."""
    bell.arm()
    other = doors.store.claims(doors.shard, worker=CODE)
    for _ in range(9):
        other.exchange(other.prepare(**{**ASKS, "want": 0}))
    bell.exchanger.prepare(**ASKS)
    with pytest.raises(StaleExchange):
        bell.exchange()
    assert bell.exchanger.code != CODE
    raw_id = doors.add()
    bell.rings()
    [claim] = bell.exchange().claims
    assert claim.raw_id == raw_id and CODE in claim.lease
    bell.exchanger.prepare(**{**ASKS, "want": 0}, ended=[(claim, Outcome(ending=Ending.SUCCEEDED))])
    assert not bell.exchange().lost


def test_one_of_a_worker_that_has_left_takes_nothing_and_leaves_the_bell_to_others(doors: Doors, bell: Bell) -> None:
    """Redis does not know yet that its connection is gone."""
    bell.arm()
    doors.store.reports(doors.shard).leave(CODE, {})
    raw_id = doors.add()
    assert select.select([bell.waker], [], [], PATIENCE)[0]
    assert doors.where(raw_id) == ["ready:default"]
    assert doors.client.llen(doors.keys.bell("default")) == 1
    assert not doors.client.exists(doors.keys("exchanges"), doors.keys("workers"))


@pytest.mark.parametrize("later", [False, True])
def test_one_that_is_void_leaves_the_bell_to_others(doors: Doors, bell: Bell, later: bool) -> None:
    """Also where the worker has armed another one since."""
    bell.arm()
    assert bell.exchanger.disarm()
    bell.exchange()
    zombie = bell.waker
    bell.waker = doors.shard.waker()
    if later:
        bell.exchanger.arm(**SERVES)
        bell.exchanger.fired()
        bell.exchange()
    raw_id = doors.add()
    assert select.select([zombie], [], [], PATIENCE)[0]
    zombie.close()
    assert doors.where(raw_id) == ["ready:default"]
    assert doors.client.llen(doors.keys.bell("default")) == 1
    bell.arm()
    bell.rings()
    assert [claim.raw_id for claim in bell.exchange().claims] == [raw_id]


def test_the_record_of_what_was_armed_goes_with_its_worker(doors: Doors, bell: Bell) -> None:
    bell.arm()
    doors.add()
    bell.rings()
    bell.exchange()
    assert doors.client.hexists(doors.keys("exchanges"), CODE + ARMED)
    doors.store.reports(doors.shard).leave(CODE, {})
    assert not doors.client.exists(doors.keys("exchanges"))
