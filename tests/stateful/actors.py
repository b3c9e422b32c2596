"""Actors: a clock that is turned, workers and dispatchers that do one thing at a time, each compared with the model."""

from collections.abc import Sequence
from itertools import count

from redis import Redis

from django_delayq.conf.config import Config
from django_delayq.dispatcher import Dispatcher
from django_delayq.exceptions import StaleExchange
from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome, OutcomeKind
from django_delayq.store.claims import ExchangeReply, ExchangeRequest
from django_delayq.store.promotion import Promotion, PromotionResult, Reclaim
from django_delayq.store.store import Store
from django_delayq.testing.fake_clock import FakeClock
from django_delayq.worker.settlement import decide_settlement
from tests.stateful.model import Model
from tests.stateful.values import Ended, Told

QUEUES = ("default", "mail", "a:b/ü")
#: Not a whole number of milliseconds.
START_US = 1_700_000_000_000_123
RETRY_LATER_US = 7_000_001


class World:
    """One server, one store, one model; empty again at each example."""

    def __init__(self, client: Redis, config: Config) -> None:
        self.client = client
        self.clock = FakeClock(START_US)
        self.store = Store(config, clock=self.clock)
        self.shard = self.store.shards[0]
        self.keys = self.shard.keys
        self.intake, self.operations = self.store.enqueue_api(0), self.store.operations(0)
        self.begin()

    def begin(self) -> None:
        """Forget everything."""
        self.client.flushdb()
        dispatcher = self.store.config.dispatcher
        self.model = Model(
            lease_us=self.store.config.worker.lease_us,
            head_start_ms=dispatcher.due_first_us // 1_000,
            dead_max_count=dispatcher.dead_max_count,
            dead_max_age_us=dispatcher.dead_max_age_us,
            outage_us=dispatcher.outage_us,
            recovery_us=dispatcher.recovery_us,
            remembered_us=dispatcher.remembered_us,
        )
        self.turn_to(START_US)
        self.numbers = count(1)

    def turn_to(self, now_us: int) -> None:
        """Turn the clock."""
        self.clock.now_us = self.model.now = now_us


class DrivenDispatcher(Promotion):
    """The real dispatcher behind a door that keeps what it judged, until it is let through."""

    def __init__(self, world: World) -> None:
        super().__init__(world.shard, world.store.config.dispatcher)
        self.world, self.limit = world, 500
        self.judged: list[Reclaim] = []
        self._dispatcher = Dispatcher(world.shard, self)

    def step(self, *, limit: int = 500) -> None:
        """Promote, and judge what lapsed."""
        self.limit = limit
        self._dispatcher.promote()

    def promote(self, queues: Sequence[str], *, limit: int = 500) -> PromotionResult:
        """Compare each promotion with the model's."""
        model = self.world.model
        heads = sorted(jobs[0].score for queue in queues if (jobs := model.due(queue)))
        # Of queues whose heads are equally old any may be the first: then there must be room for all.
        limit = self.limit if len(set(heads)) == len(heads) else 500
        promoted = super().promote(queues, limit=limit)
        moved, trimmed, lapsed = model.promote(self.dispatcher_id, queues, limit)
        assert (promoted.moved, promoted.trimmed) == (moved, trimmed)
        assert set(promoted.expired_leases) == lapsed
        assert set(promoted.queues) == model.to_name(model.now + promoted.sleep_us)
        more = any(model.due(queue) for queue in QUEUES)
        assert (promoted.sleep_us == 0) == more, "sleep and work left do not fit together"
        assert promoted.sleep_us <= self.world.store.config.dispatcher.sweep_us
        model.wake_at = model.now + promoted.sleep_us
        return promoted

    def reclaim(self, decided: Sequence[Reclaim]) -> list[bool]:
        """Keep it: between reading and writing anything may happen."""
        for item in decided:
            job = self.world.model.leased(item.lease)
            assert item.attempts.spared == (job is not None and job.unconfirmed and not job.spared)
        self.judged += decided
        return [False] * len(decided)

    def carry_out(self, most: int = 500) -> None:
        """Let what was judged through."""
        items, self.judged = self.judged[:most], self.judged[most:]
        ended = [Ended(item.lease, OutcomeKind.LEASE_EXPIRED, item.delay_us, item.attempts.pack()) for item in items]
        assert all(item.delay_us == 0 for item in items)
        told = self.world.model.reclaim(ended)
        assert sum(super().reclaim(items)) == told


