"""Actors: clock, workers and dispatchers of the state machine; each step is compared with the model."""

from collections.abc import Sequence
from itertools import count, product
from typing import Any

from redis import Redis

from django_delayq.conf.config import Config
from django_delayq.conf.queue_options import QueueOptions, Queues
from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.exceptions import StaleExchange
from django_delayq.job.job import Claim, Flag
from django_delayq.job.outcome import Outcome, OutcomeKind
from django_delayq.job.progress import Progress
from django_delayq.store.claims import Claims, ExchangeReply, ExchangeRequest
from django_delayq.store.promotion import Promotion, PromotionResult, Reclaim
from django_delayq.store.store import Store
from django_delayq.testing.fake_clock import FakeClock
from django_delayq.worker.settlement import decide_settlement
from tests.one_by_one import OneByOne
from tests.stateful.machine.planter import DrivenPlanter
from tests.stateful.model.model import Model
from tests.stateful.model.schedules import SCHEDULE_LIMIT
from tests.stateful.model.values import Ended, ExpectedReply

QUEUES = ("default", "mail", "a:b/ü")
#: A fair queue, and the options of all.
FAIR = QUEUES[1]
OPTIONS = Queues({FAIR: QueueOptions(fair=True, weights={"b": 3}), QUEUES[2]: QueueOptions(max_waiting=2)})
#: Not a whole number of milliseconds.
START_US = 1_700_000_000_000_123
RETRY_LATER_US = 7_000_001


class World:
    """One server, one store, one model; emptied for each example."""

    def __init__(self, client: Redis, config: Config) -> None:
        self.client = client
        self.clock = FakeClock(START_US)
        self.store = Store(config, clock=self.clock)
        self.shard = self.store.shards[0]
        self.keys = self.shard.keys
        self.intake, self.operations = self.store.enqueue_api(0), OneByOne(self.store._producer_shards[0])
        self.begin()

    def begin(self) -> None:
        """Delete everything and start again."""
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
            options_of=self.store.config.tasks.options_of,
        )
        self.advance_to(START_US)
        self.numbers = count(1)

    def advance_to(self, now_us: int) -> None:
        """Set the clock."""
        self.clock.now_us = self.model.now = now_us


class DrivenDispatcher(Promotion):
    """The real dispatcher, whose decisions are kept until `apply_judged()`."""

    def __init__(self, world: World) -> None:
        super().__init__(world.shard)
        self.world, self.limit = world, 500
        self.judged: list[Reclaim] = []
        self._dispatcher = Dispatcher(world.shard, self)
        self.planter = self._dispatcher._planter = DrivenPlanter(world)

    def step(self, *, limit: int = 500) -> None:
        """Promote, and judge expired leases."""
        self.limit = limit
        self._dispatcher.promote()

    def promote(self, queues: Sequence[str], *, limit: int = 500, **when: Any) -> PromotionResult:
        """Promote, and compare with the model."""
        model = self.world.model
        heads = sorted(jobs[0].score for queue in queues if (jobs := model.due(queue)))
        # If the first jobs of two queues are equally old, either may be first: then the limit must allow all.
        limit = self.limit if len(set(heads)) == len(heads) else 500
        promoted = super().promote(queues, limit=limit, **when)
        moved, trimmed, expired = model.promote(self.dispatcher_id, queues, limit)
        assert (promoted.moved, promoted.trimmed) == (moved, trimmed)
        assert set(promoted.expired_leases) == expired
        to_let_in, parked_in = model.limits_to_let_in()
        assert (set(promoted.limits_to_let_in), set(promoted.parked_in)) == (to_let_in, parked_in)
        assert set(promoted.queues) == model.queues_to_name(model.now + promoted.sleep_us)
        assert set(promoted.schedules) == model.schedules_to_plant()
        more = any(model.due(queue) for queue in QUEUES) or bool(model.pauses_ending(model.now) or to_let_in)
        assert (promoted.sleep_us == 0) == more, "sleep and work left do not fit together"
        assert promoted.sleep_us <= self.world.store.config.dispatcher.sweep_us
        model.next_promotion = model.now + promoted.sleep_us
        return promoted

    def let_in(self, limits: Sequence[bytes], queues: Sequence[str]) -> int:
        """Let parked jobs in, and compare with the model; then no job waits for these limits that may go."""
        model = self.world.model
        expected = model.let_in(limits, queues, self.world.store.config.dispatcher.sweep_us)
        moved = super().let_in(limits, queues)
        assert moved == expected
        for limit, queue in product(limits, queues):
            job, room = model.next_parked(limit, queue), model.room_for_parked(limit, queue)
            is_next = limit.startswith(SCHEDULE_LIMIT) and moved
            assert job is None or is_next or room.opens_at(job.cost_of(limit)) > model.now, f"{job} may go"
        return moved

    def reclaim(self, decided: Sequence[Reclaim]) -> list[bool]:
        """Keep the decisions: between reading and writing anything may happen."""
        for item in decided:
            job = self.world.model.leased(item.lease)
            assert item.stops == (job is not None and job.stop_by is not None)
            assert item.stops or item.attempts.spared == (job is not None and job.unconfirmed and not job.spared)
        self.judged += decided
        return [False] * len(decided)

    def apply_judged(self, most: int = 500) -> None:
        """Apply the decisions."""
        items, self.judged = self.judged[:most], self.judged[most:]
        ended = [
            Ended(
                item.lease,
                OutcomeKind.STOPPED if item.stops else OutcomeKind.LEASE_EXPIRED,
                item.delay_us,
                item.attempts.pack(),
            )
            for item in items
        ]
        assert all(item.delay_us == 0 for item in items)
        expected = self.world.model.reclaim(ended)
        assert sum(super().reclaim(items)) == expected


