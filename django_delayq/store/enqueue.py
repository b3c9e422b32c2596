"""Enqueue: accept new jobs. Called by web processes, commands and tasks."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from django.views.decorators.debug import sensitive_variables

from django_delayq.clock import LATEST_US, SECOND_US, estimated_us
from django_delayq.job.codec import encrypt, with_due
from django_delayq.job.unsent import UnsentJob
from django_delayq.store.client.resp import Part
from django_delayq.store.client.script import Script
from django_delayq.store.client.script_call import ScriptCall
from django_delayq.store.shard import Shard

_ENQUEUE = Script("enqueue")
#: Most jobs in one script call. With 500, into millions of scheduled jobs, Redis serves nobody else for 3 to 5 ms, and
#: the rate is the same.
BATCH = 250
#: First byte of a `job_extras` record: which fields follow.
_HAS_KEY = 1


@dataclass(frozen=True, slots=True, kw_only=True)
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

    def enqueue(self, unsent: Sequence[UnsentJob]) -> EnqueueResult:
        """Store up to 250 jobs in one atomic round trip. See `EnqueueCall`."""
        return self.prepare(unsent).result()

    @sensitive_variables()
    def prepare(self, unsent: Sequence[UnsentJob]) -> "EnqueueCall":
        """Return the call that stores up to 250 jobs, not sent yet."""
        queues = list(dict.fromkeys(item.job.queue for item in unsent))
        numbers = {queue: number for number, queue in enumerate(queues, 1)}
        keys = self._shard.keys
        more_keys = [key for queue in queues for key in keys.of_queue(queue)]
        args: list[Part] = [self._shard.config.dispatcher.due_first_us // 1_000]
        now = self._shard.clock.steady()
        cipher, signer = self._shard.cipher, self._shard.signer
        remaining = [_remaining_us(item, now) for item in unsent]
        for item, left in zip(unsent, remaining, strict=True):
            job, body = item.job, item.body
            if job.expiry is not None:
                now_us = estimated_us(self._shard.clock)
                due_us = now_us + (left or 0) if item.due_us is None else item.due_us
                body = with_due(body, max(now_us, due_us))
            due: int | str = item.due_us if item.due_us is not None else "" if left is None else f"+{left}"
            if cipher.on:
                body = encrypt(body, raw_id=job.raw_id, cipher=cipher)
            # Signed as late as this: the flags and the due time of an unsent job may still change.
            args += (job.member, numbers[job.queue], due, signer.sign(job.raw_id, body))
            if job.key is not None:
                digest = key_digest(job.task, job.key)
                args += (bytes((_HAS_KEY,)) + digest, digest, 1 if item.reject else 0)
        return EnqueueCall(self._shard.call(_ENQUEUE, args, more_keys=more_keys), unsent, remaining)


class EnqueueCall:
    """One call that stores all of its jobs or none. Safe to repeat: a job whose id is known is skipped."""

    def __init__(self, call: ScriptCall, unsent: Sequence[UnsentJob], remaining: Sequence[int | None]) -> None:
        self._call, self._unsent, self._remaining = call, unsent, remaining

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
        reply = self._call.result()
        return EnqueueResult(
            now_us=reply[0],
            due_us=[
                max(reply[0], min(LATEST_US, item.due_us if item.due_us is not None else reply[0] + (left or 0)))
                for item, left in zip(self._unsent, self._remaining, strict=True)
            ],
            held={number: holder[:12] for number, holder in zip(reply[1::2], reply[2::2], strict=True)},
        )

    def abandon(self) -> None:
        """Drop the reply of a call that was sent; the jobs may be stored."""
        self._call.abandon()


def _remaining_us(item: UnsentJob, now: float) -> int | None:
    """Return the rest of a delay, which counts from the call; rounded so that no job runs early."""
    if item.delay_us is None:
        return None
    return item.delay_us - int((now - item.called_at) * SECOND_US)
