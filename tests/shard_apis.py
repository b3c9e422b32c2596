"""Shard APIs: every API of one shard with a fake clock, and the jobs and settlements that tests send."""

import os
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from django_delayq.conf.settings import read_config
from django_delayq.exceptions import NotReplicated
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.ids import next_id
from django_delayq.job.job import Claim, Job, LimitUse, State
from django_delayq.job.outcome import Action, Decision
from django_delayq.job.result import Result
from django_delayq.job.unsent import Debounce, Throttle, UnsentJob
from django_delayq.recurring.run import RunOutcome
from django_delayq.store.claims import Claims, ExchangeReply, ExchangeRequest, Settlement
from django_delayq.store.enqueue import EnqueueResult
from django_delayq.store.keys import CATALOGUE
from django_delayq.store.promotion import Promotion, PromotionResult, Reclaim
from django_delayq.store.routing.route import Route
from django_delayq.store.shard import Shard
from django_delayq.store.slots import hash_tag, slot_of
from django_delayq.store.store import Store
from django_delayq.testing.fake_clock import FakeClock
from tests.factories import unsent
from tests.inspection import Inspection
from tests.one_by_one import OneByOne

MS, SECOND, HOUR, DAY = 1_000, 1_000_000, 3_600_000_000, 86_400_000_000
#: An uneven time in 2099: any rounding would show. Where it meets the real clock, it is later.
START = 4_098_240_000_123_457
#: Nine on a Monday. The clock of `DelayQ` begins with the real time, and `advance_to()` refuses what is past.
NINE = datetime(2100, 1, 4, 9, tzinfo=UTC)
LARGE_TEXT = "x" * 40_000


