"""BlockingClaim: a blocking request claims one job when a notification comes, and once, even if its reply is lost."""

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

REQUEST: Mapping[str, Any] = {"queues": ("default",), "strict": True, "want": 0}
WORKER_ID = b"worker 1"
#: Seconds until a readable socket is given up.
PATIENCE = 30.0


class IdleWorker:
    """The parts of a worker that listens for notifications."""

    def __init__(self, apis: ShardApis, **config: Any) -> None:
        self.apis = apis
        self.queues = QueueListener(apis.shard, ("default",))
        self.session = ExchangeSession(apis.store.claims(apis.shard, worker_id=WORKER_ID), name="host:1")
        self.pool: Any = SimpleNamespace(size=1, held=0, recovery=None)
        self.claim = BlockingClaim(self.session, self.queues, self.pool, WorkerConfig(**config))
        # As a worker does before it first listens: then the server knows the worker and the script.
        self.session.prepare(**REQUEST)
        assert self.exchange().unknown_worker

    def listen(self, *, idle: bool = True, seconds: float = 5.0) -> int:
        return self.claim.listen(idle=idle, wanted=True, until=monotonic() + seconds)

    def read_notification(self) -> None:
        assert select.select([self.queues.listen(wanted=False, block=1)], [], [], PATIENCE)[0]
        assert self.claim.consume_wakeup(wanted=False)

    def exchange(self) -> ExchangeReply:
        return self.session.exchange(OutcomeBuffer())[0]

    def until_claimed(self) -> None:
        """Wait until Redis has made the claim; its reply is not read yet."""
        until(lambda: self.apis.inspection.counts().claimed == 1, what="a claim")

    @property
    def unconfirmed(self) -> set[bytes]:
        return set(self.apis.client.smembers(self.apis.keys("unconfirmed")))


@pytest.fixture
def idle_worker(apis: ShardApis) -> Iterator[IdleWorker]:
    made = IdleWorker(apis)
    yield made
    made.queues.close()


def test_a_blocking_request_claims_the_job_that_a_notification_announces(
    apis: ShardApis, idle_worker: IdleWorker
) -> None:
    idle_worker.listen()
    assert idle_worker.session.in_flight is InFlight.BLOCKING and idle_worker.claim.wait(wanted=True) > 1
    raw_id = apis.add()
    idle_worker.until_claimed()
    idle_worker.read_notification()
    assert idle_worker.session.in_flight is not InFlight.BLOCKING and idle_worker.claim.wait(wanted=True) == 0
    reply = idle_worker.exchange()
    [claim] = reply.claims
    assert reply.blocking and claim.raw_id == raw_id and idle_worker.session.in_flight is InFlight.NOTHING


def test_its_claim_is_unconfirmed_until_the_worker_confirms_it(apis: ShardApis, idle_worker: IdleWorker) -> None:
    idle_worker.listen()
    apis.add()
    idle_worker.read_notification()
    reply = idle_worker.exchange()
    assert idle_worker.unconfirmed == {claim.lease for claim in reply.claims}
    assert idle_worker.claim.confirm(reply)
    until(lambda: not idle_worker.unconfirmed, what="the confirmation")
    # The reply to the confirmation is not mistaken for a notification.
    idle_worker.listen()
    assert not select.select([idle_worker.queues.listen(wanted=False, block=1)], [], [], 0)[0]
    second = apis.add()
    idle_worker.read_notification()
    assert [claim.raw_id for claim in idle_worker.exchange().claims] == [second]


def test_it_requests_one_claim_and_wakes_others_for_the_rest(apis: ShardApis, idle_worker: IdleWorker) -> None:
    idle_worker.listen()
    apis.enqueue(*(apis.draft() for _ in range(3)))
    idle_worker.read_notification()
    reply = idle_worker.exchange()
    assert len(reply.claims) == 1 and reply.has_more
    assert apis.client.llen(apis.keys.notify("default")) == 1


