"""Blocking claim: an exchange chained to a blocking pop runs when the pop ends, and once, even if its reply is lost."""

import select
from collections.abc import Iterator, Mapping
from socket import socketpair
from time import monotonic
from types import SimpleNamespace
from typing import Any

import pytest
from redis import Redis

from django_delayq.clock import lease_time
from django_delayq.conf.config import WorkerConfig
from django_delayq.exceptions import StaleExchange, StoreUnavailable
from django_delayq.store.claims import Claims, ExchangeReply
from django_delayq.store.process_reports import ProcessReports
from django_delayq.worker.claiming import blocking_claim
from django_delayq.worker.claiming.blocking_claim import BlockingClaim
from django_delayq.worker.claiming.queue_listener import QueueListener
from django_delayq.worker.exchange_session import ExchangeSession, InFlight
from django_delayq.worker.outcome_buffer import OutcomeBuffer
from tests.shard_apis import HOUR, ShardApis
from tests.stepped_worker import WorkerClock
from tests.subprocesses import listeners, until

ASKS: Mapping[str, Any] = {"queues": ("default",), "strict": True, "want": 0}
CODE = b"exchangr"
#: Seconds to wait for a readable socket.
PATIENCE = 30.0


class IdleWorker:
    """An idle worker that waits for a notification."""

    def __init__(self, apis: ShardApis, **config: Any) -> None:
        self.apis = apis
        self.clock = WorkerClock()
        self.served = QueueListener(apis.shard, ("default",))
        self.session = ExchangeSession(Claims(apis.shard, worker_id=CODE), name="host:1")
        self.pool: Any = SimpleNamespace(size=1, held=0, recovery=None)
        self.claim = BlockingClaim(self.session, self.served, self.pool, WorkerConfig(**config), clock=self.clock)
        # As a worker does before it first listens: then the server knows the worker and the script.
        self.session.prepare(**ASKS)
        assert self.exchange().unknown_worker

    def listen(self, *, idle: bool = True, seconds: float = 5.0) -> int:
        return self.claim.listen(idle=idle, wanted=True, until=monotonic() + seconds)

    def until_notified(self) -> None:
        assert select.select([self.served.listen(wanted=False, block=1)], [], [], PATIENCE)[0]
        assert self.claim.consume_wakeup(wanted=False)

    def exchange(self) -> ExchangeReply:
        return self.session.exchange(OutcomeBuffer())[0]

    def until_claimed(self) -> None:
        """Wait until Redis has run the exchange; its reply is not read yet."""
        until(lambda: self.apis.inspection.counts().claimed == 1, what="a claim")

    @property
    def unconfirmed(self) -> set[bytes]:
        return set(self.apis.client.smembers(self.apis.keys("unconfirmed")))


@pytest.fixture
def idle_worker(apis: ShardApis) -> Iterator[IdleWorker]:
    made = IdleWorker(apis)
    yield made
    made.served.close()


def test_a_chained_exchange_claims_the_job_whose_notification_ends_the_pop(
    apis: ShardApis, idle_worker: IdleWorker
) -> None:
    idle_worker.listen()
    assert idle_worker.session.in_flight is InFlight.BLOCKING and idle_worker.claim.wait(wanted=True) > 1
    raw_id = apis.add()
    idle_worker.until_claimed()
    idle_worker.until_notified()
    assert idle_worker.session.in_flight is not InFlight.BLOCKING and idle_worker.claim.wait(wanted=True) == 0
    answer = idle_worker.exchange()
    [claim] = answer.claims
    assert answer.blocking and claim.raw_id == raw_id and idle_worker.session.in_flight is InFlight.NOTHING


def test_its_claim_is_unconfirmed_until_the_worker_confirms_it(apis: ShardApis, idle_worker: IdleWorker) -> None:
    idle_worker.listen()
    apis.add()
    idle_worker.until_notified()
    answer = idle_worker.exchange()
    assert idle_worker.unconfirmed == {claim.lease for claim in answer.claims}
    assert idle_worker.claim.confirm(answer)
    until(lambda: not idle_worker.unconfirmed, what="the mark")
    # The reply to the confirmation is not taken for a notification.
    idle_worker.listen()
    assert not select.select([idle_worker.served.listen(wanted=False, block=1)], [], [], 0)[0]
    second = apis.add()
    idle_worker.until_notified()
    assert [claim.raw_id for claim in idle_worker.exchange().claims] == [second]


def test_it_claims_one_job_and_notifies_others_of_the_rest(apis: ShardApis, idle_worker: IdleWorker) -> None:
    idle_worker.listen()
    apis.enqueue(*(apis.draft() for _ in range(3)))
    idle_worker.until_notified()
    answer = idle_worker.exchange()
    assert len(answer.claims) == 1 and answer.has_more
    assert apis.client.llen(apis.keys.notify("default")) == 1


def test_a_claim_without_a_free_slot_is_not_confirmed(apis: ShardApis, idle_worker: IdleWorker) -> None:
    idle_worker.listen()
    apis.add()
    idle_worker.until_notified()
    idle_worker.pool.held = 1
    assert not idle_worker.claim.confirm(idle_worker.exchange())
    assert len(idle_worker.unconfirmed) == 1


