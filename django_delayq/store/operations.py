"""Operations: changes to waiting jobs, dead letters, queues and workers. Called by handles, commands and the admin.

The caller knows a job's id; its queue is in its body. So an operation reads the bodies of a batch first and passes the
keys of their queues to the script. What waits elsewhere by then is read again, once.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import time_ns
from typing import Any

from django_delayq.clock import DAY_US, estimated_us
from django_delayq.exceptions import (
    BadBody,
    BadSignature,
    KeyHeld,
    PayloadTooLarge,
    ShardsChanged,
    UnknownEncryptionKey,
)
from django_delayq.job.codec import (
    Head,
    decode,
    decode_head,
    decrypt,
    encode,
    encrypt,
    try_decode,
    try_decode_head,
    with_due,
    with_flags,
    with_queue,
)
from django_delayq.job.ids import shard_of
from django_delayq.job.job import Flag, Job, State
from django_delayq.job.result import Result
from django_delayq.store.batch import BatchJob, Effect, QueueNumbers, Spread, StoredJob, read_batches
from django_delayq.store.client.resp import Part
from django_delayq.store.client.script import Script
from django_delayq.store.records import DeadLetterRecord
from django_delayq.store.shard import Shard

_CANCEL, _RESCHEDULE, _MOVE = Script("cancel"), Script("reschedule"), Script("move")
_REQUEUE, _DISCARD = Script("requeue"), Script("discard")
_PAUSE, _RESUME, _QUIET, _STOP = Script("pause"), Script("resume"), Script("quiet"), Script("stop")
#: Longest time that the code of a stopped job may still take.
LONGEST_GRACE_US = DAY_US
#: Longest name of a person, in bytes.
_LONGEST_NAME = 200
#: Arguments of `requeue` for a job whose body stays.
_UNCHANGED: list[Part] = [b"", b"", b""]
#: The same for `reschedule`.
_STAYS: list[Part] = [*_UNCHANGED, b""]
_HELD = "the key of this dead letter is held by another job now; cancel that one first, or discard this one"
#: What one job of a batch may be refused for; the others are changed.
_REFUSALS = (KeyHeld, BadBody, PayloadTooLarge, ShardsChanged)
#: The job no longer waits, or is no longer that dead letter.
_SKIPPED = Effect(done=False)


class Operations:
    """API of one shard for changes to jobs, queues and workers. Each call of a script is atomic.

    The methods named `…_many` change up to 250 jobs in one call and return an effect for each. Bodies of more than
    1 MiB in all take several calls.
    """

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
        return self.cancel_many([BatchJob(raw_id=raw_id)], token=token, may_arrive=may_arrive)[0].done

    def cancel_many(self, jobs: Sequence[BatchJob], *, token: bytes = b"", may_arrive: bool = False) -> list[Effect]:
        """Do what `cancel()` does, to up to 250 jobs."""
        keys = self._shard.keys

        def run(batch: Sequence[StoredJob]) -> list[tuple[bytes, Effect]]:
            queues, result_keys, args = QueueNumbers(), list[str](), list[Part]()
            for each in batch:
                kept: tuple[bytes, int] = (b"", 0)
                if each.head and each.body and each.head.keeps_result:
                    kept = self._cancelled(each.job.raw_id, each.body)
                if kept[0]:
                    result_keys.append(keys.results(each.job.raw_id))
                args += [queues.number(each.head), each.member, len(result_keys) if kept[0] else 0, *kept]
            places = [place for queue in queues.numbers for place in keys.places(queue)]
            head: list[Part] = [len(queues.numbers), token, int(may_arrive)]
            words = self._shard.run(_CANCEL, [*head, *args], more_keys=[*places, *result_keys])
            return [(word, Effect(done=word == b"CANCELLED")) for word in words]

        return self._change_waiting(jobs, run, bodiless=bool(token or may_arrive))

    def stop(self, raw_id: bytes, *, grace_us: int) -> bool:
        """Ask a running job to stop: its worker is notified, and it is not run again. False: it does not run.

        Its code may run on for `grace_us`, at most a day; a later call decides anew. Two round trips, O(1).
        """
        keys = self._shard.keys
        for _ in range(3):
            record = self._shard.execute("HGET", keys("claim_records"), raw_id)
            if not record:
                return False
            token = record[:16]
            if self._shard.run(_STOP, [raw_id, token, grace_us], worker_notify=keys.notify_worker(token[:8])):
                return True
            # It was claimed again meanwhile.
        return False

    def reschedule(self, raw_id: bytes, *, delay_us: int = 0, due_us: int | None = None) -> int | None:
        """Give a waiting job another due time. Return it (µs), or None if the job does not wait. O(log n).

        A job with a later time gets the head start of due jobs, as if it had been delayed when it was enqueued. An
        expiry that is a span moves along. Raises `BadBody` if its expiry cannot be read.
        """
        return _or_raise(self.reschedule_many([BatchJob(raw_id=raw_id, delay_us=delay_us, due_us=due_us)])).due_us

    def reschedule_many(self, jobs: Sequence[BatchJob]) -> list[Effect]:
        """Do what `reschedule()` does, to up to 250 jobs, each with a time of its own."""

        def run(batch: Sequence[StoredJob]) -> list[tuple[bytes, Effect]]:
            queues, args, refused = QueueNumbers(), list[Part](), dict[int, Effect]()
            for number, each in enumerate(batch):
                assert each.head and each.body is not None
                try:
                    changed = self._rescheduled(each.job, each.head, each.body)
                except _REFUSALS as error:
                    refused[number] = Effect(done=False, error=error)
                else:
                    args += [queues.number(each.head), each.member, each.job.due, *changed]
            places = [place for queue in queues.numbers for place in self._shard.keys.named(queue).values()]
            replies = self._shard.run(_RESCHEDULE, [self._head_start_ms, *args], more_keys=places) if args else ()
            return _with_refused(
                len(batch),
                refused,
                (
                    (word, Effect(done=True, due_us=due_us) if word == b"RESCHEDULED" else _SKIPPED)
                    for word, due_us in _pairs(replies)
                ),
            )

        return self._change_waiting(jobs, run)

    def move(self, raw_id: bytes, queue: str) -> bool:
        """Move a waiting job to another queue; it keeps its due time or rank. False: it does not wait. O(log n).

        Raises `BadSignature` if bodies are signed and the signature of this one is missing or wrong.
        """
        return _or_raise(self.move_many([BatchJob(raw_id=raw_id)], queue)).done

    def move_many(self, jobs: Sequence[BatchJob], queue: str) -> list[Effect]:
        """Do what `move()` does, to up to 250 jobs."""
        keys = self._shard.keys

        def run(batch: Sequence[StoredJob]) -> list[tuple[bytes, Effect]]:
            queues, args, refused = QueueNumbers(), list[Part](), dict[int, Effect]()
            for number, each in enumerate(batch):
                assert each.body is not None
                try:
                    moved = self._signer.resign(
                        each.job.raw_id, each.body, lambda unsigned: with_queue(unsigned, queue)
                    )
                except _REFUSALS as error:
                    refused[number] = Effect(done=False, error=error)
                else:
                    args += [queues.number(each.head), each.member, each.body, moved]
            words = (
                self._shard.run(
                    _MOVE,
                    args,
                    to_scheduled=keys.scheduled(queue),
                    to_ready=keys.ready(queue),
                    to_recovered=keys.recovered(queue),
                    to_notify=keys.notify(queue),
                    more_keys=[place for name in queues.numbers for place in keys.places(name)],
                )
                if args
                else ()
            )
            return _with_refused(len(batch), refused, ((word, Effect(done=word == b"MOVED")) for word in words))

        return self._change_waiting(jobs, run)

    def requeue(
        self, raw_id: bytes, *, died_us: int, delay_us: int = 0, change: Callable[[Job], Job] | None = None
    ) -> int | None:
        """Revive the dead letter that died at `died_us`: it keeps id and history; attempts count from 0. O(log n).

        Its expiry moves along, or is left out if its moment is over. `change` may return the job with other arguments;
        the caller has checked that they fit. Returns the due time (µs), or None if it is not that dead letter any more.
        Raises `KeyHeld` if another job holds its key now, `BadBody` if it cannot be read, `ShardsChanged` if its key
        belongs to another shard now, and `PayloadTooLarge` if the changed arguments are too large.
        """
        job = BatchJob(raw_id=raw_id, died_us=died_us, delay_us=delay_us)
        return _or_raise(self.requeue_many([job], change=change)).due_us

    def requeue_many(
        self,
        jobs: Sequence[BatchJob],
        *,
        spread: Spread | None = None,
        change: Callable[[Job], Job] | None = None,
    ) -> list[Effect]:
        """Do what `requeue()` does, to up to 250 dead letters; over a spread, the place of a refused one stays free."""
        keys, effects, now_us = self._shard.keys, [_SKIPPED] * len(jobs), estimated_us(self._shard.clock)
        for numbers, records in read_batches(self._shard, "dead_bodies", jobs, range(len(jobs))):
            found = {number: stored for number, stored in zip(numbers, records, strict=True) if stored is not None}
            batch = {number: jobs[number] for number in found}
            if spread is not None:
                dues = spread.take_places(self._shard, len(found))
                spread.left -= len(numbers)
                batch = {n: replace(job, due_us=due_us) for (n, job), due_us in zip(batch.items(), dues, strict=True)}
            queues, args, sent = QueueNumbers(), list[Part](), list[int]()
            for number, job in batch.items():
                letter = DeadLetterRecord.unpack(found[number])
                try:
                    self._check_key(letter.extras)
                    head, changed = decode_head(letter.body), _UNCHANGED
                    if change is not None or head.expires:
                        # A place of a spread is a moment of Redis already.
                        due_us = job.estimated_due_us(0 if spread else now_us)
                        changed = self._changed(job.raw_id, letter.body, change, due_us=due_us)
                except _REFUSALS as error:
                    effects[number] = Effect(done=False, error=error)
                else:
                    args += [queues.number(head), job.raw_id, job.died_us, job.due, *changed]
                    sent.append(number)
            if not sent:
                continue
            places = [place for queue in queues.numbers for place in keys.of_queue(queue)]
            replies = self._shard.run(_REQUEUE, [self._head_start_ms, *args], more_keys=places)
            for number, (word, due_us) in zip(sent, _pairs(replies), strict=True):
                if word == b"REQUEUED":
                    effects[number] = Effect(done=True, due_us=due_us)
                elif word == b"HELD":
                    effects[number] = Effect(done=False, error=KeyHeld(_HELD))
        return effects

    def end_spread(self, spread: Spread) -> None:
        """End a caller's part in a spread when it has sent its last job. O(1)."""
        spread.end(self._shard)

    def discard(self, raw_id: bytes, *, died_us: int) -> bool:
        """Drop the dead letter that died at `died_us` for good. False: it is no longer that one. O(log n)."""
        return self.discard_many([BatchJob(raw_id=raw_id, died_us=died_us)])[0].done

    def discard_many(self, jobs: Sequence[BatchJob]) -> list[Effect]:
        """Do what `discard()` does, to up to 250 dead letters."""
        args = [part for job in jobs for part in (job.raw_id, job.died_us)]
        return [Effect(done=bool(dropped)) for dropped in self._shard.run(_DISCARD, args)] if args else []

    def pause(self, queue: str, *, by: str, delay_us: int | None = None, until_us: int | None = None) -> bool:
        """Stop claims of a queue's jobs until it is resumed, or until an end; jobs still become ready. O(log n).

        The end is a number of µs from now, or µs since the epoch; promote ends the pause then. A paused queue gets the
        new end, or none. False: it was paused so already.
        """
        ends: Part = b"" if delay_us is None else f"+{delay_us}"
        args = [_name(by), ends if until_us is None else until_us]
        return bool(self._shard.run(_PAUSE, args, **self._shard.keys.named(queue)))

    def resume(self, queue: str) -> bool:
        """Allow claims of a queue's jobs again. Returns False if it was not paused. O(log n)."""
        return bool(self._shard.run(_RESUME, [], **self._shard.keys.named(queue)))

    def quiet(self, worker_id: bytes, *, by: str) -> bool:
        """Make a worker quiet at once: it claims no more jobs. Returns False if it is unknown or already quiet."""
        return self._quiet(worker_id, _name(by) or b"?")

    def unquiet(self, worker_id: bytes) -> bool:
        """Make a worker claim jobs again at once. Returns False if it was not quiet."""
        return self._quiet(worker_id, b"")

    def _quiet(self, worker_id: bytes, by: bytes) -> bool:
        own_notification = self._shard.keys.notify_worker(worker_id)
        return bool(self._shard.run(_QUIET, [worker_id, by], worker_notify=own_notification))

    def _check_key(self, extras: bytes) -> None:
        """Refuse a key that new jobs would hold in another shard: both jobs could hold it, and both would run."""
        digest = extras[1:17]
        if digest and shard_of(digest, self._shards) != self._shard.index:
            raise ShardsChanged(
                f"DELAYQ['SHARDS'] is {self._shards} now, so the key of this dead letter belongs to shard "
                f"{shard_of(digest, self._shards)}: enqueue a new job and discard this one, or set SHARDS back"
            )

    def _changed(self, raw_id: bytes, body: bytes, change: Callable[[Job], Job] | None, *, due_us: int) -> list[Part]:
        """Return the body that was read, and member and body of the changed job, whose expiry follows its due time."""
        if change is None:
            try:
                revived = self._signer.resign(
                    raw_id, body, lambda stored: self._with_due(raw_id, stored, due_us, revived=True)
                )
            except BadSignature:
                # No worker will run it at any time.
                return _UNCHANGED
            return [body, decode_head(body).member(raw_id), revived]
        self._signer.verify(raw_id, body)
        job = change(decode(body, raw_id=raw_id, shard=self._shard.index, cipher=self._cipher))
        job, new = encode(replace(job, flags=job.flags & ~Flag.LARGE), max_payload=self._max_payload)
        new = encrypt(with_due(new, due_us, revived=True), raw_id=raw_id, cipher=self._cipher)
        return [body, job.member, self._signer.sign(raw_id, new)]

    def _rescheduled(self, job: BatchJob, head: Head, body: bytes) -> list[Part]:
        """Return the body, member and body of the same job at a later time, and its body if it becomes ready.

        Empty parts stay as they are. A later time brings the delayed flag, and every time moves an expiry.
        """
        flags = head.flags | Flag.DELAYED
        if flags == head.flags and not head.expires:
            return _STAYS
        due_us = job.estimated_due_us(estimated_us(self._shard.clock))

        def rewritten(flags: Flag) -> bytes:
            return self._signer.resign(
                job.raw_id, body, lambda stored: self._with_due(job.raw_id, with_flags(stored, flags), due_us)
            )

        try:
            later, ready = rewritten(flags), rewritten(head.flags) if head.expires else b""
        except (BadSignature, UnknownEncryptionKey):
            # No worker will run it at any time, or this process cannot read its expiry.
            return _STAYS
        return [body, head.member(job.raw_id)[:-1] + bytes((flags,)), later, ready]

    def _with_due(self, raw_id: bytes, body: bytes, due_us: int, *, revived: bool = False) -> bytes:
        """Return an unsigned body whose expiry follows a new due time. Raises `UnknownEncryptionKey`."""
        if not decode_head(body).expires:
            return body
        plain = decrypt(body, raw_id=raw_id, cipher=self._cipher)
        return encrypt(with_due(plain, due_us, revived=revived), raw_id=raw_id, cipher=self._cipher)

    def _cancelled(self, raw_id: bytes, body: bytes) -> tuple[bytes, int]:
        """Return the result to keep of a cancelled job, and for how many ms."""
        job, _ = try_decode(body, raw_id=raw_id, shard=self._shard.index, cipher=self._cipher)
        if job is None or not job.result_ttl_ms:
            return b"", 0
        result = Result(state=State.CANCELLED, ended_us=time_ns() // 1_000)
        return self._shard.seal_result(raw_id, result.pack()), job.result_ttl_ms

    def _change_waiting(
        self,
        jobs: Sequence[BatchJob],
        run: Callable[[Sequence[StoredJob]], list[tuple[bytes, Effect]]],
        *,
        bodiless: bool = False,
    ) -> list[Effect]:
        """Read the bodies of jobs and run a script with their heads; again, once, for those that wait elsewhere then.

        With `bodiless`, also for jobs that have no body.
        """
        effects, left = [_SKIPPED] * len(jobs), list(range(len(jobs)))
        for _ in range(2):
            elsewhere = []
            for numbers, bodies in read_batches(self._shard, "jobs", jobs, left):
                batch: dict[int, StoredJob] = {}
                for number, body in zip(numbers, bodies, strict=True):
                    head = try_decode_head(body)
                    if head is not None or (body is None and bodiless):
                        batch[number] = StoredJob(jobs[number], body, head)
                replies = run(list(batch.values())) if batch else []
                for number, (word, effect) in zip(batch, replies, strict=True):
                    effects[number] = effect
                    if word == b"ELSEWHERE":
                        elsewhere.append(number)
            left = elsewhere
        return effects


def _or_raise(effects: Sequence[Effect]) -> Effect:
    """Return the effect on a single job. Raises the error for which it was refused."""
    [effect] = effects
    if effect.error is not None:
        raise effect.error
    return effect


def _with_refused(
    count: int, refused: Mapping[int, Effect], replies: Iterable[tuple[bytes, Effect]]
) -> list[tuple[bytes, Effect]]:
    """Return the replies on all jobs of a batch, of which the refused ones were not sent."""
    sent = iter(replies)
    return [(b"REFUSED", refused[number]) if number in refused else next(sent) for number in range(count)]


def _pairs(replies: Sequence[Any]) -> Iterator[tuple[bytes, int]]:
    return zip(replies[::2], replies[1::2], strict=True)


def _name(by: str) -> bytes:
    return by.encode("utf-8", "replace")[:_LONGEST_NAME]
