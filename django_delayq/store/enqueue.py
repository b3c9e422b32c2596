"""Intake: accept new jobs. Called by web processes, commands and tasks."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from django.views.decorators.debug import sensitive_variables

from django_delayq.clock import LATEST_US, SECOND_US
from django_delayq.job.signing import BodySigner
from django_delayq.job.unsent import UnsentJob
from django_delayq.store.client.resp import Part
from django_delayq.store.client.script import Script
from django_delayq.store.client.script_call import ScriptCall
from django_delayq.store.shard import Shard

_ENQUEUE = Script("enqueue")
#: Jobs in one script call, at most. Of 500, into a schedule of millions, Redis answers nobody else for 3 to 5 ms; the
#: rate is the same.
BATCH = 250
#: First byte of an `job_extras` record: which fields follow.
_HAS_KEY = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class EnqueueResult:
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


class Enqueue:
    """The door for new jobs of one shard."""

    def __init__(self, shard: Shard, *, due_first_us: int, seal: BodySigner) -> None:
        self._shard = shard
        self._seal = seal
        self._head_start_ms = due_first_us // 1_000

    def enqueue(self, drafts: Sequence[UnsentJob]) -> EnqueueResult:
        """Store up to 250 jobs as one batch; see there."""
        return self.prepare(drafts).result()

    @sensitive_variables()
    def prepare(self, drafts: Sequence[UnsentJob]) -> "EnqueueCall":
        """Return up to 250 jobs packed together, not sent."""
        queues = list(dict.fromkeys(draft.job.queue for draft in drafts))
        numbers = {queue: number for number, queue in enumerate(queues, 1)}
        keys = self._shard.keys
        more_keys = [key for queue in queues for key in keys.of_queue(queue)]
        args: list[Part] = [self._head_start_ms]
        now = self._shard.clock.steady()
        remaining = [_remaining_us(draft, now) for draft in drafts]
        for draft, left in zip(drafts, remaining, strict=True):
            job = draft.job
            due: int | str = draft.due_us if draft.due_us is not None else "" if left is None else f"+{left}"
            # Signed here and nowhere before: until it is sent, a draft may get other flags.
            args += (job.member, numbers[job.queue], due, self._seal.sign(job.raw_id, draft.body))
            if job.key is not None:
                digest = key_digest(job.task, job.key)
                args += (bytes((_HAS_KEY,)) + digest, digest, 1 if draft.reject else 0)
        return EnqueueCall(self._shard.call(_ENQUEUE, args, more_keys=more_keys), drafts, remaining)


class EnqueueCall:
    """Jobs that are stored all or none. Those whose id is known already are left as they are: safe to send again."""

    def __init__(self, call: ScriptCall, drafts: Sequence[UnsentJob], remaining: Sequence[int | None]) -> None:
        self._call, self._drafts, self._remaining = call, drafts, remaining

    # Bodies stay out of error reports, also where they wait for the commit: redis-py's frames would show them.
    @sensitive_variables()
    def send(self) -> bool:
        """Send it ahead of `receipt()`, so that its sender can do something meanwhile; see `Call.send()`."""
        return self._call.send()

    @sensitive_variables()
    def result(self) -> EnqueueResult:
        """Return what became of it. O(log n) a job, for Redis.

        Raises `KeyHeld`, and `StoreError`s that tell whether the jobs may be stored.
        """
        reply = self._call.answer()
        return EnqueueResult(
            now_us=reply[0],
            due_us=[
                max(reply[0], min(LATEST_US, draft.due_us if draft.due_us is not None else reply[0] + (left or 0)))
                for draft, left in zip(self._drafts, self._remaining, strict=True)
            ],
            held={number: holder[:12] for number, holder in zip(reply[1::2], reply[2::2], strict=True)},
        )

    def give_up(self) -> None:
        """Ask for its receipt no more; it may be stored."""
        self._call.give_up()


def _remaining_us(draft: UnsentJob, now: float) -> int | None:
    """A delay counts from the call: what a wait for a commit took is taken off, rounded so that nothing comes early."""
    if draft.delay_us is None:
        return None
    return draft.delay_us - int((now - draft.called_at) * SECOND_US)
