"""One by one: operations on single jobs, which the package changes in batches, as most tests send and compare them."""

from collections.abc import Callable
from typing import Any

from django_delayq import get_store
from django_delayq.job.job import Job
from django_delayq.store.operations.batch import BatchJob, Effect
from django_delayq.store.operations.operations import Operations
from django_delayq.store.shard import Shard


class OneByOne(Operations):
    """The operations of one shard, with batches of one job. Each raises the error for which a job is refused."""

    def __init__(self, shard: Shard) -> None:
        super().__init__(shard)
        self.pause, self.resume = self.workers.pause, self.workers.resume
        self.quiet, self.unquiet, self.stop = self.workers.quiet, self.workers.unquiet, self.workers.stop

    def cancel(self, raw_id: bytes, **options: Any) -> bool:
        return _only(self.waiting_jobs.cancel([BatchJob(raw_id=raw_id)], **options)).done

    def reschedule(self, raw_id: bytes, **time: Any) -> int | None:
        return _only(self.waiting_jobs.reschedule([BatchJob(raw_id=raw_id, **time)])).due_us

    def move(self, raw_id: bytes, queue: str) -> bool:
        return _only(self.waiting_jobs.move([BatchJob(raw_id=raw_id)], queue)).done

    def requeue(
        self, raw_id: bytes, *, died_us: int, delay_us: int = 0, change: Callable[[Job], Job] | None = None
    ) -> int | None:
        job = BatchJob(raw_id=raw_id, died_us=died_us, delay_us=delay_us)
        return _only(self.dead_letters.requeue([job], change=change)).due_us

    def undo_requeue(self, raw_id: bytes, *, died_us: int, left_due_us: int | None) -> bool:
        job = BatchJob(raw_id=raw_id, died_us=died_us, left_due_us=left_due_us)
        return _only(self.waiting_jobs.undo_requeue([job])).done

    def discard(self, raw_id: bytes, *, died_us: int) -> bool:
        return _only(self.dead_letters.discard([BatchJob(raw_id=raw_id, died_us=died_us)])).done


def one_by_one(shard: int = 0) -> OneByOne:
    """Return the operations of a shard of this process's store."""
    return OneByOne(get_store()._producer_shards[shard])


def _only(effects: list[Effect]) -> Effect:
    [effect] = effects
    if effect.error is not None:
        raise effect.error
    return effect
