"""Promotion: move due jobs to ready, and take back jobs whose lease lapsed. Called by the dispatcher."""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django_delayq.conf.config import DispatcherConfig
from django_delayq.exceptions import BadBody
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.codec import decode, decode_head
from django_delayq.job.ids import to_text
from django_delayq.job.job import Job
from django_delayq.store.client.resp import Part
from django_delayq.store.client.script import Script, with_store_errors
from django_delayq.store.keys import decode_queue, encode_queue
from django_delayq.store.records import RunningRecord, worker_of
from django_delayq.store.shard import Shard

_PROMOTE = Script("promote")
_RECLAIM = Script("reclaim")
#: Jobs moved, and leases told, in one step at most.
BATCH = 500
#: Bytes of bodies read at once: of 500 with 8 MiB each Redis and the dispatcher would need 4 GB.
_BATCH_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class PromotionResult:
    """What one promotion did, and when to come again."""

    #: µs until the next thing to do: 0 if more is due now.
    sleep_us: int
    #: The same as a moment (µs since the epoch, Redis's clock).
    wake_at_us: int
    #: There was nothing to do, and the next moment is the one already announced: mostly by another dispatcher.
    second: bool
    moved: int
    #: µs that the oldest job moved was late.
    late_us: int
    #: Dead letters dropped for their age, number or bytes: the oldest, up to 250. `sleep_us` is 0 if more are to go.
    trimmed: int
    #: What the next step is to name: queues that are due by then (where it sleeps for 0, they are due now), and queues
    #: that have long been empty, to forget.
    queues: list[str]
    #: Leases that have lapsed, at most 500: none at first after an outage, which outlasts those of living workers too.
    expired_leases: list[bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpiredLease:
    """A job whose lease ran out, as it was read for judgement."""

    lease: bytes
    shard: int
    #: Read from the body's head; None where even that cannot be read.
    queue: str | None
    #: None where the body cannot be read; `fault` says why.
    job: Job | None
    fault: Exception | None
    attempts: AttemptHistory
    #: It was claimed behind a blocking pop, and its worker has not said that the claim came.
    unconfirmed: bool
    #: µs since the epoch when it was claimed, or 0 where that is lost.
    claimed_us: int
    worker: str

    @property
    def id(self) -> str:
        """The job's id as users see it."""
        return to_text(self.lease[:12], self.shard)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reclaim:
    """What was decided of a lapsed job."""

    lease: bytes
    #: With the one that lapsed, or spared: then it is carried out only where the claim is unconfirmed still.
    attempts: AttemptHistory
    #: Queue to go back to; None: it becomes a dead letter.
    queue: str | None
    #: 0: at its old rank, and among the recovered jobs where its last attempt is one that crashed.
    delay_us: int = 0


class Promotion:
    """The door of one dispatcher to one shard."""

    def __init__(self, shard: Shard, config: DispatcherConfig) -> None:
        self._shard = shard
        self._config = config
        #: The dispatcher's, as Redis knows it: 8 random bytes.
        self.code = os.urandom(8)

    def promote(self, queues: Sequence[str], *, limit: int = BATCH) -> PromotionResult:
        """Move due jobs of the named queues to ready in one atomic step, and trim what is old. O(k log n).

        The queues are those that the last step returned; a step names few, however many there are.
        """
        keys, config = self._shard.keys, self._config
        reply = self._shard.run(
            _PROMOTE,
            [
                self.code,
                limit,
                config.due_first_us // 1_000,
                config.sweep_us,
                config.dead_max_age_us,
                config.dead_max_count,
                config.dead_max_bytes,
                config.outage_us,
                config.recovery_us,
                config.remembered_us,
            ],
            more_keys=[key for queue in queues for key in (*keys.of_queue(queue), keys.recovered(queue))],
        )
        now_us, wake_at_us, second, moved, late_us, trimmed, names, *lapsed = reply
        return PromotionResult(
            sleep_us=wake_at_us - now_us,
            wake_at_us=wake_at_us,
            second=bool(second),
            moved=moved,
            late_us=late_us,
            trimmed=trimmed,
            queues=self._sound(names),
            expired_leases=lapsed,
        )

    def _sound(self, names: Sequence[bytes]) -> list[str]:
        """Return the queues of these names; drop names written by hand, whose keys no script could find."""
        queues = {name: decode_queue(name) for name in names}
        if odd := [name for name, queue in queues.items() if encode_queue(queue).encode() != name]:
            line, keys = self._shard.line, self._shard.keys
            dropped: list[list[Part]] = [["ZREM", keys(noun), *odd] for noun in ("queues", "next_due")]
            with_store_errors(lambda: line.ask_all(*dropped), self._shard.client)
        return [queue for name, queue in queues.items() if name not in odd]

    def read_wake_at(self) -> int | None:
        """Return the moment of the next promotion as the last one announced it (µs); None where there is none. O(1)."""
        found = with_store_errors(
            lambda: self._shard.line.ask("GET", self._shard.keys("next_promotion")), self._shard.client
        )
        return int(found) if found and found.isdigit() else None

    def batches(self, leases: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
        """Yield lapsed leases in batches whose bodies have at most 8 MiB in all, or are a single one."""
        if len(leases) < 2:
            yield from [leases] if leases else []
            return
        shard, key = self._shard, self._shard.keys("jobs")
        questions: list[list[Part]] = [["HSTRLEN", key, lease[:12]] for lease in leases]
        sizes = with_store_errors(lambda: shard.line.ask_all(*questions), shard.client)
        start, total = 0, 0
        for at, size in enumerate(sizes):
            if at > start and total + size > _BATCH_BYTES:
                yield leases[start:at]
                start, total = at, 0
            total += size
        yield leases[start:]

    def read_expired_leases(self, leases: Sequence[bytes]) -> list[ExpiredLease]:
        """Return what is needed to judge a batch of lapsed leases, in one round trip."""
        if not leases:
            return []
        keys, ids, workers = (
            self._shard.keys,
            [lease[:12] for lease in leases],
            [worker_of(lease) for lease in leases],
        )

        def read() -> list[list[Any]]:
            wanted = {"jobs": ids, "attempts": ids, "claim_records": ids, "worker_names": workers}
            # Where promote told of them: on another server they would be jobs without a body, and dead.
            questions: list[list[Part]] = [["HMGET", keys(noun), *fields] for noun, fields in wanted.items()]
            questions.append(["SMISMEMBER", keys("unconfirmed"), *leases])
            return self._shard.line.ask_all(*questions)

        rows = zip(leases, *with_store_errors(read, self._shard.client), strict=True)
        return [self._lapsed(*row) for row in rows]

    def reclaim(self, decided: Sequence[Reclaim]) -> list[bool]:
        """Carry out what was decided where the lease is still the same and still lapsed; tells for each whether."""
        queues = list(dict.fromkeys(item.queue for item in decided if item.queue is not None))
        numbers = {queue: number for number, queue in enumerate(queues, 1)}
        args: list[bytes | int] = [self._config.due_first_us // 1_000]
        for item in decided:
            number = 0 if item.queue is None else numbers[item.queue]
            args += (item.lease, item.attempts.pack(), number, item.delay_us)
        keys = self._shard.keys
        more_keys = [key for queue in queues for key in (*keys.of_queue(queue), keys.recovered(queue))]
        return [bool(done) for done in self._shard.run(_RECLAIM, args, more_keys=more_keys)]

    def _lapsed(
        self,
        lease: bytes,
        body: bytes | None,
        record: bytes | None,
        running: bytes | None,
        worker: bytes | None,
        unconfirmed: int,
    ) -> ExpiredLease:
        job, fault, queue = None, None, None
        try:
            queue = decode_head(body or b"").queue
            job = decode(body, raw_id=lease[:12], shard=self._shard.index)
        except BadBody as error:
            fault = error
        return ExpiredLease(
            lease=lease,
            shard=self._shard.index,
            queue=queue,
            job=job,
            fault=fault,
            attempts=AttemptHistory.unpack(record),
            unconfirmed=bool(unconfirmed),
            claimed_us=RunningRecord.unpack(running).claimed_us,
            worker=worker.decode(errors="replace") if worker else worker_of(lease).hex(),
        )
