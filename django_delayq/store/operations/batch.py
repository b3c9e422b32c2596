"""Batch: the jobs that one call changes, what is read of them before, and the effect on each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from django_delayq.exceptions import BadBody, DelayQError, KeyHeld, PayloadTooLarge
from django_delayq.job.body.codec import Head
from django_delayq.job.job import DEFAULT_QUEUE
from django_delayq.store.client.script import Script
from django_delayq.store.nodes.resp import Part
from django_delayq.store.shard import Shard

_READ_BODIES = Script("read_bodies")
#: Most jobs of one call.
MAX_BATCH = 250
#: Bytes of bodies after which a call ends early, so that Redis is not blocked by copying them.
_MAX_BYTES = 1024 * 1024
#: What one job of a batch may be refused for; the others are changed.
REFUSALS = (KeyHeld, BadBody, PayloadTooLarge)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """One job of a batch."""

    raw_id: bytes
    #: For a dead letter: when it died, µs since the epoch. A job that died again since then is another dead letter.
    died_us: int = 0
    #: For `reschedule` and `requeue`: µs since the epoch, or None for `delay_us` from now.
    due_us: int | None = None
    delay_us: int = 0
    #: To undo a change: the due time that it gave the job (µs). A job that has begun since, or has another, stays.
    left_due_us: int | None = None
    #: With it, the counts of its attempts at that time.
    left_counts: bytes = b""

    @property
    def due(self) -> Part:
        """Its due time as the scripts take it."""
        return f"+{self.delay_us}" if self.due_us is None else self.due_us

    def estimated_due_us(self, now_us: int) -> int:
        """Return its due time, if it is `now_us` in Redis."""
        return now_us + self.delay_us if self.due_us is None else max(now_us, self.due_us)


class Effect(NamedTuple):
    """What an operation did to one job."""

    done: bool
    #: Its new due time, if it has one (µs since the epoch).
    due_us: int | None = None
    #: Why it was refused: KeyHeld, BadBody, BadSignature or PayloadTooLarge.
    error: DelayQError | None = None
    #: The shard in which it is now, if it has left the one of its id.
    shard: int | None = None
    #: The due time that it had while it was scheduled, if a new one replaced it (µs since the epoch).
    former_due_us: int | None = None
    #: The counts of its attempts, if they were requested; they change once it begins.
    counts: bytes = b""


#: The job no longer waits, or is no longer that dead letter.
SKIPPED = Effect(done=False)


@dataclass(slots=True)
class StoredJob:
    """One job of a batch as it was read."""

    job: BatchJob
    body: bytes | None
    head: Head | None

    @property
    def member(self) -> bytes:
        raw_id = self.job.raw_id
        return self.head.member(raw_id) if self.head else raw_id


@dataclass(slots=True)
class QueueNumbers:
    """The queues of one call, numbered from 1 in the order in which jobs name them."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, head: Head | None) -> int:
        """Return the number of a job's queue."""
        return self.numbers.setdefault(head.queue if head else DEFAULT_QUEUE, len(self.numbers) + 1)


def read_bodies(
    shard: Shard, noun: str, jobs: Sequence[BatchJob], numbers: Sequence[int]
) -> Iterator[tuple[Sequence[int], list[bytes | None]]]:
    """Yield the records of these jobs, by their numbers, in batches that one call of a script may handle.

    One round trip a batch, which has at most 1 MiB, or one job.
    """
    if len(jobs) > MAX_BATCH:
        raise ValueError(f"one call changes at most {MAX_BATCH} jobs, got {len(jobs)}: pass them in batches")
    if len(numbers) == 1:
        yield numbers, [shard.execute("HGET", shard.keys(noun), jobs[numbers[0]].raw_id)]
        return
    while numbers:
        ids = [jobs[number].raw_id for number in numbers]
        # One reply: to read 250 of them takes longer than all the rest of a retry.
        bodies = shard.run(_READ_BODIES, [int(noun == "dead_bodies"), _MAX_BYTES, *ids])
        yield numbers[: len(bodies)], bodies
        numbers = numbers[len(bodies) :]


def pairs(replies: Sequence[Any]) -> Iterator[tuple[bytes, int]]:
    """Return a word and a due time for each job of a reply."""
    return zip(replies[::2], replies[1::2], strict=True)
