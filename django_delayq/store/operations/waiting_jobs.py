"""Waiting jobs: cancel, reschedule and move jobs that have not begun, and undo their requeue.

Called by handles, `jobs()` and the admin. The caller knows a job's id; its queue is in its body. So a method reads the
bodies of a batch first and passes the keys of their queues to the script. A job that waits elsewhere by then is read
again, once.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from django_delayq.clock import estimated_us
from django_delayq.exceptions import BadSignature
from django_delayq.job.attempts import MAX_COUNT
from django_delayq.job.body.codec import Head, try_decode, try_decode_head, with_flags, with_queue
from django_delayq.job.job import Flag, State
from django_delayq.job.result import Result
from django_delayq.job.security.attempts_record import pack_attempts, read_attempts
from django_delayq.job.security.error_group_record import error_group_of
from django_delayq.store.client.script import Script
from django_delayq.store.nodes.resp import Part
from django_delayq.store.operations.batch import (
    REFUSALS,
    SKIPPED,
    BatchJob,
    Effect,
    QueueNumbers,
    StoredJob,
    read_bodies,
)
from django_delayq.store.operations.expiry import move_expiry
from django_delayq.store.shard import Shard

_CANCEL, _RESCHEDULE, _MOVE = Script("cancel"), Script("reschedule"), Script("move")
_UNDO_REQUEUE = Script("undo_requeue")
#: Arguments of `reschedule` for a job whose body stays.
_UNCHANGED: list[Part] = [b"", b"", b"", b""]


class WaitingJobs:
    """API of one shard for jobs that wait. Each call of a script is atomic, and costs O(log n) a job.

    A method changes up to 250 jobs in one call and returns an effect for each: not done, if the job does not wait.
    Bodies of more than 1 MiB in all take several calls.
    """

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._signer, self._cipher = shard.signer, shard.cipher
        self._head_start_ms = shard.config.dispatcher.due_first_us // 1_000

    def cancel(self, jobs: Sequence[BatchJob], *, token: bytes = b"", may_arrive: bool = False) -> list[Effect]:
        """Withdraw jobs: those that are done will not start; the others run, have ended, or are dead.

        The result of a job that keeps one is that it was cancelled. Safe to repeat with the same `token`: the repeated
        call has the same effects. With `may_arrive`, an enqueue of the jobs that arrives later is refused.
        """
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

    def reschedule(self, jobs: Sequence[BatchJob], *, with_counts: bool = False) -> list[Effect]:
        """Give each job another due time, its own. The effect has it (µs).

        A job with a later time gets the head start of due jobs, as if it had been delayed when it was enqueued. An
        expiry that is a span moves along. `BadBody` is the error of a job whose expiry cannot be read, so that no job
        is moved behind its expiry by mistake. `with_counts`: the effect has what an undo compares.
        """

        def run(batch: Sequence[StoredJob]) -> list[tuple[bytes, Effect]]:
            queues, args, refused = QueueNumbers(), list[Part](), dict[int, Effect]()
            for number, each in enumerate(batch):
                assert each.head and each.body is not None
                try:
                    changed = self._rescheduled(each.job, each.head, each.body)
                except REFUSALS as error:
                    refused[number] = Effect(done=False, error=error)
                else:
                    left = b"" if each.job.left_due_us is None else each.job.left_due_us
                    args += [queues.number(each.head), each.member, each.job.due, *changed, left, each.job.left_counts]
            places = [place for queue in queues.numbers for place in self._shard.keys.named(queue).values()]
            args = [self._head_start_ms, int(with_counts), *args] if args else args
            replies = self._shard.run(_RESCHEDULE, args, more_keys=places) if args else ()
            return _with_refused(
                len(batch),
                refused,
                (
                    (word, Effect(done=True, due_us=due_us, former_due_us=former_us or None, counts=counts))
                    if word == b"RESCHEDULED"
                    else (word, SKIPPED)
                    for word, due_us, former_us, counts in zip(*(replies[at::4] for at in range(4)), strict=True)
                ),
            )

        return self._change_waiting(jobs, run)

    def move(self, jobs: Sequence[BatchJob], queue: str) -> list[Effect]:
        """Move jobs to another queue; they keep their due times or ranks.

        `BadSignature` is the error of a job whose signature is missing or wrong, if bodies are signed.
        """
        keys = self._shard.keys

        def run(batch: Sequence[StoredJob]) -> list[tuple[bytes, Effect]]:
            queues, args, refused = QueueNumbers(), list[Part](), dict[int, Effect]()
            for number, each in enumerate(batch):
                assert each.body is not None
                try:
                    moved = self._signer.resign(
                        each.job.raw_id, each.body, lambda unsigned: with_queue(unsigned, queue)
                    )
                except REFUSALS as error:
                    refused[number] = Effect(done=False, error=error)
                else:
                    weight = self._weight(each, queue)
                    args += [queues.number(each.head), each.member, each.body, moved, weight]
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

    def undo_requeue(self, jobs: Sequence[BatchJob]) -> list[Effect]:
        """Make requeued jobs dead letters again, with these times of death, if they still wait as they were left.

        Nothing has the former number of attempts: as many count as the history has, and as the job may have at most.
        """

        def run(batch: Sequence[StoredJob]) -> list[tuple[bytes, Effect]]:
            key, queues, args, refused = self._shard.keys("attempts"), QueueNumbers(), list[Part](), dict[int, Effect]()
            records = self._shard.execute("HMGET", key, *(each.job.raw_id for each in batch))
            for number, (each, record) in enumerate(zip(batch, records, strict=True)):
                assert each.head
                attempts = read_attempts(record, raw_id=each.job.raw_id, cipher=self._cipher)
                if attempts != attempts.revived() or not (attempts.history or attempts.sealed):
                    # It has run since, or was never a dead letter.
                    refused[number] = SKIPPED
                    continue
                job, _ = try_decode(each.body, raw_id=each.job.raw_id, shard=self._shard.index, cipher=self._cipher)
                most = job.retry.max_attempts if job and job.retry.max_attempts else MAX_COUNT
                died = replace(attempts, ended=min(max(1, len(attempts.history)), most))
                stored = pack_attempts(died, raw_id=each.job.raw_id, cipher=self._cipher)
                group = error_group_of(each.head.task, died, self._cipher)
                left = each.job.left_due_us or 0
                args += [queues.number(each.head), each.member, each.job.died_us, left, record or b"", stored, group]
            places = [place for queue in queues.numbers for place in self._shard.keys.places(queue)]
            args = [self._head_start_ms, *args] if args else args
            words = self._shard.run(_UNDO_REQUEUE, args, more_keys=places) if args else ()
            return _with_refused(len(batch), refused, ((word, Effect(done=word == b"DEAD")) for word in words))

        return self._change_waiting(jobs, run)

    def _rescheduled(self, job: BatchJob, head: Head, body: bytes) -> list[Part]:
        """Return the body, member and body of the same job at a later time, and its body if it becomes ready.

        An empty part means no change. A later time sets the delayed flag, and every time moves an expiry.
        """
        flags = head.flags | Flag.DELAYED
        if flags == head.flags and not head.expires:
            return _UNCHANGED
        due_us = job.estimated_due_us(estimated_us(self._shard.clock))

        def rewritten(flags: Flag) -> bytes:
            return self._signer.resign(
                job.raw_id, body, lambda stored: move_expiry(self._shard, job.raw_id, with_flags(stored, flags), due_us)
            )

        try:
            later, ready = rewritten(flags), rewritten(head.flags) if head.expires else b""
        except BadSignature:
            # No worker will run it at any time.
            return _UNCHANGED
        return [body, head.member(job.raw_id)[:-1] + bytes((flags,)), later, ready]

    def _weight(self, stored: StoredJob, queue: str) -> int:
        """Return the weight of a job's tenant in another queue; 0 if that queue is not fair."""
        options = self._shard.config.tasks.options_of(queue)
        if not options.weights or not stored.head or not stored.head.flags & Flag.HAS_EXTRAS:
            return options.weight_of(None)
        raw_id, shard = stored.job.raw_id, self._shard
        job, _ = try_decode(stored.body, raw_id=raw_id, shard=shard.index, cipher=self._cipher)
        return options.weight_of(job.tenant if job else None)

    def _cancelled(self, raw_id: bytes, body: bytes) -> tuple[bytes, int]:
        """Return the result to keep of a cancelled job, and for how many ms."""
        job, _ = try_decode(body, raw_id=raw_id, shard=self._shard.index, cipher=self._cipher)
        if job is None or not job.result_ttl_ms:
            return b"", 0
        result = Result(state=State.CANCELLED, ended_us=estimated_us(self._shard.clock))
        return self._shard.seal_result(raw_id, result.pack()), job.result_ttl_ms

    def _change_waiting(
        self,
        jobs: Sequence[BatchJob],
        run: Callable[[Sequence[StoredJob]], list[tuple[bytes, Effect]]],
        *,
        bodiless: bool = False,
    ) -> list[Effect]:
        """Read the bodies of jobs and run a script with their heads. Repeat it once for those that wait elsewhere.

        With `bodiless`, jobs without a body are among them.
        """
        effects, left = [SKIPPED] * len(jobs), list(range(len(jobs)))
        for _ in range(2):
            elsewhere = []
            for numbers, bodies in read_bodies(self._shard, "jobs", jobs, left):
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


def _with_refused(
    count: int, refused: Mapping[int, Effect], replies: Iterable[tuple[bytes, Effect]]
) -> list[tuple[bytes, Effect]]:
    """Return the replies on all jobs of a batch, of which the refused ones were not sent."""
    sent = iter(replies)
    return [(b"REFUSED", refused[number]) if number in refused else next(sent) for number in range(count)]
