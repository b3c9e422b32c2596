"""Inspection: look at jobs; reads only. Called by handles, the admin and health checks."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django_delayq.attempts import Attempts
from django_delayq.codec import decode, decode_head
from django_delayq.exceptions import BadBody
from django_delayq.job import LARGE_BODY, DeadLetter, Job, State, due_of_rank
from django_delayq.store.records import DeadBody, Running
from django_delayq.store.scripts import Script, asked
from django_delayq.store.shard import Shard

_FIND, _PAGE = Script("find"), Script("page")
#: No score of ours is as large.
_END = 2.0**53
#: Rows of one page, at most.
MAX_ROWS = 250


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One job as it is now."""

    raw_id: bytes
    shard: int
    state: State
    #: When it is, was, or became due: µs since the epoch, to the millisecond once it is ready; time of death of a dead
    #: one.
    moment_us: int
    #: None where there is no body or it cannot be read.
    job: Job | None
    attempts: Attempts
    #: µs since the epoch when the running attempt was claimed.
    claimed_us: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One row of a page."""

    member: bytes
    #: Due time, rank, lease end or time of death: with `member`, the cursor of this row.
    score: int
    job: Job | None
    #: Task and queue as far as the body can be read, also where it was cut.
    task: str
    queue: str
    attempts: Attempts


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Rows of one place, lowest score first."""

    #: Rank of the first row in the place.
    rank: int
    total: int
    rows: list[Row]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """How many jobs are where."""

    scheduled: dict[str, int]
    ready: dict[str, int]
    claimed: int
    dead: int


class Inspection:
    """The reader's door of one shard."""

    def __init__(self, shard: Shard, *, due_first_us: int) -> None:
        self._shard = shard
        self._due_first_us = due_first_us

    def find(self, raw_id: bytes, *, queue: str = "default", member: bytes = b"") -> Found:
        """Return one job in any state. One round trip where the guessed queue and member are right, else two."""
        for _ in range(3):
            keys = self._shard.keys
            state, score, stored, record, running = self._shard.run(
                _FIND, [raw_id, member], schedule=keys.schedule(queue), ready=keys.ready(queue)
            )
            if state != b"elsewhere":
                break
            try:
                head = decode_head(stored)
            except BadBody:
                break
            queue, member = head.queue, head.member(raw_id)
        return self._found(raw_id, state, score, stored, record, running)

    def holder(self, digest: bytes) -> bytes | None:
        """Return the id of the job that holds a key, or None."""
        member = asked(lambda: self._shard.client.hget(self._shard.keys("holders"), digest), self._shard.client)
        return member[:12] if member else None

    def counts(self) -> Counts:
        """Return how many jobs wait, run and are dead, per queue; two round trips, O(1) a queue."""
        queues, keys = self._shard.read_queues(), self._shard.keys

        def read() -> list[int]:
            pipeline = self._shard.client.pipeline(transaction=False)
            for queue in queues:
                pipeline.zcard(keys.schedule(queue))
                pipeline.zcard(keys.ready(queue))
            pipeline.zcard(keys("leases"))
            pipeline.zcard(keys("dead_letters"))
            found: list[int] = pipeline.execute()
            return found

        *waiting, claimed, dead = asked(read, self._shard.client)
        return Counts(
            scheduled=dict(zip(queues, waiting[::2], strict=True)),
            ready=dict(zip(queues, waiting[1::2], strict=True)),
            claimed=claimed,
            dead=dead,
        )

    def page(
        self,
        state: State,
        *,
        queue: str = "",
        cursor: tuple[int, bytes] | None = None,
        before: bool = False,
        count: int = 50,
    ) -> Page:
        """Return up to 250 rows after (or before) a cursor, or from the start (end).

        A cursor is the (score, member) of a row; (score, b"") jumps to a score. Rows that vanished do not shift it.
        One round trip, O(log n + rows).
        """
        keys, dead = self._shard.keys, state is State.DEAD
        places = {State.SCHEDULED: keys.schedule(queue), State.READY: keys.ready(queue)}
        places |= {State.CLAIMED: keys("leases"), State.DEAD: keys("dead_letters")}
        score, member = cursor if cursor else ("", b"")
        reply = self._shard.run(
            _PAGE,
            [score, member, min(max(1, count), MAX_ROWS), int(before), LARGE_BODY],
            place=places[state],
            contents=keys("dead_bodies" if dead else "bodies"),
        )
        cells = reply[2:]
        rows = [self._row(cells[at : at + 4], dead=dead) for at in range(0, len(cells), 4)]
        return Page(rank=reply[0], total=reply[1], rows=rows)

    def dead_letter(self, raw_id: bytes) -> DeadLetter | None:
        """Return a dead letter with its history, or None."""
        found = self.find(raw_id)
        if found.state is not State.DEAD:
            return None
        return DeadLetter(
            raw_id=raw_id, shard=found.shard, died_us=found.moment_us, job=found.job, attempts=found.attempts
        )

    def _found(
        self,
        raw_id: bytes,
        state: bytes,
        score: Any,
        stored: bytes | None,
        record: bytes | None,
        running: bytes | None,
    ) -> Found:
        where = State(state.decode()) if state != b"elsewhere" else State.GONE
        moment_us, claimed_us = _whole(score), None
        if where is State.DEAD:
            record, stored = DeadBody.unpack(stored)
        elif where is State.READY:
            moment_us = self._due_us(moment_us, stored)
        elif where is State.CLAIMED and running:
            claimed_us, rank = Running.unpack(running)
            moment_us = self._due_us(rank, stored)
        return Found(
            raw_id=raw_id,
            shard=self._shard.index,
            state=where,
            moment_us=moment_us,
            job=self._job(raw_id, stored),
            attempts=Attempts.unpack(record),
            claimed_us=claimed_us,
        )

    def _row(self, cells: Sequence[Any], *, dead: bool) -> Row:
        member, score, stored, record = cells
        if dead:
            record, stored = DeadBody.unpack(stored)
        task = queue = ""
        try:
            head = decode_head(stored or b"")
            task, queue = head.task, head.queue
        except BadBody:
            pass
        return Row(
            member=member,
            score=_whole(score),
            job=self._job(member[:12], stored),
            task=task,
            queue=queue,
            attempts=Attempts.unpack(record),
        )

    def _job(self, raw_id: bytes, body: bytes | None) -> Job | None:
        try:
            return decode(body, raw_id=raw_id, shard=self._shard.index)
        except BadBody:
            return None

    def _due_us(self, rank: int, body: bytes | None) -> int:
        return due_of_rank(rank, int.from_bytes((body or b"")[2:3]), due_first_us=self._due_first_us)


def _whole(score: Any) -> int:
    """Return a score as a whole number; one beyond all of ours, written by hand, as the nearest that is not."""
    return int(min(max(float(score), -_END), _END))