def test_a_claim_whose_connection_is_gone_is_not_confirmed(apis: ShardApis, idle_worker: IdleWorker) -> None:
    idle_worker.listen()
    apis.add()
    idle_worker.until_notified()
    answer = idle_worker.exchange()
    idle_worker.served.close()
    assert not idle_worker.claim.confirm(answer)


def test_a_claim_of_an_ordinary_exchange_needs_no_confirmation(apis: ShardApis, idle_worker: IdleWorker) -> None:
    apis.add()
    idle_worker.session.prepare(**{**ASKS, "want": 1})
    answer = idle_worker.exchange()
    assert answer.claims and idle_worker.claim.confirm(answer) and not idle_worker.unconfirmed


@pytest.mark.parametrize("idle", [True, False])
def test_it_is_sent_once_and_only_if_the_worker_is_idle(apis: ShardApis, idle_worker: IdleWorker, idle: bool) -> None:
    idle_worker.listen(idle=False)
    assert idle_worker.session.in_flight is not InFlight.BLOCKING
    # Chained to the pop that is outstanding already.
    idle_worker.listen(idle=idle)
    idle_worker.listen(idle=idle)
    assert idle_worker.session.in_flight is (InFlight.BLOCKING if idle else InFlight.NOTHING)
    raw_id = apis.add()
    assert select.select([idle_worker.served.listen(wanted=False, block=1)], [], [], PATIENCE)[0]
    assert apis.where(raw_id) == (["leases"] if idle else ["ready:default"])


def test_nothing_is_chained_if_the_setting_forbids_it(apis: ShardApis) -> None:
    idle_worker = IdleWorker(apis, claim_behind_pop=False)
    idle_worker.listen()
    assert idle_worker.session.in_flight is InFlight.NOTHING
    idle_worker.served.close()


def test_the_exchange_also_runs_after_a_pop_that_timed_out(
    apis: ShardApis, idle_worker: IdleWorker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking_claim, "_IDLE_POP", 0.1)
    idle_worker.listen()
    assert select.select([idle_worker.served.listen(wanted=False, block=1)], [], [], PATIENCE)[0]
    assert not idle_worker.claim.consume_wakeup(wanted=True)
    answer = idle_worker.exchange()
    assert answer.claimed and not answer.claims


def test_the_lease_of_a_claim_counts_from_the_last_sweep(apis: ShardApis, idle_worker: IdleWorker) -> None:
    idle_worker.listen()
    before = lease_time()
    idle_worker.claim.sweep()
    assert idle_worker.session.in_flight is InFlight.BLOCKING
    apis.add()
    idle_worker.until_notified()
    [claim] = idle_worker.exchange().claims
    assert before <= claim.sent_at


def test_a_sweep_notifies_of_a_ready_job_whose_notification_was_lost(apis: ShardApis, idle_worker: IdleWorker) -> None:
    raw_id = apis.add(delay=HOUR)
    idle_worker.listen()
    # As a promotion that notifies nobody.
    [member] = apis.client.zrange(apis.keys.scheduled("default"), 0, -1)
    apis.client.zrem(apis.keys.scheduled("default"), member)
    apis.client.zadd(apis.keys.ready("default"), {member: 1})
    idle_worker.claim.sweep()
    idle_worker.until_notified()
    assert [claim.raw_id for claim in idle_worker.exchange().claims] == [raw_id]


def test_a_sweep_finds_that_the_reply_was_lost(apis: ShardApis, idle_worker: IdleWorker) -> None:
    """The server takes the dead connection for a living one."""
    idle_worker.listen()
    connection, (deaf, far) = idle_worker.served._listener._connection, socketpair()
    lost, connection._sock = connection._sock, deaf
    raw_id = apis.add()
    idle_worker.until_claimed()
    idle_worker.claim.sweep()
    assert idle_worker.session.in_flight is InFlight.EXCHANGE
    answer = idle_worker.exchange()
    assert [claim.raw_id for claim in answer.claims] == [raw_id]
    # The worker gives it back.
    assert not idle_worker.claim.confirm(answer)
    lost.close(), far.close()


def test_a_sweep_finds_new_queues(apis: ShardApis, idle_worker: IdleWorker) -> None:
    all_queues = QueueListener(apis.shard, ())
    session = ExchangeSession(Claims(apis.shard), name="host:2")
    claim = BlockingClaim(session, all_queues, idle_worker.pool, WorkerConfig())
    session.prepare(queues=(), strict=False, want=0)
    all_queues.mark_if_stale(session.exchange(OutcomeBuffer())[0].queues_version)
    all_queues.refresh()
    claim.listen(idle=True, wanted=True, until=monotonic() + 5)
    # Its notification is lost.
    apis.add(queue="new")
    apis.client.delete(apis.keys("notify"))
    claim.sweep()
    assert session.in_flight is not InFlight.BLOCKING and all_queues.wakeup_missed
    all_queues.refresh()
    assert all_queues.queues == ("new",)
    all_queues.close()


