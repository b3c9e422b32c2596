"""Operations: what a handle or a person does to one job, a queue, or a worker; for handles, commands and the admin.

The caller knows an id; the job's queue stands in its body. So each operation reads the head, names that queue's keys,
and asks the script to check; where the job moved meanwhile it reads again, once.
"""

from collections.abc import Callable
from dataclasses import replace
from time import time_ns
from typing import TypeVar

from django_delayq.exceptions import BadBody, BadSignature, KeyHeld, ShardsChanged
from django_delayq.job.codec import Head, decode, decode_head, encode, with_flags, with_queue
from django_delayq.job.ids import shard_of
from django_delayq.job.job import DEFAULT_QUEUE, Flag, Job
from django_delayq.job.result import cancelled
from django_delayq.job.signing import BodySigner
from django_delayq.store.client.resp import Part
from django_delayq.store.client.script import Script, with_store_errors
from django_delayq.store.records import DeadLetterRecord
from django_delayq.store.shard import Shard

_CANCEL, _RESCHEDULE, _MOVE = Script("cancel"), Script("reschedule"), Script("move")
_REQUEUE, _DISCARD = Script("requeue"), Script("discard")
_PAUSE, _RESUME, _QUIET = Script("pause"), Script("resume"), Script("quiet")
#: Longest name of who paused something, in bytes.
_WHO = 200
T = TypeVar("T")


