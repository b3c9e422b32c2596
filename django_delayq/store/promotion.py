"""Promotion: move due jobs to ready, and reclaim jobs whose lease expired. Called by the dispatcher."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.body.codec import try_decode, try_decode_head
from django_delayq.job.ids import to_text
from django_delayq.job.job import Job
from django_delayq.job.security.attempts_record import pack_attempts, read_attempts
from django_delayq.job.security.error_group_record import error_group_of
from django_delayq.store.client.reading import Reading
from django_delayq.store.client.script import Script
from django_delayq.store.keys import decode_queue, encode_queue
from django_delayq.store.nodes.resp import Part, encode
from django_delayq.store.records import ClaimRecord, worker_of
from django_delayq.store.shard import Shard

_PROMOTE, _LET_IN = Script("promote"), Script("let_in")
_RECLAIM = Script("reclaim")
#: Most jobs moved, and most expired leases returned, in one promotion.
BATCH = 500
#: Bytes of bodies read at once: 500 bodies of 8 MiB would take 4 GB in Redis and in the dispatcher.
_BATCH_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionResult:
    """What one promotion did, and when the next one is due."""

    #: µs until the next promotion: 0 if more is due now.
    sleep_us: int
    #: The same as a time: µs since the epoch, Redis's clock.
    next_promotion_us: int
    #: Nothing is due before the next sweep.
    is_idle: bool
    #: Nothing was moved, and the next time was announced before: mostly by another dispatcher.
    redundant: bool
    #: Number of jobs moved.
    moved: int
    #: µs by which the oldest of them was late.
    late_us: int
    #: Dead letters removed for their age, number or bytes: the oldest, up to 250. `sleep_us` is 0 if more must go.
    trimmed: int
    #: Queues to pass to the next promotion: those that are due by then, and those that were unused for long, to be
    #: removed.
    queues: list[str]
    #: Limits under which parked jobs may begin, at most 100 digests, and queues in which these wait.
    limits_to_let_in: list[bytes]
    parked_in: list[str]
    #: Recurring schedules whose next jobs are to be planted, at most 64 ids.
    schedules: list[bytes]
    #: Expired leases, at most 500. None at first after an outage, during which the leases of living workers expired
    #: too.
    expired_leases: list[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredLease:
    """A job whose lease expired, with what the dispatcher needs to judge it."""

    lease: bytes
    shard: int
    #: From the head of the body; None if the head cannot be read.
    queue: str | None
    #: None if the body cannot be read; `fault` is the reason.
    job: Job | None
    fault: Exception | None
    attempts: AttemptHistory
    #: It was claimed behind a blocking pop, and its worker has not confirmed the claim.
    unconfirmed: bool
    #: Somebody asked it to stop.
    stops: bool
    #: µs since the epoch when it was claimed; 0 if that is lost.
    claimed_us: int
    #: Name of its worker, or its id in hex.
    worker: str

    @property
    def id(self) -> str:
        """The job's id as users see it."""
        return to_text(self.lease[:12], self.shard)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaim:
    """The decision on a job whose lease expired."""

    lease: bytes
    #: Includes the expired attempt. If it is marked as spared instead, the decision applies to an unconfirmed claim
    #: only.
    attempts: AttemptHistory
    #: Queue to return to; None: it becomes a dead letter, in an error group of this task.
    queue: str | None
    task: str = ""
    #: 0: ready at its old rank; it is recovered if its last attempt crashed.
    delay_us: int = 0
    #: Somebody asked it to stop, so it ends as cancelled.
    stops: bool = False
    #: If it does and keeps its result: the JSON to keep, and for how many ms.
    result: bytes = field(default=b"", repr=False)
    ttl_ms: int = 0


