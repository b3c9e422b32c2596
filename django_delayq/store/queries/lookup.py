"""Lookup: find one job, or a page of jobs. Reads only. Called by handles, the admin and health checks."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

from django_delayq import runtime
from django_delayq.job.body.codec import SIGNATURE, try_decode_head
from django_delayq.job.job import DEFAULT_QUEUE, LARGE_BODY, State
from django_delayq.job.result import Result
from django_delayq.job.security.encryption import OVERHEAD, RESULT
from django_delayq.store.client.reading import Reading
from django_delayq.store.client.script import Script
from django_delayq.store.nodes.resp import Part, encode
from django_delayq.store.queries.job_pages import JobPage, JobRow, parse_page, read_row
from django_delayq.store.records import ResultRecord
from django_delayq.store.shard import Shard

_FIND, _PAGE = Script("find"), Script("page")
#: Most rows of one page; and bytes of bodies that are read for it, and by one call that examines rows: no call may hold
#: Redis for 10 ms.
MAX_ROWS, _PAGE_BYTES, _SLICE_BYTES = 250, 1024 * 1024, 512 * 1024
#: Bytes at which a body is cut: a body that is not large is whole, also encrypted and signed.
_CUT = LARGE_BODY + OVERHEAD + SIGNATURE
_PLACES = {State.CLAIMED: "leases", State.DEAD: "dead_letters"}


class Holder(NamedTuple):
    """The job that holds a unique key, or whose window throttles the calls with it."""

    raw_id: bytes
    of_window: bool


class Lookup:
    """API of one shard that reads jobs."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._due_first_us = shard.config.dispatcher.due_first_us

    def find(
        self, raw_id: bytes, *, queue: str = DEFAULT_QUEUE, member: bytes = b"", with_lease: bool = False
    ) -> JobRow:
        """Return one job in any state. One round trip if the given queue and member are right, else two.

        With `with_lease`, also the lease's end of a claimed job; then it takes two. No body is cut.
        """
        for _ in range(3):
            results = self._shard.keys.results(raw_id)
            reply = self._shard.run(_FIND, [raw_id, member], queue=queue, results=results)
            again = reply[0] == b"elsewhere" or (with_lease and not member and reply[0] == b"claimed")
            head = try_decode_head(reply[2]) if again else None
            if head is None:
                break
            queue, member = head.queue, head.member(raw_id)
        return self._row(raw_id, *reply)

    def find_many(self, raw_ids: Sequence[bytes]) -> list[JobRow]:
        """Return up to 250 jobs in any state. Two round trips; three for each job that moves meanwhile."""
        keys, calls = self._shard.keys, []
        bodies = self._shard.execute_all([["HGET", keys("jobs"), raw_id] for raw_id in raw_ids]) if raw_ids else []
        for raw_id, body in zip(raw_ids, bodies, strict=True):
            head = try_decode_head(body)
            queue, member = (head.queue, head.member(raw_id)) if head else (DEFAULT_QUEUE, b"")
            calls.append(self._shard.call(_FIND, [raw_id, member], queue=queue, results=keys.results(raw_id)))
        replies = self._shard.read_all(calls)
        return [
            self.find(raw_id) if reply[0] == b"elsewhere" else self._row(raw_id, *reply)
            for raw_id, reply in zip(raw_ids, replies, strict=True)
        ]

    def ended(self, raw_ids: Sequence[bytes]) -> set[bytes]:
        """Return which of these jobs have ended, are dead, or never existed. One round trip, O(1) a job."""
        replies = self._shard.execute_all([["HEXISTS", self._shard.keys("jobs"), raw_id] for raw_id in raw_ids])
        return {raw_id for raw_id, exists in zip(raw_ids, replies, strict=True) if not exists}

    def holder(self, digest: bytes) -> bytes | None:
        """Return the id of the job that holds a unique key, else of the first job of an open window; None if none does.

        O(1). One round trip; three if it is the job of a window, which may have ended.
        """
        [found] = self._shard.read(self.read_holders([digest]))
        if found and found.of_window and self.find(found.raw_id).state is State.GONE:
            return None
        return found.raw_id if found else None

    def read_holders(self, digests: Sequence[bytes]) -> Reading[list[Holder | None]]:
        """Return the reading of who holds these keys, O(1) each. The first job of an open window may have ended."""
        keys = self._shard.keys
        found: list[Holder | None] = []
        members, firsts, time = yield [
            encode("HMGET", keys("unique_keys"), *digests),
            encode("HMGET", keys("throttles"), *digests),
            encode("TIME"),
        ]
        windows = [digest for digest, first in zip(digests, firsts, strict=True) if first]
        ends = (yield [encode("ZSCORE", keys("throttle_ends"), each) for each in windows]) if windows else []
        now_us, open_until = self._shard.now_us(time), dict(zip(windows, ends, strict=True))
        for digest, member, first in zip(digests, members, firsts, strict=True):
            if member:
                found.append(Holder(bytes(member[:12]), of_window=False))
            else:
                is_open = float(open_until.get(digest) or 0) > now_us
                found.append(Holder(first, of_window=True) if is_open else None)
        return found

    def page(self, state: State, **options: Any) -> JobPage:
        """Return a page of jobs in one round trip. The options are those of `read_page()`."""
        return self._shard.read(self.read_page(state, **options))

    def read_page(
        self,
        state: State,
        *,
        queues: Sequence[str] = (),
        cursor: tuple[float, bytes] | None = None,
        before: bool = False,
        count: int = 50,
        from_us: int | None = None,
        to_us: int | None = None,
        groups: Sequence[bytes] = (),
        bodies: bool = True,
        match: Callable[[JobRow], bool] | None = None,
    ) -> Reading[JobPage]:
        """Return the reading of up to 250 rows after (or before) a cursor, or from the start (end).

        Waiting jobs: of the named queues. A cursor is the (score, member) of a row; (score, b"") jumps to a score. Rows
        that vanished do not shift it. `from_us` and `to_us` bound due times or times of death. Dead letters: of these
        error groups, at most 1,251, or all. Without `bodies`, a row has its place and time alone, and of a waiting job
        also the attempts. One step, O(queues or groups x (log n + rows)); a page of more than 1 MiB
        ends early. With `match`, up to 2,000 rows are examined for up to 0.1 s, in steps of up to 250 rows; without a
        cursor up to 500.
        """
        keys = self._shard.keys
        if state in _PLACES:
            places, found_in = [] if groups else [keys(_PLACES[state])], [""] * max(1, len(groups))
        else:
            of_queue = (keys.scheduled,) if state is State.SCHEDULED else (keys.ready, keys.recovered, keys.parked)
            places = [place(queue) for queue in queues for place in of_queue]
            found_in = [queue for queue in queues for _ in of_queue]
        count = min(max(1, count), MAX_ROWS)
        read = partial(
            self._read_rows,
            state=state,
            places=places,
            found_in=found_in,
            before=before,
            cut=_CUT if bodies else 0,
            more=["" if bound is None else bound for bound in (from_us, to_us)] + list(groups),
            match=match,
        )
        if match is None:
            return (yield from read(cursor, count, count=count))
        bounds, share = runtime.current().bounds, max(1, len(found_in) // 20)
        examined = bounds.scanned_rows if cursor else min(bounds.first_rows, bounds.scanned_rows)
        most, size = max(examined // share, count), max(bounds.slice_rows // share, count)
        found = yield from read(cursor, min(size, most), count=count)
        # The time of the first round trip does not count, so each reading examines some rows.
        until = monotonic() + bounds.matching_seconds
        while found.end and len(found.rows) < count and found.scanned < most and monotonic() < until:
            rows = min(size, most - found.scanned)
            following = yield from read(found.end, rows, count=count - len(found.rows))
            found = found.joined(following, before=before)
        return found

    def _read_rows(
        self,
        cursor: tuple[float, bytes] | None,
        rows: int,
        *,
        state: State,
        places: Sequence[str],
        cut: int,
        more: Sequence[Part],
        match: Callable[[JobRow], bool] | None,
        **options: Any,
    ) -> Reading[JobPage]:
        """Return the reading of one call of the script."""
        score, member = cursor if cursor else ("", b"")
        room = _SLICE_BYTES if match else _PAGE_BYTES
        args: list[Part] = [str(score), member, rows, int(options["before"]), cut, room, *more]
        [reply] = yield [self._shard.call(_PAGE, args, more_keys=places)]
        return parse_page(
            reply,
            shard=self._shard.index,
            cipher=self._shard.cipher,
            state=state,
            due_first_us=self._due_first_us,
            match=match,
            **options,
        )

    def batches(
        self, state: State, *, cursor: tuple[float, bytes] | None = None, before: bool = False, **options: Any
    ) -> Iterator[JobPage]:
        """Yield pages of up to 250 rows, one round trip each, to the end; the options are those of `read_page()`.

        A page of jobs that match may be empty. Rows that vanish meanwhile do not shift the walk; rows that move to a
        later score may be met again.
        """
        has_more = True
        while has_more:
            count = runtime.current().bounds.batch_rows
            batch = self.page(state, cursor=cursor, before=before, count=count, **options)
            cursor, has_more = batch.end, batch.end is not None
            yield batch

    def read_pages(self, state: State, take: Callable[[JobPage], object], **options: Any) -> Reading[None]:
        """Return the reading that `take`s all pages, one step each, to the end. The options are as of `batches()`."""
        cursor, has_more = None, True
        while has_more:
            count = runtime.current().bounds.batch_rows
            batch = yield from self.read_page(state, cursor=cursor, count=count, **options)
            cursor, has_more = batch.end, batch.end is not None
            take(batch)

    def _row(
        self, raw_id: bytes, word: bytes, score: Any, stored: bytes | None, attempts: bytes | None, *claim: bytes | None
    ) -> JobRow:
        """Return the job of a reply of `find.lua`; `claim` is the claim record and the worker's name."""
        state, result = State.GONE, None
        if word == b"ended":
            attempts, ending, stored = ResultRecord.unpack(stored)
            if result := Result.unpack(self._shard.cipher.try_open(raw_id, RESULT, ending)):
                state, score = result.state, result.ended_us
        elif word != b"elsewhere":
            state = State(word.decode())
        body = stored or b""
        # The head of a body has the rest of the member.
        member = raw_id + (b"" if state is State.DEAD else body[1:3])
        return read_row(
            [member, 1, score, stored, len(body), attempts, *claim],
            shard=self._shard.index,
            cipher=self._shard.cipher,
            state=state,
            due_first_us=self._due_first_us,
            found_in=[""],
            result=result,
        )
