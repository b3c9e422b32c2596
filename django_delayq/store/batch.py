"""Batch: the jobs that one call changes, what is read of them before, and what became of each."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from django_delayq.exceptions import DelayQError
from django_delayq.job.codec import Head
from django_delayq.job.job import DEFAULT_QUEUE
from django_delayq.store.client.resp import Part
from django_delayq.store.client.script import Script
from django_delayq.store.shard import Shard

_TAKE_PLACES = Script("take_places")
#: Most jobs of one call.
MAX_BATCH = 250
#: Bytes of bodies after which a call ends early, so that Redis is not blocked by copying them.
_MAX_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """One job of a batch."""

    raw_id: bytes
    #: For a dead letter: when it died, µs since the epoch. One that died again since then is another one.
    died_us: int = 0
    #: For `reschedule` and `requeue`: µs since the epoch, or None for `delay_us` from now.
    due_us: int | None = None
    delay_us: int = 0

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
    #: Why it was refused: KeyHeld, BadBody, BadSignature, PayloadTooLarge or ShardsChanged.
    error: DelayQError | None = None


@dataclass(slots=True, kw_only=True)
class Spread:
    """An even spread of the dead letters that one caller requeues, over the time from the first call on.

    Callers with one name and length share it, also after an interruption and from several processes: together they
    never exceed its rate. It is forgotten when the last of them ends it, or when its time is over.
    """

    name: bytes
    length_us: int
    #: Dead letters of the shard that the caller has not sent yet; `requeue_many` counts them down.
    left: int
    #: The caller has taken places of it.
    begun: bool = False

    def take_places(self, shard: Shard, count: int) -> list[int]:
        """Take the next places; return their due times (µs). One round trip, O(1) a place."""
        if not count:
            return []
        args: list[Part] = [self.name, self.length_us, self.left, count, int(not self.begun)]
        dues: list[int] = shard.run(_TAKE_PLACES, args)
        self.begun = True
        return dues

    def end(self, shard: Shard) -> None:
        """Forget it, unless others still take places: those that are free must not slow a later one. O(1)."""
        if self.begun:
            shard.run(_TAKE_PLACES, [self.name, self.length_us, 0, 0, 0])
            self.begun = False


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


def read_batches(
    shard: Shard, noun: str, jobs: Sequence[BatchJob], numbers: Sequence[int]
) -> Iterator[tuple[list[int], list[bytes | None]]]:
    """Yield the records of these jobs, by their numbers, in batches that one call of a script may handle.

    A single job takes one round trip; several take one more, for their sizes.
    """
    if len(jobs) > MAX_BATCH:
        raise ValueError(f"one call changes at most {MAX_BATCH} jobs, got {len(jobs)}: pass them in batches")
    key, sizes = shard.keys(noun), [0] * len(numbers)
    if len(numbers) > 1:
        sizes = shard.execute_all([["HSTRLEN", key, jobs[number].raw_id] for number in numbers])
    for batch in _cut(numbers, sizes):
        yield batch, shard.execute_all([["HGET", key, jobs[number].raw_id] for number in batch])


def _cut(numbers: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Yield the numbers in batches whose sizes have a sum within the bound, or of one number."""
    batch, spent = list[int](), 0
    for number, size in zip(numbers, sizes, strict=True):
        if batch and spent + size > _MAX_BYTES:
            yield batch
            batch, spent = [], 0
        batch.append(number)
        spent += size
    if batch:
        yield batch
