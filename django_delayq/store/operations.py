"""Operations: changes to one job, one queue or one worker. Called by handles, commands and the admin.

The caller knows a job's id; its queue is in its body. So an operation on a waiting job reads the head of the body first
and passes that queue's keys to the script. If the job moved meanwhile, it reads again, once.
"""

from collections.abc import Callable
from dataclasses import replace
from time import time_ns
from typing import TypeVar

from django_delayq.exceptions import BadSignature, KeyHeld, ShardsChanged
from django_delayq.job.codec import (
    Head,
    decode,
    decode_head,
    encode,
    encrypt,
    try_decode,
    try_decode_head,
    with_flags,
    with_queue,
)
from django_delayq.job.ids import shard_of
from django_delayq.job.job import DEFAULT_QUEUE, Flag, Job
from django_delayq.job.result import pack_cancelled
from django_delayq.store.client.resp import Part
from django_delayq.store.client.script import Script
from django_delayq.store.records import DeadLetterRecord
from django_delayq.store.shard import Shard

_CANCEL, _RESCHEDULE, _MOVE = Script("cancel"), Script("reschedule"), Script("move")
_REQUEUE, _DISCARD = Script("requeue"), Script("discard")
_PAUSE, _RESUME, _QUIET = Script("pause"), Script("resume"), Script("quiet")
#: Longest name of a person, in bytes.
_LONGEST_NAME = 200
#: What `reschedule` and `requeue` get if the job does not change.
_UNCHANGED: list[Part] = [b"", b"", b""]
T = TypeVar("T")