class DrivenWorker:
    """A worker process as the store sees it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.restart()

    def restart(self) -> None:
        """Die, and start as another process that knows of nothing."""
        self.code = next(self.world.numbers).to_bytes(8)
        self.door = self.world.store.claims(self.world.shard, worker_id=self.code)
        #: What it believes to hold; it may be wrong.
        self.held: list[Claim] = []
        self.sent: list[ExchangeRequest] = []
        self.waits_for_answer = False

    def exchange(
        self,
        want: int,
        *,
        queues: Sequence[str] = QUEUES,
        strict: bool = False,
        may_recover: bool = True,
        endings: Sequence[OutcomeKind] = (),
        reply_lost: bool = False,
        blocking: bool = False,
    ) -> None:
        """Settle the first claims held, one by each ending, and take others."""
        if self.waits_for_answer and self.remembered:
            self.repeat()
        elif self.waits_for_answer:
            self.restart()
        claims, self.held = self.held[: len(endings)], self.held[len(endings) :]
        settled = [
            (decide_settlement(claim, _outcome(ending), worker="driven"), ending)
            for claim, ending in zip(claims, endings, strict=False)
        ]
        exchange = self.door.prepare(
            queues=queues,
            want=want,
            settlements=[settlement for settlement, _ in settled],
            strict=strict,
            may_recover=may_recover,
            worker_name="driven",
            blocking=blocking,
        )
        ended = [
            Ended(item.claim.lease, ending, item.decision.delay_us, item.attempts.pack()) for item, ending in settled
        ]
        token = self.token(exchange)
        told = self.world.model.exchange(
            token, ended, queues, want=want, strict=strict, may_recover=may_recover, blocking=blocking
        )
        self.sent.append(exchange)
        self.waits_for_answer = reply_lost
        self._send(exchange, told, take=not reply_lost)

    @property
    def remembered(self) -> bool:
        """Redis still has its last exchange: it was seen within an hour."""
        return self.code in self.world.model.exchanges

    def repeat(self) -> None:
        """Send the last exchange again: its reply was lost, or the network delivers a copy of it."""
        told = self.world.model.repeat(self.code)
        self._send(self.sent[-1], told, take=self.waits_for_answer)
        self.waits_for_answer = False

    def confirm(self, claims: Sequence[Claim]) -> None:
        """Say that these claims came."""
        if leases := [claim.lease for claim in claims]:
            self.world.client.srem(self.world.keys("unconfirmed"), *leases)
        for lease in leases:
            if job := self.world.model.leased(lease):
                job.unconfirmed = False

    def send_void(self, queues: Sequence[str]) -> None:
        """Have Redis carry out an armed exchange of a process that has left."""
        gone = self.world.store.claims(self.world.shard, worker_id=next(self.world.numbers).to_bytes(8))
        answer = gone.settle_and_claim(gone.prepare(queues=queues, want=1, blocking=True))
        assert (answer.claims, answer.has_more, answer.unknown_worker) == ([], True, True)
        self.world.model.void(queues)

    def send_stale(self, pick: int) -> None:
        """Have the network deliver a copy of an exchange before the last one."""
        exchange = self.sent[pick % (len(self.sent) - 1)]
        try:
            self.door.settle_and_claim(exchange)
        except StaleExchange:
            return
        raise AssertionError("a stale exchange was carried out")

    def heartbeat(self, claims: Sequence[Claim]) -> None:
        """Push the leases of these claims on."""
        leases = [claim.lease for claim in claims]
        if not leases:
            return
        queues = {claim.queue for claim in claims}
        told = self.world.model.heartbeat(self.code, leases, queues)
        assert self.door.heartbeat(leases, queues) == told

    def token(self, exchange: ExchangeRequest) -> bytes:
        """Return what names the claims of an exchange."""
        return self.code + exchange.number.to_bytes(8)

    def _send(self, exchange: ExchangeRequest, told: Told, *, take: bool) -> None:
        answer = self.door.settle_and_claim(exchange)
        self._compare(answer, told)
        if take:
            self.held += answer.claims

    def _compare(self, answer: ExchangeReply, told: Told) -> None:
        model = self.world.model
        assert answer.lost == told.lost
        assert answer.has_more == told.more
        assert answer.unknown_worker == told.first
        assert answer.recovered == told.recovered
        assert answer.queues_version == told.version
        assert answer.dispatcher_overdue == (model.wake_at is None or model.wake_at + 1_000_000 < model.now)
        found = [(claim.lease, claim.queue, claim.rank, claim.attempts.pack()) for claim in answer.claims]
        assert found == [(job.lease, job.queue, job.rank, job.record or bytes(3)) for job in told.claims]
        for claim in answer.claims:
            assert claim.job is not None and claim.job.member == claim.lease[:14]
            assert claim.due_us <= model.now, "claimed early"
            assert claim.attempt <= claim.job.retry.max_attempts, "tried too often"


def _outcome(ending: OutcomeKind) -> Outcome:
    delay_us = RETRY_LATER_US if ending is OutcomeKind.RETRY_REQUESTED else None
    result = "[1]" if ending is OutcomeKind.SUCCEEDED else None
    return Outcome(kind=ending, error=f"it {ending}", delay_us=delay_us, result=result)