class DrivenWorker:
    """A worker process, as the store sees it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.restart()

    def restart(self) -> None:
        """Die, and start as another process without any memory."""
        self.code = next(self.world.numbers).to_bytes(8)
        self.api = Claims(self.world.shard, worker_id=self.code)
        #: The claims that it believes to hold; it may be wrong.
        self.held: list[Claim] = []
        #: The claims that its last exchange settles: an outcome may be refused.
        self.settling: list[Claim] = []
        self.sent: list[ExchangeRequest] = []
        self.awaits_reply = False

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
        want_limited: int | None = None,
    ) -> None:
        """Settle the first held claims, one with each ending, and claim others."""
        if self.awaits_reply and self.remembered:
            self.repeat()
        elif self.awaits_reply:
            self.restart()
        claims, self.held = self.held[: len(endings)], self.held[len(endings) :]
        self.settling = claims
        # As a worker does before it begins: a job that is dropped or has expired has no other ending.
        endings = [
            OutcomeKind.DROPPED
            if claim.is_dropped
            else OutcomeKind.EXPIRED
            if claim.has_expired(claim.received_at)
            else ending
            for claim, ending in zip(claims, endings, strict=False)
        ]
        settled = [
            (decide_settlement(claim, _outcome(ending), worker="driven"), ending)
            for claim, ending in zip(claims, endings, strict=True)
        ]
        exchange = self.api.prepare(
            queues=queues,
            want=want,
            settlements=[settlement for settlement, _ in settled],
            strict=strict,
            may_recover=may_recover,
            worker_name="driven",
            blocking=blocking,
            want_limited=want_limited,
        )
        ended = [
            Ended(item.claim.lease, ending, item.decision.delay_us, item.attempts.pack()) for item, ending in settled
        ]
        token = self.token(exchange)
        expected = self.world.model.exchange(
            token,
            ended,
            queues,
            want=want,
            strict=strict,
            may_recover=may_recover,
            blocking=blocking,
            want_limited=want_limited,
        )
        self.sent.append(exchange)
        self.awaits_reply = reply_lost
        self._send(exchange, expected, take=not reply_lost)

    def claim_one(self, raw_id: bytes) -> None:
        """Claim the job that a person names."""
        claim = self.api.claim_one(raw_id, worker_name="driven")
        token = claim.lease[14:] if claim else self.code + bytes(8)
        job = self.world.model.claim_one(token, raw_id)
        assert (claim and (claim.lease, claim.queue, claim.rank)) == (job and (job.lease, job.queue, job.rank))
        if claim:
            self.held.append(claim)

    @property
    def remembered(self) -> bool:
        """Whether Redis still has its last exchange: the worker was seen within an hour."""
        return self.code in self.world.model.exchanges

    def repeat(self) -> None:
        """Repeat the last exchange: its reply was lost, or the network delivers a copy."""
        expected = self.world.model.repeat(self.code)
        self._send(self.sent[-1], expected, take=self.awaits_reply)
        self.awaits_reply = False

    def confirm(self, claims: Sequence[Claim]) -> None:
        """Confirm these claims."""
        if leases := [claim.lease for claim in claims]:
            self.world.client.srem(self.world.keys("unconfirmed"), *leases)
        for lease in leases:
            if job := self.world.model.leased(lease):
                job.unconfirmed = False

    def send_cancelled(self, queues: Sequence[str]) -> None:
        """Make Redis run a blocking exchange of a process that has left."""
        gone = Claims(self.world.shard, worker_id=next(self.world.numbers).to_bytes(8))
        reply = gone.settle_and_claim(gone.prepare(queues=queues, want=1, blocking=True))
        assert (reply.claims, reply.has_more, reply.unknown_worker) == ([], True, True)
        self.world.model.cancel_blocking(queues)

    def send_stale(self, pick: int) -> None:
        """Deliver a copy of an exchange before the last one."""
        exchange = self.sent[pick % (len(self.sent) - 1)]
        try:
            self.api.settle_and_claim(exchange)
        except StaleExchange:
            return
        raise AssertionError("a stale exchange was carried out")

    def heartbeat(self, claims: Sequence[Claim], *, progress: float | None = None) -> None:
        """Extend the leases of these claims; their code has reported that progress."""
        leases = [claim.lease for claim in claims]
        if not leases:
            return
        queues = {claim.queue for claim in claims}
        reports = {} if progress is None else dict.fromkeys(leases[::2], Progress(progress, "so far"))
        packed = {lease: report.pack() for lease, report in reports.items()}
        lost, stops = self.world.model.heartbeat(self.code, leases, queues, packed)
        reply = self.api.heartbeat(leases, queues, reports)
        assert (reply.lost, reply.stops) == (lost, stops)

    def token(self, exchange: ExchangeRequest) -> bytes:
        """Return the token of the claims of an exchange."""
        return self.code + exchange.number.to_bytes(8)

    def _send(self, exchange: ExchangeRequest, expected: ExpectedReply, *, take: bool) -> None:
        reply = self.api.settle_and_claim(exchange)
        self._compare(reply, expected)
        if take:
            self.held += [claim for claim in self.settling if claim.lease in reply.stopped]
            self.held += reply.claims

    def _compare(self, reply: ExchangeReply, expected: ExpectedReply) -> None:
        model = self.world.model
        assert (reply.lost, reply.stopped) == (expected.lost, expected.stopped)
        assert reply.has_more == expected.more
        assert reply.unknown_worker == expected.first
        assert reply.recovered == expected.recovered
        assert reply.queues_version == expected.version
        assert reply.dispatcher_overdue == (
            model.next_promotion is None or model.next_promotion + 1_000_000 < model.now
        )
        found = [(claim.lease, claim.queue, claim.rank, claim.attempts.pack()) for claim in reply.claims]
        assert found == [(job.lease, job.queue, job.rank, job.record or bytes(3)) for job in expected.claims]
        for claim, job in zip(reply.claims, expected.claims, strict=True):
            assert claim.is_dropped == (job.has(Flag.LIMITED) and job.held is None)
        for claim in reply.claims:
            assert claim.job is not None and claim.job.member == claim.lease[:14]
            assert claim.due_us <= model.now, "claimed early"
            assert claim.attempt <= claim.job.retry.max_attempts, "tried too often"
            if claim.raw_id in model.jobs:
                # A due time read from a rank is exact to the millisecond.
                known = model.jobs[claim.raw_id]
                expected_us = known.expires_us
                is_late = known.first_call is not None or known.schedule is not None
                if is_late and known.record and claim.job.expiry:
                    # Of a series, the body has the time without `max_wait`; of a job that was planted late, that of the
                    # planting. After the first attempt it counts.
                    expected_us = claim.job.expiry.moment_us
                assert (claim.expires_us is None) == (expected_us is None)
                assert abs((claim.expires_us or 0) - (expected_us or 0)) < 1_000, "expires at another time"


def _outcome(ending: OutcomeKind) -> Outcome:
    delay_us = RETRY_LATER_US if ending in (OutcomeKind.RETRY_REQUESTED, OutcomeKind.SNOOZED) else None
    result = "[1]" if ending is OutcomeKind.SUCCEEDED else None
    return Outcome(kind=ending, error=f"it {ending}", delay_us=delay_us, result=result)