class Operations:
    """The door for changes to single jobs of one shard."""

    def __init__(self, shard: Shard, *, shards: int, due_first_us: int, max_payload: int, seal: BodySigner) -> None:
        self._shard = shard
        self._shards = shards
        self._seal = seal
        self._max_payload = max_payload
        self._head_start_ms = due_first_us // 1_000

    def cancel(self, raw_id: bytes, *, token: bytes = b"", on_its_way: bool = False) -> bool:
        """Withdraw a job that waits. True: it starts no more. False: it runs, ended, or is dead. O(log n).

        Where it keeps a result, that is that it was cancelled. A call with the `token` of one that cancelled the job is
        True too. `on_its_way`: an enqueue of it may still arrive, and is refused then.
        """
        keys = self._shard.keys

        def run(member: bytes, queue: str, kept: tuple[bytes, int]) -> tuple[bytes, bool]:
            args: list[Part] = [member, *kept, token, int(on_its_way)]
            word = self._shard.run(_CANCEL, args, **keys.waiting_places(queue), results=keys.results(raw_id))
            return word, word == b"CANCELLED"

        def step(head: Head, body: bytes) -> tuple[bytes, bool]:
            return run(head.member(raw_id), head.queue, self._cancelled(raw_id, body) if head.kept else (b"", 0))

        def absent() -> tuple[bytes, bool]:
            return run(raw_id, DEFAULT_QUEUE, (b"", 0)) if token or on_its_way else (b"GONE", False)

        return self._on_waiting(raw_id, step, otherwise=False, absent=absent)

    def reschedule(self, raw_id: bytes, *, delay_us: int | None = None, due_us: int | None = None) -> int | None:
        """Give a job that waits another due time; returns it in µs, or None where the job does not wait. O(log n).

        One that is put off has the head start of due jobs from then on, as if it had been delayed when enqueued.
        """
        due = f"+{delay_us}" if due_us is None else due_us

        def step(head: Head, body: bytes) -> tuple[bytes, int | None]:
            places = {
                **self._shard.keys.waiting_places(head.queue),
                "queue_notify": self._shard.keys.notify(head.queue),
            }
            args = [head.member(raw_id), due, self._head_start_ms, *self._delayed(raw_id, head, body)]
            word, at = self._shard.run(_RESCHEDULE, args, **places)
            return word, at if word == b"RESCHEDULED" else None

        return self._on_waiting(raw_id, step, otherwise=None)

    def move(self, raw_id: bytes, queue: str) -> bool:
        """Put a job that waits into another queue, with its due time or place. False: it does not wait. O(log n).

        Raises `BadSignature` where bodies are signed and this one is not, or not by us.
        """
        keys = self._shard.keys

        def step(head: Head, body: bytes) -> tuple[bytes, bool]:
            moved = self._seal.resign(raw_id, body, lambda unsigned: with_queue(unsigned, queue))
            word = self._shard.run(
                _MOVE,
                [head.member(raw_id), body, moved],
                **keys.waiting_places(head.queue),
                to_scheduled=keys.scheduled(queue),
                to_ready=keys.ready(queue),
                to_recovered=keys.recovered(queue),
                to_notify=keys.notify(queue),
            )
            return word, word == b"MOVED"

        return self._on_waiting(raw_id, step, otherwise=False)

    def requeue(
        self, raw_id: bytes, *, died_us: int, delay_us: int = 0, change: Callable[[Job], Job] | None = None
    ) -> int | None:
        """Revive the dead letter that died at `died_us`: same id, attempts counted anew, history kept. O(log n).

        `change` may give it other arguments; the caller has checked that they fit. Returns its due time in µs, or None
        where it is no longer that dead letter. Raises `KeyHeld` where its key is another job's by now, `BadBody` where
        it cannot be read, `ShardsChanged` where its key is another shard's by now, and with `change` `PayloadTooLarge`.
        """
        stored = with_store_errors(
            lambda: self._shard.line.ask("HGET", self._shard.keys("dead_bodies"), raw_id), self._shard.client
        )
        if stored is None:
            return None
        letter = DeadLetterRecord.unpack(stored)
        self._check_key(letter.extras)
        body = letter.body
        queue, changed = decode_head(body).queue, [b"", b"", b""]
        if change is not None:
            self._seal.verify(raw_id, body)
            job = change(decode(body, raw_id=raw_id, shard=self._shard.index))
            job, new = encode(replace(job, flags=job.flags & ~Flag.LARGE), max_payload=self._max_payload)
            changed = [body, job.member, self._seal.sign(raw_id, new)]
        places = {**self._shard.keys.waiting_places(queue), "queue_notify": self._shard.keys.notify(queue)}
        args: list[Part] = [raw_id, died_us, delay_us, self._head_start_ms, *changed]
        word, due_us = self._shard.run(_REQUEUE, args, **places)
        if word == b"HELD":
            raise KeyHeld(
                "the key of this dead letter is held by another job now; cancel that one first, or discard this one"
            )
        return due_us if word == b"REQUEUED" else None

    def discard(self, raw_id: bytes, *, died_us: int) -> bool:
        """Drop the dead letter that died at `died_us` for good. False: it is no longer that dead letter. O(log n)."""
        return bool(self._shard.run(_DISCARD, [raw_id, died_us]))

    def pause(self, queue: str, *, by: str) -> bool:
        """Let no worker take this queue's jobs until it is resumed; they still become ready. False: it was so. O(1)."""
        ready = self._shard.keys.ready(queue)
        return bool(self._shard.run(_PAUSE, [by.encode("utf-8", "replace")[:_WHO]], ready=ready))

    def resume(self, queue: str) -> bool:
        """Let workers take this queue's jobs again. False: it was not paused. O(1)."""
        keys = self._shard.keys
        places = {"ready": keys.ready(queue), "recovered": keys.recovered(queue)}
        return bool(self._shard.run(_RESUME, [], **places, queue_notify=keys.notify(queue)))

    def quiet(self, code: bytes, *, by: str) -> bool:
        """Ask the worker of that code to take no more jobs; it hears within 15 s. False: unknown, or asked already."""
        return bool(self._shard.run(_QUIET, [code, by.encode("utf-8", "replace")[:_WHO] or b"?"]))

    def unquiet(self, code: bytes) -> bool:
        """Let that worker take jobs again; it hears within 15 s. False: it was not asked to be quiet."""
        return bool(self._shard.run(_QUIET, [code, b""]))

    def _check_key(self, extras: bytes) -> None:
        """Refuse a key that jobs enqueued now would hold in another shard: both could hold it, and both would run."""
        digest = extras[1:17]
        if digest and shard_of(digest, self._shards) != self._shard.index:
            raise ShardsChanged(
                f"DELAYQ['SHARDS'] is {self._shards} now, so the key of this dead letter belongs to shard "
                f"{shard_of(digest, self._shards)}: enqueue it anew and discard this one, or set SHARDS back"
            )

    def _delayed(self, raw_id: bytes, head: Head, body: bytes) -> list[bytes]:
        """Return the body, and member and body of the same job with the delayed flag; nothing where it has that."""
        flags = head.flags | Flag.DELAYED
        if flags == head.flags:
            return [b"", b"", b""]
        try:
            changed = self._seal.resign(raw_id, body, lambda unsigned: with_flags(unsigned, flags))
        except BadSignature:
            # No worker will run it, whenever it is due.
            return [b"", b"", b""]
        return [body, head.member(raw_id)[:-1] + bytes((flags,)), changed]

    def _cancelled(self, raw_id: bytes, body: bytes) -> tuple[bytes, int]:
        """Return what to keep of a cancelled job, and for how many ms."""
        try:
            ttl_us = decode(body, raw_id=raw_id, shard=self._shard.index).result_ttl_us
        except BadBody:
            ttl_us = None
        return (cancelled(ended_us=time_ns() // 1_000), max(1, ttl_us // 1_000)) if ttl_us is not None else (b"", 0)

    def _on_waiting(
        self,
        raw_id: bytes,
        step: Callable[[Head, bytes], tuple[bytes, T]],
        *,
        otherwise: T,
        absent: Callable[[], tuple[bytes, T]] | None = None,
    ) -> T:
        for _ in range(2):
            body = with_store_errors(
                lambda: self._shard.line.ask("HGET", self._shard.keys("jobs"), raw_id), self._shard.client
            )
            try:
                head = decode_head(body) if body is not None else None
            except BadBody:
                return otherwise
            if head is not None and body is not None:
                word, result = step(head, body)
            elif absent is not None:
                word, result = absent()
            else:
                return otherwise
            if word != b"ELSEWHERE":
                return result
        return otherwise