class Operations:
    """API of one shard for changes to single jobs, queues and workers. Each operation is atomic."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._signer, self._cipher = shard.signer, shard.cipher
        self._shards = shard.config.shards
        self._max_payload = shard.config.tasks.max_payload
        self._head_start_ms = shard.config.dispatcher.due_first_us // 1_000

    def cancel(self, raw_id: bytes, *, token: bytes = b"", may_arrive: bool = False) -> bool:
        """Withdraw a waiting job. True: it will not start. False: it is running, has ended, or is dead. O(log n).

        If it keeps its result, the result is that it was cancelled. Safe to repeat with the same `token`: the repeated
        call returns True too. With `may_arrive`, an enqueue of the job that arrives later is refused.
        """
        keys = self._shard.keys

        def run(member: bytes, queue: str, result: tuple[bytes, int]) -> tuple[bytes, bool]:
            args: list[Part] = [member, *result, token, int(may_arrive)]
            word = self._shard.run(_CANCEL, args, **keys.named(queue), results=keys.results(raw_id))
            return word, word == b"CANCELLED"

        def run_on(head: Head, body: bytes) -> tuple[bytes, bool]:
            return run(
                head.member(raw_id), head.queue, self._cancelled(raw_id, body) if head.keeps_result else (b"", 0)
            )

        def run_without_body() -> tuple[bytes, bool]:
            return run(raw_id, DEFAULT_QUEUE, (b"", 0)) if token or may_arrive else (b"GONE", False)

        return self._on_waiting(raw_id, run_on, otherwise=False, run_without_body=run_without_body)

    def reschedule(self, raw_id: bytes, *, delay_us: int | None = None, due_us: int | None = None) -> int | None:
        """Give a waiting job another due time. Return it (µs), or None if the job does not wait. O(log n).

        A job with a later time gets the head start of due jobs, as if it had been delayed when it was enqueued.
        """
        due = f"+{delay_us}" if due_us is None else due_us

        def run_on(head: Head, body: bytes) -> tuple[bytes, int | None]:
            args = [head.member(raw_id), due, self._head_start_ms, *self._delayed(raw_id, head, body)]
            word, at_us = self._shard.run(_RESCHEDULE, args, **self._shard.keys.named(head.queue))
            return word, at_us if word == b"RESCHEDULED" else None

        return self._on_waiting(raw_id, run_on, otherwise=None)

    def move(self, raw_id: bytes, queue: str) -> bool:
        """Move a waiting job to another queue; it keeps its due time or rank. False: it does not wait. O(log n).

        Raises `BadSignature` if bodies are signed and the signature of this one is missing or wrong.
        """
        keys = self._shard.keys

        def run_on(head: Head, body: bytes) -> tuple[bytes, bool]:
            moved = self._signer.resign(raw_id, body, lambda unsigned: with_queue(unsigned, queue))
            word = self._shard.run(
                _MOVE,
                [head.member(raw_id), body, moved],
                **keys.named(head.queue),
                to_scheduled=keys.scheduled(queue),
                to_ready=keys.ready(queue),
                to_recovered=keys.recovered(queue),
                to_notify=keys.notify(queue),
            )
            return word, word == b"MOVED"

        return self._on_waiting(raw_id, run_on, otherwise=False)

    def requeue(
        self, raw_id: bytes, *, died_us: int, delay_us: int = 0, change: Callable[[Job], Job] | None = None
    ) -> int | None:
        """Revive the dead letter that died at `died_us`: it keeps id and history; attempts count from 0. O(log n).

        `change` may return the job with other arguments; the caller has checked that they fit. Returns the due time
        (µs), or None if it is not that dead letter any more. Raises `KeyHeld` if another job holds its key now,
        `BadBody` if it cannot be read, `ShardsChanged` if its key belongs to another shard now, and `PayloadTooLarge`
        if the changed arguments are too large.
        """
        stored = self._shard.execute("HGET", self._shard.keys("dead_bodies"), raw_id)
        if stored is None:
            return None
        letter = DeadLetterRecord.unpack(stored)
        self._check_key(letter.extras)
        body = letter.body
        queue, changed = decode_head(body).queue, _UNCHANGED
        if change is not None:
            self._signer.verify(raw_id, body)
            job = change(decode(body, raw_id=raw_id, shard=self._shard.index, cipher=self._cipher))
            job, new = encode(replace(job, flags=job.flags & ~Flag.LARGE), max_payload=self._max_payload)
            if self._cipher.on:
                new = encrypt(new, raw_id=raw_id, cipher=self._cipher)
            changed = [body, job.member, self._signer.sign(raw_id, new)]
        args: list[Part] = [raw_id, died_us, delay_us, self._head_start_ms, *changed]
        word, due_us = self._shard.run(_REQUEUE, args, **self._shard.keys.named(queue))
        if word == b"HELD":
            raise KeyHeld(
                "the key of this dead letter is held by another job now; cancel that one first, or discard this one"
            )
        return due_us if word == b"REQUEUED" else None

    def discard(self, raw_id: bytes, *, died_us: int) -> bool:
        """Drop the dead letter that died at `died_us` for good. False: it is no longer that one. O(log n)."""
        return bool(self._shard.run(_DISCARD, [raw_id, died_us]))

    def pause(self, queue: str, *, by: str) -> bool:
        """Stop claims of a queue's jobs until it is resumed; jobs still become ready. False: it was paused. O(1)."""
        return bool(self._shard.run(_PAUSE, [_name(by)], **self._shard.keys.named(queue)))

    def resume(self, queue: str) -> bool:
        """Allow claims of a queue's jobs again. Returns False if it was not paused. O(1)."""
        return bool(self._shard.run(_RESUME, [], **self._shard.keys.named(queue)))

    def quiet(self, worker_id: bytes, *, by: str) -> bool:
        """Make a worker quiet within 15 s: it claims no more jobs. Returns False if it is unknown or already quiet."""
        return bool(self._shard.run(_QUIET, [worker_id, _name(by) or b"?"]))

    def unquiet(self, worker_id: bytes) -> bool:
        """Make a worker claim jobs again within 15 s. Returns False if it was not quiet."""
        return bool(self._shard.run(_QUIET, [worker_id, b""]))

    def _check_key(self, extras: bytes) -> None:
        """Refuse a key that new jobs would hold in another shard: both jobs could hold it, and both would run."""
        digest = extras[1:17]
        if digest and shard_of(digest, self._shards) != self._shard.index:
            raise ShardsChanged(
                f"DELAYQ['SHARDS'] is {self._shards} now, so the key of this dead letter belongs to shard "
                f"{shard_of(digest, self._shards)}: enqueue a new job and discard this one, or set SHARDS back"
            )

    def _delayed(self, raw_id: bytes, head: Head, body: bytes) -> list[Part]:
        """Return the body, and member and body of the same job with the delayed flag; `_UNCHANGED` if it has that."""
        flags = head.flags | Flag.DELAYED
        if flags == head.flags:
            return _UNCHANGED
        try:
            changed = self._signer.resign(raw_id, body, lambda unsigned: with_flags(unsigned, flags))
        except BadSignature:
            # No worker will run it at any time.
            return _UNCHANGED
        return [body, head.member(raw_id)[:-1] + bytes((flags,)), changed]

    def _cancelled(self, raw_id: bytes, body: bytes) -> tuple[bytes, int]:
        """Return the JSON to keep of a cancelled job, and for how many ms."""
        job, _ = try_decode(body, raw_id=raw_id, shard=self._shard.index, cipher=self._cipher)
        if job is None or job.result_ttl_us is None:
            return b"", 0
        return pack_cancelled(ended_us=time_ns() // 1_000), max(1, job.result_ttl_us // 1_000)

    def _on_waiting(
        self,
        raw_id: bytes,
        run_on: Callable[[Head, bytes], tuple[bytes, T]],
        *,
        otherwise: T,
        run_without_body: Callable[[], tuple[bytes, T]] | None = None,
    ) -> T:
        """Read the job's body and run a script with its head; again, once, if the job waits elsewhere by then."""
        for _ in range(2):
            body = self._shard.execute("HGET", self._shard.keys("jobs"), raw_id)
            head = try_decode_head(body)
            if body is not None and head is not None:
                word, result = run_on(head, body)
            elif body is None and run_without_body is not None:
                word, result = run_without_body()
            else:
                return otherwise
            if word != b"ELSEWHERE":
                return result
        return otherwise


def _name(by: str) -> bytes:
    return by.encode("utf-8", "replace")[:_LONGEST_NAME]