def test_a_claim_without_a_free_slot_is_not_confirmed(apis: ShardApis, idle_worker: IdleWorker) -> None:
    idle_worker.listen()
    apis.add()
    idle_worker.read_notification()
    idle_worker.pool.held = 1
    assert not idle_worker.claim.confirm(idle_worker.exchange())
    assert len(idle_worker.unconfirmed) == 1


def test_a_claim_is_not_confirmed_after_its_connection_closed(apis: ShardApis, idle_worker: IdleWorker) -> None:
    idle_worker.listen()
    apis.add()
    idle_worker.read_notification()
    reply = idle_worker.exchange()
    idle_worker.queues.close()
    assert not idle_worker.claim.confirm(reply)


def test_a_claim_of_a_plain_request_needs_no_confirmation(apis: ShardApis, idle_worker: IdleWorker) -> None:
    apis.add()
    idle_worker.session.prepare(**{**REQUEST, "want": 1})
    reply = idle_worker.exchange()
    assert reply.claims and idle_worker.claim.confirm(reply) and not idle_worker.unconfirmed


@pytest.mark.parametrize("idle", [True, False])
def test_it_is_sent_once_and_only_if_the_worker_is_idle(apis: ShardApis, idle_worker: IdleWorker, idle: bool) -> None:
    idle_worker.listen(idle=False)
    assert idle_worker.session.in_flight is not InFlight.BLOCKING
    # It is chained behind the BLPOP that already waits.
    idle_worker.listen(idle=idle)
    idle_worker.listen(idle=idle)
    assert idle_worker.session.in_flight is (InFlight.BLOCKING if idle else InFlight.NOTHING)
    raw_id = apis.add()
    assert select.select([idle_worker.queues.listen(wanted=False, block=1)], [], [], PATIENCE)[0]
    assert apis.where(raw_id) == (["leases"] if idle else ["ready:default"])


def test_with_claim_behind_pop_off_nothing_is_chained(apis: ShardApis) -> None:
    idle_worker = IdleWorker(apis, claim_behind_pop=False)
    idle_worker.listen()
    assert idle_worker.session.in_flight is InFlight.NOTHING
    idle_worker.queues.close()


def test_a_blpop_that_times_out_ends_the_blocking_request_too(apis: ShardApis, idle_worker: IdleWorker) -> None:
    idle_worker.listen(seconds=0.1)
    assert select.select([idle_worker.queues.listen(wanted=False, block=1)], [], [], PATIENCE)[0]
    assert not idle_worker.claim.consume_wakeup(wanted=True)
    reply = idle_worker.exchange()
    assert reply.claimed and not reply.claims


def test_no_blpop_lasts_longer_than_a_third_of_a_lease(apis: ShardApis) -> None:
    idle_worker = IdleWorker(apis, lease_us=1_500_000)
    idle_worker.listen(seconds=3_600)
    assert idle_worker.claim.wait(wanted=True) <= 0.5 + 1
    idle_worker.queues.close()


def test_after_a_lost_reply_the_request_is_repeated_and_the_job_claimed_once(
    apis: ShardApis, idle_worker: IdleWorker
) -> None:
    for _ in range(2):
        apis.add()
    idle_worker.listen()
    idle_worker.until_claimed()
    idle_worker.claim.cancel()
    assert idle_worker.queues.wakeup_missed and not idle_worker.queues.listening
    reply = idle_worker.exchange()
    [claim] = reply.claims
    assert apis.where(claim.raw_id) == ["leases"] and apis.inspection.counts().claimed == 1
    assert not idle_worker.claim.confirm(reply)


def test_after_a_truncated_reply_the_request_is_repeated(apis: ShardApis, idle_worker: IdleWorker) -> None:
    apis.add()
    idle_worker.listen()
    idle_worker.read_notification()
    idle_worker.queues.close()
    with pytest.raises(StoreUnavailable):
        idle_worker.exchange()
    [claim] = idle_worker.exchange().claims
    assert apis.where(claim.raw_id) == ["leases"]


