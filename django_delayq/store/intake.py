"""Intake: accept new jobs. Called by web processes, commands and tasks."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from time import monotonic

from django.views.decorators.debug import sensitive_variables

from django_delayq.clock import SECOND_US
from django_delayq.draft import Draft
from django_delayq.seal import Seal
from django_delayq.store.scripts import Script
from django_delayq.store.shard import Shard, queue_bytes

_ENQUEUE = Script("enqueue")
#: Jobs in one script call, at most.
BATCH = 500
#: First byte of an `extras` record: which fields follow.
_HAS_KEY = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """What became of a batch."""

    #: Redis's time of the step, µs since the epoch.
    now_us: int
    #: Per draft: its due time, µs since the epoch.
    due_us: list[int]
    #: Place in the batch -> id of the job that holds its key already; the draft was not stored.
    held: dict[int, bytes]


def key_digest(task: str, key: str) -> bytes:
    """Return 16 bytes that stand for a key among the jobs of one task."""
    return blake2b(f"{task}\0{key}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


class Intake:
    """The door for new jobs of one shard."""

    def __init__(self, shard: Shard, *, due_first_us: int, seal: Seal) -> None:
        self._shard = shard
        self._seal = seal
        self._head_start_ms = due_first_us // 1_000

    # Bodies stay out of error reports, also where they wait for the commit: redis-py's frames would show them.
    @sensitive_variables()
    def enqueue(self, drafts: Sequence[Draft]) -> Receipt:
        """Store up to 500 jobs, all or none; those whose id is known already are left as they are.

        Safe to repeat. O(log n) a job. Raises `KeyHeld`, and `StoreError`s that tell whether the jobs may be stored.
        """
        queues = list(dict.fromkeys(draft.job.queue for draft in drafts))
        numbers = {queue: number for number, queue in enumerate(queues, 1)}
        keys = self._shard.keys
        more_keys = [key for queue in queues for key in (keys.schedule(queue), keys.ready(queue), keys.bell(queue))]
        args: list[bytes | int | str] = [self._head_start_ms, len(queues), *map(queue_bytes, queues)]
        now = monotonic()
        remaining = [_remaining_us(draft, now) for draft in drafts]
        for draft, left in zip(drafts, remaining, strict=True):
            job = draft.job
            due: int | str = draft.due_us if draft.due_us is not None else "" if left is None else f"+{left}"
            # Signed here and nowhere before: until it is sent, a draft may get other flags.
            args += (job.member, numbers[job.queue], due, self._seal.signed(job.raw_id, draft.body))
            if job.key is not None:
                digest = key_digest(job.task, job.key)
                args += (bytes((_HAS_KEY,)) + digest, digest, 1 if draft.reject else 0)
        reply = self._shard.run(_ENQUEUE, args, more_keys=more_keys)
        return Receipt(
            now_us=reply[0],
            due_us=[
                max(reply[0], draft.due_us if draft.due_us is not None else reply[0] + (left or 0))
                for draft, left in zip(drafts, remaining, strict=True)
            ],
            held={number: holder[:12] for number, holder in zip(reply[1::2], reply[2::2], strict=True)},
        )


def _remaining_us(draft: Draft, now: float) -> int | None:
    """A delay counts from the call: what a wait for a commit took is taken off, rounded so that nothing comes early."""
    if draft.delay_us is None:
        return None
    return draft.delay_us - int((now - draft.called_at) * SECOND_US)