def test_after_a_lost_reply_the_exchange_is_repeated_and_the_job_is_claimed_once(
    apis: ShardApis, idle_worker: IdleWorker
) -> None:
    for _ in range(2):
        apis.add()
    idle_worker.listen()
    idle_worker.until_claimed()
    idle_worker.claim.cancel()
    assert idle_worker.served.wakeup_missed and not idle_worker.served._listener.listening
    answer = idle_worker.exchange()
    [claim] = answer.claims
    assert apis.where(claim.raw_id) == ["leases"] and apis.inspection.counts().claimed == 1
    assert not idle_worker.claim.confirm(answer)


def test_after_a_broken_reply_the_exchange_is_repeated(apis: ShardApis, idle_worker: IdleWorker) -> None:
    apis.add()
    idle_worker.listen()
    idle_worker.until_notified()
    idle_worker.served.close()
    with pytest.raises(StoreUnavailable):
        idle_worker.exchange()
    [claim] = idle_worker.exchange().claims
    assert apis.where(claim.raw_id) == ["leases"]


def test_a_broken_pop_claims_no_job_that_came_later(apis: ShardApis, idle_worker: IdleWorker, client: Redis) -> None:
    idle_worker.listen()
    until(lambda: listeners(client) == 1, what="the pop")
    for number in [int(each["id"]) for each in client.client_list() if each["cmd"] == "blpop"]:
        client.client_kill_filter(_id=str(number))
    assert select.select([idle_worker.served.listen(wanted=False, block=1)], [], [], PATIENCE)[0]
    with pytest.raises(StoreUnavailable):
        idle_worker.claim.consume_wakeup(wanted=True)
    raw_id = apis.add()
    # It may be repeated after a long outage: a lease that counts from before it would not be trusted any more.
    assert idle_worker.exchange().claims == [] and apis.where(raw_id) == ["ready:default"]


def test_an_overdue_exchange_is_cancelled(apis: ShardApis, idle_worker: IdleWorker, client: Redis) -> None:
    idle_worker.listen()
    idle_worker.clock.ahead = 62
    assert idle_worker.claim.wait(wanted=True) == 0 and idle_worker.session.in_flight is not InFlight.BLOCKING
    until(lambda: listeners(client) == 0, what="the connection's end")
    assert idle_worker.exchange().claims == []


def test_a_cancelled_exchange_claims_nothing_and_leaves_the_notification_to_others(
    apis: ShardApis, idle_worker: IdleWorker
) -> None:
    """Its connection may be closed too late: then Redis runs the exchange all the same."""
    for later in (False, True):
        idle_worker.listen()
        listener, idle_worker.served._listener = idle_worker.served._listener, apis.shard.blocking_listener()
        idle_worker.claim.cancel()
        assert idle_worker.exchange().claims == []
        if later:
            idle_worker.session.prepare(**ASKS)
            idle_worker.exchange()
        raw_id = apis.add()
        assert select.select([listener], [], [], PATIENCE)[0]
        listener.close()
        assert apis.where(raw_id) == ["ready:default"]
        assert apis.client.llen(apis.keys.notify("default")) == 1
        idle_worker.listen()
        idle_worker.until_notified()
        assert [claim.raw_id for claim in idle_worker.exchange().claims] == [raw_id]


def test_the_exchange_of_a_worker_that_has_left_claims_nothing(apis: ShardApis, idle_worker: IdleWorker) -> None:
    idle_worker.listen()
    ProcessReports(apis.shard).deregister(CODE, {})
    raw_id = apis.add()
    idle_worker.until_notified()
    assert apis.where(raw_id) == ["ready:default"]
    assert apis.client.llen(apis.keys.notify("default")) == 1
    assert not apis.client.exists(apis.keys("exchanges"), apis.keys("workers"))
    # A server that was flushed knows no worker: the reply says so, and the worker repeats the exchange.
    answer = idle_worker.exchange()
    assert answer.unknown_worker and answer.has_more and not answer.claims


def test_it_works_after_a_script_flush(apis: ShardApis, idle_worker: IdleWorker) -> None:
    idle_worker.listen()
    apis.client.script_flush()
    raw_id = apis.add()
    idle_worker.until_notified()
    assert [claim.raw_id for claim in idle_worker.exchange().claims] == [raw_id]


def test_after_a_stale_exchange_the_worker_has_another_id(apis: ShardApis, idle_worker: IdleWorker) -> None:
    idle_worker.listen()
    other = Claims(apis.shard, worker_id=CODE)
    for _ in range(9):
        other.settle_and_claim(other.prepare(**ASKS))
    apis.add()
    idle_worker.until_notified()
    with pytest.raises(StaleExchange):
        idle_worker.exchange()
    assert idle_worker.session.worker_id != CODE and idle_worker.session.in_flight is InFlight.NOTHING


def test_an_exchange_that_is_not_wanted_any_more_is_cancelled(idle_worker: IdleWorker, client: Redis) -> None:
    idle_worker.listen()
    assert idle_worker.claim.wait(wanted=False) == 0 and idle_worker.session.in_flight is not InFlight.BLOCKING
    until(lambda: listeners(client) == 0, what="the connection's end")
    assert not idle_worker.exchange().claimed
