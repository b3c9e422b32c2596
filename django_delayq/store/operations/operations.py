"""Operations: what people change in one shard. Called by handles, `queue()`, `jobs()` and the admin."""

from django_delayq.store.operations.dead_letters import DeadLetters
from django_delayq.store.operations.limits import LimitOperations
from django_delayq.store.operations.waiting_jobs import WaitingJobs
from django_delayq.store.operations.worker_control import WorkerControl
from django_delayq.store.shard import Shard


class Operations:
    """The APIs of one shard that change jobs, queues and workers."""

    def __init__(self, shard: Shard) -> None:
        self.waiting_jobs, self.dead_letters = WaitingJobs(shard), DeadLetters(shard)
        self.workers, self.limits = WorkerControl(shard), LimitOperations(shard)