class Promotion:
    """API of one shard for one dispatcher."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._config = shard.config.dispatcher
        #: 8 random bytes.
        self.dispatcher_id = os.urandom(8)

    def promote(
        self, queues: Sequence[str], *, limit: int = BATCH, sweep_us: int | None = None, can_wait: bool = False
    ) -> PromotionResult:
        """Move due jobs of the named queues to ready and remove what is old, in one atomic round trip. O(k log n).

        The queues are those that the last promotion returned: few, even if there are many queues. The next promotion
        is due in `sweep_us` at the latest. With `can_wait` this one is sent in one write with those of other shards, a
        few milliseconds later.
        """
        config = self._config
        sweep_us = config.sweep_us if sweep_us is None else sweep_us
        reply = self._shard.run(
            _PROMOTE,
            [
                self.dispatcher_id,
                limit,
                config.due_first_us // 1_000,
                sweep_us,
                config.dead_max_age_us,
                config.dead_max_count,
                config.dead_max_bytes,
                config.outage_us,
                config.recovery_us,
                config.remembered_us,
            ],
            more_keys=[key for queue in queues for key in self._shard.keys.named(queue).values()],
            can_wait=can_wait,
        )
        now_us, next_promotion_us, redundant, moved, late_us, trimmed, names, limits, parked_in, *rest = reply
        schedules, *expired_leases = rest
        return PromotionResult(
            sleep_us=next_promotion_us - now_us,
            is_idle=next_promotion_us - now_us >= sweep_us,
            next_promotion_us=next_promotion_us,
            redundant=bool(redundant),
            moved=moved,
            late_us=late_us,
            trimmed=trimmed,
            queues=self._valid_queues(names),
            limits_to_let_in=limits,
            parked_in=[decode_queue(name) for name in parked_in],
            schedules=schedules,
            expired_leases=expired_leases,
        )

    def let_in(self, limits: Sequence[bytes], queues: Sequence[str]) -> int:
        """Make parked jobs of these queues ready, as many as may begin under each limit; return their number. Atomic.

        One round trip, O(log n) a job, at most 100 jobs of each limit and queue.
        """
        keys = self._shard.keys
        more_keys = [key(queue) for queue in queues for key in (keys.parked, keys.ready, keys.notify, keys.recovered)]
        moved: int = self._shard.run(_LET_IN, [self._config.sweep_us, *limits], more_keys=more_keys)
        return moved

    def _valid_queues(self, names: Sequence[bytes]) -> list[str]:
        """Return the queues of these names. Names that were edited manually lead to no key and are removed."""
        queues = {name: decode_queue(name) for name in names}
        if invalid := [name for name, queue in queues.items() if encode_queue(queue).encode() != name]:
            keys = self._shard.keys
            self._shard.execute_all([["ZREM", keys(noun), *invalid] for noun in ("queues", "next_due", "pause_ends")])
        return [queue for name, queue in queues.items() if name not in invalid]

    def read_next_promotion(self) -> int | None:
        """Return when the next promotion is due, as the last one stored it (µs); None if nothing is stored. O(1).

        It is sent in one write with those of other shards, a few milliseconds later.
        """
        return _moment(self._shard.execute_with_others("GET", self._shard.keys("next_promotion")))

    def next_promotion(self) -> Reading[int | None]:
        """Return the reading of what `read_next_promotion()` returns."""
        [stored] = yield [encode("GET", self._shard.keys("next_promotion"))]
        return _moment(stored)

    def batches(self, leases: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        """Yield expired leases in batches whose bodies have at most 8 MiB together; a larger body is alone."""
        if len(leases) < 2:
            yield from [leases] if leases else []
            return
        key = self._shard.keys("jobs")
        sizes = self._shard.execute_all([["HSTRLEN", key, lease[:12]] for lease in leases])
        start, total = 0, 0
        for at, size in enumerate(sizes):
            if at > start and total + size > _BATCH_BYTES:
                yield leases[start:at]
                start, total = at, 0
            total += size
        yield leases[start:]

    def read_expired_leases(self, leases: Sequence[bytes]) -> list[ExpiredLease]:
        """Return what the dispatcher needs to judge a batch of expired leases. One round trip."""
        if not leases:
            return []
        ids = [lease[:12] for lease in leases]
        keys, workers = self._shard.keys, [worker_of(lease) for lease in leases]
        fields = {"jobs": ids, "attempts": ids, "claim_records": ids, "worker_names": workers}
        commands: list[list[Part]] = [["HMGET", keys(noun), *names] for noun, names in fields.items()]
        commands.append(["SMISMEMBER", keys("unconfirmed"), *leases])
        return [self._expired_lease(*row) for row in zip(leases, *self._shard.execute_all(commands), strict=True)]

    def reclaim(self, decided: Sequence[Reclaim]) -> list[bool]:
        """Apply each decision whose lease is still the same and still expired. Return for each whether it was.

        One atomic round trip, O(log n) a job.
        """
        queues = list(dict.fromkeys(item.queue for item in decided if item.queue is not None))
        numbers = {queue: number for number, queue in enumerate(queues, 1)}
        keys = self._shard.keys
        results = [keys.results(item.lease[:12]) for item in decided if item.result]
        args: list[bytes | int] = [self._config.due_first_us // 1_000, len(results)]
        for item in decided:
            if item.stops:
                args += (item.lease, self._shard.seal_result(item.lease[:12], item.result), -1, item.ttl_ms)
            else:
                cipher = self._shard.cipher
                record = pack_attempts(item.attempts, raw_id=item.lease[:12], cipher=cipher)
                if item.queue is None:
                    args += (item.lease, record, 0, error_group_of(item.task, item.attempts, cipher))
                else:
                    args += (item.lease, record, numbers[item.queue], item.delay_us)
        more_keys = [*results, *(key for queue in queues for key in keys.named(queue).values())]
        return [bool(done) for done in self._shard.run(_RECLAIM, args, more_keys=more_keys)]

    def _expired_lease(
        self,
        lease: bytes,
        body: bytes | None,
        attempts: bytes | None,
        claim_record: bytes | None,
        worker_name: bytes | None,
        unconfirmed: int,
    ) -> ExpiredLease:
        head = try_decode_head(body)
        raw_id, cipher = lease[:12], self._shard.cipher
        job, fault = try_decode(body, raw_id=raw_id, shard=self._shard.index, cipher=cipher)
        claim = ClaimRecord.of(lease, claim_record)
        return ExpiredLease(
            lease=lease,
            shard=self._shard.index,
            queue=head.queue if head else None,
            job=job,
            fault=fault,
            attempts=read_attempts(attempts, raw_id=raw_id, cipher=cipher),
            unconfirmed=bool(unconfirmed),
            stops=claim.stop_by_us is not None,
            claimed_us=claim.claimed_us,
            worker=worker_name.decode(errors="replace") if worker_name else worker_of(lease).hex(),
        )


def _moment(stored: bytes | None) -> int | None:
    return int(stored) if stored and stored.isdigit() else None