class ShardApis:
    """The APIs of one shard for each role."""

    def __init__(self, url: str, *, clock: Any = None, shard: int = 0, **delayq: Any) -> None:
        config, problems = read_config({"REDIS": url, "QUEUES": {"fair": {"fair": True}}, **delayq})
        assert config, problems
        self.clock = clock or FakeClock(START)
        self.config = config
        self.store = Store(config, clock=self.clock)
        self.shard = self.store.shards[shard]
        self.client: Any = self.shard.client
        self.keys = self.shard.keys
        self.intake = self.store.enqueue_api(shard)
        self.operations = OneByOne(self.store._producer_shards[shard])
        self.inspection = Inspection(self.store._producer_shards[shard])
        self.promotion = Promotion(self.shard)

    def over(self, kind: type[Route]) -> Shard:
        """Return the shard with another kind of route."""
        return Shard(
            index=self.shard.index,
            config=self.config,
            signer=self.store.signer,
            cipher=self.store.cipher,
            route=kind(
                self.store.topology, slot_of(hash_tag(self.shard.index)), shard=self.shard.index, for_producers=False
            ),
            clock=self.clock,
        )

    def close(self) -> None:
        """Close the connections."""
        self.store.disconnect_idle()

    def draft(
        self,
        *args: Any,
        queue: str = "default",
        priority: int = 0,
        delay: int | None = None,
        due: int | None = None,
        key: str | None = None,
        unique: str | Debounce | Throttle = "keep",
        until_start: bool = False,
        tenant: str | None = None,
        raw_id: bytes | None = None,
        ttl: int | None = None,
        limits: Sequence[LimitUse] = (),
        cost: int = 1,
        drops: bool = False,
        task: str = "tests.sample_app.tasks.noop",
    ) -> UnsentJob:
        """Make a job that is not sent yet; `delay` in µs from now, `due` in µs since the epoch, `ttl` of its result."""
        job = Job(
            raw_id=raw_id or next_id(),
            shard=self.shard.index,
            task=task,
            queue=queue,
            priority=priority,
            args=list(args),
            key=key,
            tenant=tenant,
            result_ttl_us=ttl,
            limits=tuple(limits),
        )
        is_fair = self.config.tasks.options_of(queue).fair
        draft = unsent(job, max_payload=1_000_000, unique=unique, until_start=until_start, in_fair_queue=is_fair)
        draft = replace(draft, cost=cost, drops=drops)
        return draft.rescheduled(delay_us=delay, due_us=due, called_at=self.clock.steady())

    def enqueue(self, *drafts: UnsentJob) -> EnqueueResult:
        """Send a batch."""
        return self.intake.enqueue(drafts)

    def add(self, *args: Any, **options: Any) -> bytes:
        """Send one job and return its id."""
        draft = self.draft(*args, **options)
        self.enqueue(draft)
        return draft.job.raw_id

    def add_dead(self, **options: Any) -> bytes:
        """Send one job, claim it and make it a dead letter now."""
        raw_id = self.add(**options)
        self.kill(raw_id, queue=options.get("queue", "default"))
        return raw_id

    def kill(self, raw_id: bytes, *, queue: str = "default") -> None:
        """Make a ready job a dead letter now."""
        worker = self.worker()
        claims = worker.take(64, queue).claims
        ends = [settlement(c, Action.DEAD_LETTER if c.raw_id == raw_id else Action.RELEASE) for c in claims]
        assert not worker.take(0, settle=ends).lost
        assert self.where(raw_id) == ["dead_letters"]

    def worker(self, code: bytes | None = None) -> "OneWorker":
        """Return a new worker of this shard."""
        return OneWorker(self, code or os.urandom(8))

    def expire_leases(self) -> None:
        """Let every lease expire and reclaim the jobs, ready at their rank, without counting an attempt."""
        expired_leases = self.promotion.read_expired_leases(self.expired_leases())
        back = [Reclaim(lease=item.lease, attempts=item.attempts, queue=item.queue) for item in expired_leases]
        assert sum(self.promotion.reclaim(back)) == len(back)
        self.promote()

    def expired_leases(self) -> list[bytes]:
        """Let every lease expire and return those that a promotion returns, even if it takes the jump for an outage."""
        self.clock.advance(self.config.worker.lease_us)
        leases = self.promote().expired_leases
        if not leases:
            self.clock.advance(self.config.dispatcher.recovery_us)
            leases = self.promote().expired_leases
        return leases

    def promote(self, *queues: str, limit: int = 500) -> PromotionResult:
        """Promote the named queues; all by default."""
        return self.promotion.promote(queues or self.shard.read_queues(), limit=limit)

    def let_in(self) -> int:
        """Promote, let in the parked jobs that may begin by now, and return their number."""
        promoted, moved = self.promote(), 0
        for _ in range(20):
            if not promoted.limits_to_let_in:
                return moved
            moved += self.promotion.let_in(promoted.limits_to_let_in, promoted.parked_in)
            promoted = self.promote()
        raise AssertionError("there are always limits to look at")

    def scores(self, key: str) -> dict[bytes, int]:
        """Return id -> score of a ZSET, lowest first."""
        return {member[:12]: int(score) for member, score in self.client.zrange(key, 0, -1, withscores=True)}

    def scheduled(self, queue: str = "default") -> dict[bytes, int]:
        """Return id -> due time of a queue's scheduled jobs."""
        return self.scores(self.keys.scheduled(queue))

    def ready(self, queue: str = "default") -> dict[bytes, int]:
        """Return id -> rank of a queue's ready jobs, in the order of claims."""
        return self.scores(self.keys.ready(queue))

    def recovered(self, queue: str = "default") -> dict[bytes, int]:
        """Return id -> rank of a queue's recovered jobs."""
        return self.scores(self.keys.recovered(queue))

    def parked(self, queue: str = "default") -> dict[bytes, int]:
        """Return id -> rank of a queue's parked jobs."""
        return self.scores(self.keys.parked(queue))

    def where(self, raw_id: bytes) -> list[str]:
        """Return the places that hold a job: one for a job that has not ended."""
        places: list[str] = []
        for key in self.client.scan_iter(f"{self.shard.keys('')}*", 1_000):
            noun = key.decode().split("}:", 1)[1]
            if noun.split(":")[0] in (
                "scheduled",
                "ready",
                "recovered",
                "parked",
                "leases",
                "dead_letters",
            ) and raw_id in self.scores(key):
                places.append(noun)
        return places

    def traces(self, raw_id: bytes) -> list[str]:
        """Return every key that contains an id, in a field, a member, or a holder."""
        found = []
        for noun, (kind, _) in CATALOGUE.items():
            for key in self.client.scan_iter(f"{self.shard.keys(noun)}*", 1_000):
                if key.decode().split("}:", 1)[1].split(":")[0] != noun:
                    continue
                if kind == "hash":
                    cells = [*self.client.hkeys(key), *(self.client.hvals(key) if noun == "unique_keys" else [])]
                elif kind == "zset":
                    cells = self.client.zrange(key, 0, -1)
                else:
                    continue
                if any(cell.startswith(raw_id) for cell in cells):
                    found.append(noun)
        return sorted(set(found))

    def dump(self) -> dict[bytes, bytes]:
        """Return all that is stored."""
        return {key: self.client.dump(key) for key in self.client.scan_iter(count=1_000)}

    def notifications(self, *keys: str) -> list[int]:
        """Return the number of notifications in each list, and delete them."""
        counts = [int(self.client.llen(key)) for key in keys]
        self.client.delete(*keys)
        return counts

    def fill_memory(self) -> None:
        """Put the server over its maxmemory from now on; only for a server of the test's own."""
        self.client.config_set("maxmemory", 1)

    def free_memory(self) -> None:
        """Remove the limit again."""
        self.client.config_set("maxmemory", 0)


