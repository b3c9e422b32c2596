"""Dead letters: requeue them, now, later or over a spread, or drop them. Called by `jobs()` and the admin."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from django_delayq.clock import estimated_us
from django_delayq.exceptions import BadSignature, KeyHeld, OtherLayout
from django_delayq.job.body.codec import Head, decode, decode_head, encode, encrypt, with_due
from django_delayq.job.job import Flag, Job
from django_delayq.job.layout import Layout, Place
from django_delayq.job.security.attempts_record import revive_attempts
from django_delayq.store.client.script import Script
from django_delayq.store.digests import routings_of
from django_delayq.store.nodes.resp import Part
from django_delayq.store.operations.batch import (
    REFUSALS,
    SKIPPED,
    BatchJob,
    Effect,
    QueueNumbers,
    pairs,
    read_bodies,
)
from django_delayq.store.operations.expiry import move_expiry
from django_delayq.store.operations.revival import Revival
from django_delayq.store.operations.spread import Spread
from django_delayq.store.records import DeadLetterRecord, ExtrasRecord
from django_delayq.store.shard import Shard

_REQUEUE, _DISCARD = Script("requeue"), Script("discard")
#: Arguments of `requeue` for a job whose body stays.
_UNCHANGED: list[Part] = [b"", b"", b""]
_HELD = "the key of this dead letter is held by another job now; cancel that one first, or discard this one"


class DeadLetters:
    """API of one shard for dead letters. Each call of a script is atomic, and costs O(log n) a job.

    A method changes up to 250 of them in one call and returns an effect for each: not done, if it is not the dead
    letter of that time of death any more. Bodies of more than 1 MiB in all take several calls.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._signer, self._cipher = shard.signer, shard.cipher
        self._max_payload = shard.config.tasks.max_payload
        self._head_start_ms = shard.config.dispatcher.due_first_us // 1_000

    def requeue(
        self,
        jobs: Sequence[BatchJob],
        *,
        spread: Spread | None = None,
        change: Callable[[Job], Job] | None = None,
    ) -> list[Effect]:
        """Make dead letters wait again, at their due times or over a spread. The effect has the due time (µs).

        They keep id and history; attempts, snoozes and interruptions count from 0. An expiry moves along, or is left
        out if its moment is over. `change` may return a job with other arguments; the caller has checked that they fit.
        Errors are `KeyHeld` if another job holds the key now, `BadBody` if it cannot be read, and `PayloadTooLarge`.
        The place of a dead letter that is refused stays free. One whose key, tenant or limit belongs to another shard
        by now moves there.
        """
        keys, effects, now_us = self._shard.keys, [SKIPPED] * len(jobs), estimated_us(self._shard.clock)
        for numbers, records in read_bodies(self._shard, "dead_bodies", jobs, range(len(jobs))):
            found = {number: stored for number, stored in zip(numbers, records, strict=True) if stored is not None}
            batch = {number: jobs[number] for number in found}
            if spread is not None:
                dues = spread.take_places(self._shard, len(found))
                spread.left -= len(numbers)
                batch = {n: replace(job, due_us=due_us) for (n, job), due_us in zip(batch.items(), dues, strict=True)}
            queues, args, sent, layout = QueueNumbers(), list[Part](), list[int](), self._shard.layout
            is_routed = False
            for number, job in batch.items():
                letter = DeadLetterRecord.unpack(found[number])
                try:
                    routings = routings_of(ExtrasRecord.unpack(letter.extras))[1] if letter.extras else []
                    head, changed = decode_head(letter.body), _UNCHANGED
                    if change is not None or head.expires:
                        # A place of a spread is a moment of Redis already.
                        due_us = job.estimated_due_us(0 if spread else now_us)
                        changed = self._changed(job.raw_id, letter.body, change, due_us=due_us)
                except REFUSALS as error:
                    effects[number] = Effect(done=False, error=error)
                else:
                    record = revive_attempts(letter.attempts, raw_id=job.raw_id, cipher=self._cipher)
                    places = layout.places(routings[0]) if len(routings) == 1 else []
                    if [place.shard for place in places] not in ([], [self._shard.index]):
                        effects[number] = self._requeue_elsewhere(
                            job, letter, changed, record, head=head, routing=routings[0]
                        )
                        continue
                    is_routed = is_routed or bool(places)
                    args += [queues.number(head), job.raw_id, job.died_us, job.due, record, *changed, b""]
                    sent.append(number)
            if not sent:
                continue
            more_keys = [place for queue in queues.numbers for place in keys.of_queue(queue)]
            try:
                number_of_layout = layout.number or "" if is_routed else ""
                replies = self._shard.run(_REQUEUE, [self._head_start_ms, number_of_layout, *args], more_keys=more_keys)
            except OtherLayout as error:
                self._shard.follow(error)
                again = self.requeue([batch[number] for number in sent], change=change)
                effects = [again[sent.index(n)] if n in sent else effect for n, effect in enumerate(effects)]
                continue
            for number, (word, due_us) in zip(sent, pairs(replies), strict=True):
                effects[number] = _effect(word, due_us)
        return effects

    def end_spread(self, spread: Spread) -> None:
        """End a caller's part in a spread when it has sent its last job. O(1)."""
        spread.end(self._shard)

    def discard(self, jobs: Sequence[BatchJob]) -> list[Effect]:
        """Drop dead letters for good."""
        args = [part for job in jobs for part in (job.raw_id, job.died_us)]
        return [Effect(done=bool(dropped)) for dropped in self._shard.run(_DISCARD, args)] if args else []

    def _requeue_elsewhere(
        self,
        job: BatchJob,
        letter: DeadLetterRecord,
        changed: list[Part],
        record: bytes,
        *,
        head: Head,
        routing: bytes,
    ) -> Effect:
        """Requeue a dead letter in the shard to which it belongs now. Three round trips, and one a further shard.

        After a kill in the middle it is still a dead letter here; a repeated call does the rest.
        """
        died = self._shard.execute("ZSCORE", self._shard.keys("dead_letters"), job.raw_id)
        if died is None or int(float(died)) != job.died_us:
            return SKIPPED
        _, member, body = changed
        letter_args: list[Part] = [member or head.member(job.raw_id), job.due, body or letter.body, record]
        letter_args += [letter.extras, job.died_us]

        def requeue_at(place: Place, layout: Layout) -> Effect | None:
            sibling, left = self._shard.sibling(place.shard), place.left_here(routing)
            if sibling.index == self._shard.index:
                args = [1, job.raw_id, job.died_us, job.due, record, *changed, left]
                keys = self._shard.keys.of_queue(head.queue)
                replies = self._shard.run(_REQUEUE, [self._head_start_ms, layout.number or "", *args], more_keys=keys)
                [(word, due_us)] = pairs(replies)
                return None if word == b"GO_ON" else _effect(word, due_us)
            revival = Revival(sibling)
            word, due_us = revival.revive(queue=head.queue, args=letter_args, left=left, layout=layout.number)
            if word == b"REQUEUED":
                return Effect(done=self.discard([job])[0].done, due_us=due_us, shard=place.shard)
            if word == b"GONE":
                # A retry that was killed in the middle brought it there, and it has ended since.
                self.discard([job])
            return None if word == b"GO_ON" else _effect(word, due_us)

        return self._shard.at_place(routing, requeue_at) or SKIPPED

    def _changed(self, raw_id: bytes, body: bytes, change: Callable[[Job], Job] | None, *, due_us: int) -> list[Part]:
        """Return the body that was read, and member and body of the changed job, whose expiry follows its due time."""
        if change is None:
            try:
                revived = self._signer.resign(
                    raw_id, body, lambda stored: move_expiry(self._shard, raw_id, stored, due_us, revived=True)
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


def _effect(word: bytes, due_us: int) -> Effect:
    """Return what a reply of `requeue` says about one dead letter, but for GO_ON."""
    if word == b"HELD":
        return Effect(done=False, error=KeyHeld(_HELD))
    return Effect(done=True, due_us=due_us) if word == b"REQUEUED" else SKIPPED