def test_after_a_broken_blpop_the_repeated_request_claims_no_later_job(
    apis: ShardApis, idle_worker: IdleWorker, client: Redis
) -> None:
    idle_worker.listen()
    until(lambda: listeners(client) == 1, what="the BLPOP")
    for number in [int(each["id"]) for each in client.client_list() if each["cmd"] == "blpop"]:
        client.client_kill_filter(_id=str(number))
    assert select.select([idle_worker.queues.listen(wanted=False, block=1)], [], [], PATIENCE)[0]
    with pytest.raises(StoreUnavailable):
        idle_worker.claim.consume_wakeup(wanted=True)
    raw_id = apis.add()
    # The repeat may come after a long outage: a lease that counts from before it would no longer be trusted.
    assert idle_worker.exchange().claims == [] and apis.where(raw_id) == ["ready:default"]


def test_an_overdue_blocking_request_is_cancelled(
    apis: ShardApis, idle_worker: IdleWorker, client: Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle_worker.listen()
    late = monotonic() + 60
    monkeypatch.setattr("django_delayq.worker.blocking_claim.monotonic", lambda: late)
    assert idle_worker.claim.wait(wanted=True) == 0 and idle_worker.session.in_flight is not InFlight.BLOCKING
    until(lambda: listeners(client) == 0, what="the connection's end")
    assert idle_worker.exchange().claims == []


def test_a_cancelled_request_claims_nothing_and_leaves_the_notification_to_others(
    apis: ShardApis, idle_worker: IdleWorker
) -> None:
    """The connection may close too late, so that Redis still runs the request."""
    for later in (False, True):
        idle_worker.listen()
        listener, idle_worker.queues._listener = idle_worker.queues._listener, apis.shard.blocking_listener()
        idle_worker.claim.cancel()
        assert idle_worker.exchange().claims == []
        if later:
            idle_worker.session.prepare(**REQUEST)
            idle_worker.exchange()
        raw_id = apis.add()
        assert select.select([listener], [], [], PATIENCE)[0]
        listener.close()
        assert apis.where(raw_id) == ["ready:default"]
        assert apis.client.llen(apis.keys.notify("default")) == 1
        idle_worker.listen()
        idle_worker.read_notification()
        assert [claim.raw_id for claim in idle_worker.exchange().claims] == [raw_id]


def test_a_blocking_request_of_a_deregistered_worker_claims_nothing(apis: ShardApis, idle_worker: IdleWorker) -> None:
    idle_worker.listen()
    apis.store.process_reports(apis.shard).deregister(WORKER_ID, {})
    raw_id = apis.add()
    idle_worker.read_notification()
    assert apis.where(raw_id) == ["ready:default"]
    assert apis.client.llen(apis.keys.notify("default")) == 1
    assert not apis.client.exists(apis.keys("exchanges"), apis.keys("workers"))
    # As after a flush, the server does not know the worker: the reply reports it, and the worker sends a new request.
    reply = idle_worker.exchange()
    assert reply.unknown_worker and reply.has_more and not reply.claims


def test_after_a_script_flush_it_claims_the_same(apis: ShardApis, idle_worker: IdleWorker) -> None:
    idle_worker.listen()
    apis.client.script_flush()
    raw_id = apis.add()
    idle_worker.read_notification()
    assert [claim.raw_id for claim in idle_worker.exchange().claims] == [raw_id]


def test_after_a_stale_request_the_worker_has_a_new_id(apis: ShardApis, idle_worker: IdleWorker) -> None:
    idle_worker.listen()
    other = apis.store.claims(apis.shard, worker_id=WORKER_ID)
    for _ in range(9):
        other.settle_and_claim(other.prepare(**REQUEST))
    apis.add()
    idle_worker.read_notification()
    with pytest.raises(StaleExchange):
        idle_worker.exchange()
    assert idle_worker.session.worker_id != WORKER_ID and idle_worker.session.in_flight is InFlight.NOTHING


def test_a_blocking_request_that_is_no_longer_wanted_is_cancelled(idle_worker: IdleWorker, client: Redis) -> None:
    idle_worker.listen()
    assert idle_worker.claim.wait(wanted=False) == 0 and idle_worker.session.in_flight is not InFlight.BLOCKING
    until(lambda: listeners(client) == 0, what="the connection's end")
    assert not idle_worker.exchange().claimed