class OneWorker:
    """The API of one worker, with its exchanges."""

    def __init__(self, apis: ShardApis, code: bytes) -> None:
        self.code = code
        self.api = Claims(apis.shard, worker_id=code)
        self.last: ExchangeRequest | None = None

    def take(
        self,
        want: int = 1,
        *queues: str,
        settle: Sequence[Settlement] = (),
        strict: bool = False,
        may_recover: bool = True,
        description: str = "",
        blocking: bool = False,
        want_fair: int | None = None,
        want_limited: int | None = None,
    ) -> ExchangeReply:
        """Make the next exchange and send it."""
        queues = queues or ("default",)
        self.last = self.api.prepare(
            queues=queues,
            want=want,
            settlements=settle,
            strict=strict,
            may_recover=may_recover,
            worker_name=description,
            blocking=blocking,
            want_fair=want_fair,
            want_limited=want_limited,
        )
        return self.api.settle_and_claim(self.last)

    def again(self) -> ExchangeReply:
        """Send the last exchange again, with the same bytes."""
        assert self.last is not None
        return self.api.settle_and_claim(self.last)

    def settle(self, claim: Claim, how: Action, **options: Any) -> ExchangeReply:
        """Send one outcome and claim nothing."""
        return self.take(0, settle=[settlement(claim, how, **options)])


def one_without_replicas(apis: ShardApis) -> bool:
    """Enqueue a job with WAIT_REPLICAS on a server without any; return whether `NotReplicated` was raised."""
    store = Store(replace(apis.config, wait_replicas=1, wait_timeout=0.001), clock=apis.clock)
    try:
        store.enqueue_api(apis.shard.index).enqueue([apis.draft(queue="unconfirmed")])
    except NotReplicated:
        return True
    finally:
        store.disconnect_idle()
    return False


def settlement(
    claim: Claim,
    how: Action,
    *,
    delay: int = 0,
    suspect: bool = False,
    keeps_rank: bool = False,
    error: str = "as asked",
    value: str = "",
    ttl_ms: int = 60_000,
    run_outcome: RunOutcome | None = None,
) -> Settlement:
    """Make a settlement; retries and dead letters count the attempt; `value` is the JSON of a kept result."""
    attempts = claim.attempts
    if how in (Action.RETRY, Action.DEAD_LETTER):
        attempts = one_more(attempts, suspect=suspect, error=error)
    decision = Decision(action=how, delay_us=delay, crash_suspected=suspect, keeps_rank=keeps_rank)
    ended = Result(state=State.DONE, worker="w", started_us=1, ended_us=2)
    ending = ended.pack(value=value) if value else b""
    return Settlement(
        claim=claim,
        decision=decision,
        attempts=attempts,
        result=ending,
        ttl_ms=ttl_ms,
        run_outcome=run_outcome,
    )


def uncounted(claim: Claim, attempts: AttemptHistory, *, delay: int = 0, keeps_rank: bool = False) -> Settlement:
    """Make the settlement of a run that is no attempt, with the history after it."""
    decision = Decision(action=Action.RETRY, delay_us=delay, keeps_rank=keeps_rank, counted=False)
    return Settlement(claim=claim, decision=decision, attempts=attempts)


def one_more(attempts: AttemptHistory, *, suspect: bool = False, error: str = "as asked") -> AttemptHistory:
    """Return the history with one more ended attempt."""
    return attempts.add(worker="w", started_us=1, ended_us=2, ending="failed", error=error, crash_suspected=suspect)


def ids(claims: Sequence[Claim]) -> list[bytes]:
    """Return the ids of claims, in their order."""
    return [claim.raw_id for claim in claims]
