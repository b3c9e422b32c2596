"""Operations: what a handle or a person does to one job, a queue, or a worker; for handles, commands and the admin.

The caller knows an id; the job's queue stands in its body. So each operation reads the head, names that queue's keys,
and asks the script to check; where the job moved meanwhile it reads again, once.
"""

from collections.abc import Callable
from dataclasses import replace
from time import time_ns
from typing import TypeVar

from django_delayq.codec import Head, decode, decode_head, encode, with_queue
from django_delayq.exceptions import BadBody, KeyHeld
from django_delayq.job import Flag, Job
from django_delayq.result import cancelled
from django_delayq.seal import Seal
from django_delayq.store.records import DeadBody
from django_delayq.store.scripts import Script, asked
from django_delayq.store.shard import Shard
from django_delayq.store.wire import Part

_CANCEL, _RESCHEDULE, _MOVE = Script("cancel"), Script("reschedule"), Script("move")
_REQUEUE, _DISCARD = Script("requeue"), Script("discard")
_PAUSE, _RESUME, _QUIET = Script("pause"), Script("resume"), Script("quiet")
#: Longest name of who paused something, in bytes.
_WHO = 200
T = TypeVar("T")


class Operations:
    """The door for changes to single jobs of one shard."""

    def __init__(self, shard: Shard, *, due_first_us: int, max_payload: int, seal: Seal) -> None:
        self._shard = shard
        self._seal = seal
        self._max_payload = max_payload
        self._head_start_ms = due_first_us // 1_000

    def cancel(self, raw_id: bytes) -> bool:
        """Withdraw a job that waits. True: it never ran and never will. False: it runs, ended, or is dead. O(log n).

        Where it keeps a result, that is that it was cancelled.
        """
        results = self._shard.keys.results(raw_id)

        def step(head: Head, body: bytes) -> tuple[bytes, bool]:
            kept = self._cancelled(raw_id, body) if head.kept else (b"", 0)
            word = self._shard.run(_CANCEL, [head.member(raw_id), *kept], **self._places(head.queue), results=results)
            return word, word == b"CANCELLED"

        return self._on_waiting(raw_id, step, otherwise=False)

    def reschedule(self, raw_id: bytes, *, delay_us: int | None = None, due_us: int | None = None) -> int | None:
        """Give a job that waits another due time; returns it in µs, or None where the job does not wait. O(log n)."""
        due = f"+{delay_us}" if due_us is None else due_us

        def step(head: Head, _: bytes) -> tuple[bytes, int | None]:
            places = {**self._places(head.queue), "queue_bell": self._shard.keys.bell(head.queue)}
            word, at = self._shard.run(_RESCHEDULE, [head.member(raw_id), due, self._head_start_ms], **places)
            return word, at if word == b"RESCHEDULED" else None

        return self._on_waiting(raw_id, step, otherwise=None)

    def move(self, raw_id: bytes, queue: str) -> bool:
        """Put a job that waits into another queue, with its due time or place. False: it does not wait. O(log n).

        Raises `BadSignature` where bodies are signed and this one is not, or not by us.
        """
        keys = self._shard.keys

        def step(head: Head, body: bytes) -> tuple[bytes, bool]:
            moved = self._seal.rewritten(raw_id, body, lambda unsigned: with_queue(unsigned, queue))
            word = self._shard.run(
                _MOVE,
                [head.member(raw_id), body, moved],
                **self._places(head.queue),
                to_schedule=keys.schedule(queue),
                to_ready=keys.ready(queue),
                to_bell=keys.bell(queue),
            )
            return word, word == b"MOVED"

        return self._on_waiting(raw_id, step, otherwise=False)

    def requeue(
        self, raw_id: bytes, *, died_us: int, delay_us: int = 0, change: Callable[[Job], Job] | None = None
    ) -> int | None:
        """Revive the dead letter that died at `died_us`: same id, attempts counted anew, history kept. O(log n).

        `change` may give it other arguments; the caller has checked that they fit. Returns its due time in µs, or None
        where it is no longer that dead letter. Raises `KeyHeld` where its key is another job's by now, `BadBody` where
        it cannot be read, and with `change` `PayloadTooLarge`.
        """
        stored = asked(
            lambda: self._shard.line.ask("HGET", self._shard.keys("dead_bodies"), raw_id), self._shard.client
        )
        if stored is None:
            return None
        body = DeadBody.unpack(stored).body
        queue, changed = decode_head(body).queue, [b"", b"", b""]
        if change is not None:
            self._seal.check(raw_id, body)
            job = change(decode(body, raw_id=raw_id, shard=self._shard.index))
            job, new = encode(replace(job, flags=job.flags & ~Flag.LARGE), max_payload=self._max_payload)
            changed = [body, job.member, self._seal.signed(raw_id, new)]
        places = {**self._places(queue), "queue_bell": self._shard.keys.bell(queue)}
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
        return bool(self._shard.run(_RESUME, [], ready=keys.ready(queue), queue_bell=keys.bell(queue)))

    def quiet(self, code: bytes, *, by: str) -> bool:
        """Ask the worker of that code to take no more jobs; it hears within 15 s. False: unknown, or asked already."""
        return bool(self._shard.run(_QUIET, [code, by.encode("utf-8", "replace")[:_WHO] or b"?"]))

    def unquiet(self, code: bytes) -> bool:
        """Let that worker take jobs again; it hears within 15 s. False: it was not asked to be quiet."""
        return bool(self._shard.run(_QUIET, [code, b""]))

    def _cancelled(self, raw_id: bytes, body: bytes) -> tuple[bytes, int]:
        """Return what to keep of a cancelled job, and for how many ms."""
        try:
            ttl_us = decode(body, raw_id=raw_id, shard=self._shard.index).result_ttl_us
        except BadBody:
            ttl_us = None
        return (cancelled(ended_us=time_ns() // 1_000), max(1, ttl_us // 1_000)) if ttl_us is not None else (b"", 0)

    def _places(self, queue: str) -> dict[str, str]:
        keys = self._shard.keys
        return {"schedule": keys.schedule(queue), "ready": keys.ready(queue)}

    def _on_waiting(self, raw_id: bytes, step: Callable[[Head, bytes], tuple[bytes, T]], *, otherwise: T) -> T:
        for _ in range(2):
            body = asked(lambda: self._shard.line.ask("HGET", self._shard.keys("bodies"), raw_id), self._shard.client)
            if body is None:
                return otherwise
            try:
                head = decode_head(body)
            except BadBody:
                return otherwise
            word, result = step(head, body)
            if word != b"ELSEWHERE":
                return result
        return otherwise
