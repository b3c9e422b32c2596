"""Enqueue: accept new jobs. Called by web processes, commands and tasks."""

from collections.abc import Sequence
from hashlib import blake2b

from django.views.decorators.debug import sensitive_variables

from django_delayq.clock import LATEST_US, SECOND_US, estimated_us
from django_delayq.job.codec import encrypt, with_due
from django_delayq.job.unsent import UnsentJob
from django_delayq.job.value import fast_dataclass
from django_delayq.store.client.resp import Part
from django_delayq.store.client.script import Script
from django_delayq.store.client.script_call import ScriptCall
from django_delayq.store.records import ExtrasRecord
from django_delayq.store.shard import Shard

_ENQUEUE, _ENQUEUE_ONE = Script("enqueue"), Script("enqueue_one")
#: Most jobs in one script call. With 500, into millions of scheduled jobs, Redis serves nobody else for 3 to 5 ms, and
#: the rate is the same.
BATCH = 250


@fast_dataclass
class EnqueueResult:
    """What happened to a batch."""

    #: Redis's time when the script ran, µs since the epoch.
    now_us: int
    #: Per job: its due time, µs since the epoch.
    due_us: list[int]
    #: Position in the batch -> id of the job that holds its unique key; the job at that position was not stored.
    held: dict[int, bytes]


def key_digest(task: str, key: str) -> bytes:
    """Return the 16 bytes that identify a unique key among the jobs of all tasks."""
    return blake2b(f"{task}\0{key}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


class Enqueue:
    """API of one shard for new jobs."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self._head_start = shard.config.dispatcher.due_first_us // 1_000

    def enqueue(self, unsent: Sequence[UnsentJob]) -> EnqueueResult:
        """Store up to 250 jobs in one atomic round trip. See `EnqueueCall`."""
        return self.prepare(unsent).result()

    # Also for what it calls: Django looks for the decorator in all frames above.
    @sensitive_variables()
    def prepare(self, unsent: Sequence[UnsentJob]) -> "EnqueueCall":
        """Return the call that stores up to 250 jobs, not sent yet."""
        now = self._shard.clock.steady()
        each_remaining_us = [_remaining_us(item, now) for item in unsent]
        if len(unsent) == 1 and unsent[0].job.key is None:
            call = self.enqueue_one(unsent[0], each_remaining_us[0])
        else:
            call = self._prepare_batch(unsent, each_remaining_us)
        return EnqueueCall(call, unsent, each_remaining_us)

    def enqueue_one(self, item: UnsentJob, remaining_us: int | None) -> ScriptCall:
        """Return the call that stores one job without a unique key, not sent yet. `prepare()` chooses it."""
        job = item.job
        args = [self._head_start, job.member, *self._due_and_body(item, remaining_us)]
        return self._shard.call(_ENQUEUE_ONE, args, queue=job.queue)

    def _prepare_batch(self, unsent: Sequence[UnsentJob], each_remaining_us: Sequence[int | None]) -> ScriptCall:
        queues = list(dict.fromkeys(item.job.queue for item in unsent))
        numbers = {queue: number for number, queue in enumerate(queues, 1)}
        more_keys = [key for queue in queues for key in self._shard.keys.of_queue(queue)]
        args: list[Part] = [self._head_start]
        for item, remaining_us in zip(unsent, each_remaining_us, strict=True):
            job = item.job
            args += (job.member, numbers[job.queue], *self._due_and_body(item, remaining_us))
            if job.key is not None:
                extras = ExtrasRecord(key=key_digest(job.task, job.key), until_start=item.until_start)
                args += (extras.pack(), 1 if item.reject else 0)
        return self._shard.call(_ENQUEUE, args, more_keys=more_keys)

    def _due_and_body(self, item: UnsentJob, remaining_us: int | None) -> tuple[Part, bytes]:
        """Return the due time and the body of a job as the scripts take them."""
        job, body, shard = item.job, item.body, self._shard
        if job.expiry is not None:
            now_us = estimated_us(shard.clock)
            due_us = now_us + (remaining_us or 0) if item.due_us is None else item.due_us
            body = with_due(body, max(now_us, due_us))
        if shard.cipher.on:
            body = encrypt(body, raw_id=job.raw_id, cipher=shard.cipher)
        due: Part = item.due_us if item.due_us is not None else "" if remaining_us is None else f"+{remaining_us}"
        # Signed as late as this: the flags and the due time of an unsent job may still change.
        return due, shard.signer.sign(job.raw_id, body)


class EnqueueCall:
    """One call that stores all of its jobs or none. Safe to repeat: a job whose id is known is skipped."""

    def __init__(self, call: ScriptCall, unsent: Sequence[UnsentJob], each_remaining_us: Sequence[int | None]) -> None:
        self._call, self._unsent, self._each_remaining_us = call, unsent, each_remaining_us

    # Error reports show the frames of redis-py, so bodies are hidden here, also of jobs that wait for the commit.
    @sensitive_variables()
    def send(self) -> bool:
        """Send the call ahead of `result()`, so that the caller can do something meanwhile. See `ScriptCall.send()`."""
        return self._call.send()

    @sensitive_variables()
    def result(self) -> EnqueueResult:
        """Return what happened to the batch. O(log n) a job in Redis.

        Raises `KeyHeld`, and `StoreError`s whose `maybe_accepted` says whether the jobs may be stored.
        """
        now_us, *held = self._call.result()
        return EnqueueResult(
            now_us=now_us,
            due_us=[
                _due_us(item, remaining_us, now_us)
                for item, remaining_us in zip(self._unsent, self._each_remaining_us, strict=True)
            ],
            held={number: holder[:12] for number, holder in zip(held[::2], held[1::2], strict=True)} if held else {},
        )

    def abandon(self) -> None:
        """Drop the reply of a call that was sent; the jobs may be stored."""
        self._call.abandon()


def _remaining_us(item: UnsentJob, now: float) -> int | None:
    """Return the rest of a delay, which counts from the call; rounded so that no job runs early."""
    if item.delay_us is None:
        return None
    return item.delay_us - int((now - item.called_at) * SECOND_US)


def _due_us(item: UnsentJob, remaining_us: int | None, now_us: int) -> int:
    """Return the due time as the script computes it: not in the past, and not after the latest."""
    if item.due_us is None:
        return min(LATEST_US, now_us + remaining_us) if remaining_us and remaining_us > 0 else now_us
    return max(now_us, min(LATEST_US, item.due_us))
