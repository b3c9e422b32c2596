"""Worker: runs the jobs of one alias, one at a time, by the scripts and functions that real workers use."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from django_delayq import get_store
from django_delayq.job.job import Claim
from django_delayq.job.outcome import Outcome
from django_delayq.metrics import MetricsBuffer
from django_delayq.processes.emitter import emit_now
from django_delayq.processes.service import process_name
from django_delayq.store.claims import Claims, Settlement
from django_delayq.store.promotion import Promotion
from django_delayq.worker.execution import run
from django_delayq.worker.settlement import decide_settlement, emit_all


class OneWorker:
    """A worker of one alias that runs one job at a time."""

    def __init__(
        self, backend: str = "default", *, shard: int = 0, name: str = "", run: Callable[[Claim], Outcome] = run
    ) -> None:
        self._run = run
        self.shard = get_store(backend).shards[shard]
        self._claims = Claims(self.shard)
        self._promotion = Promotion(self.shard)
        self.name = name or process_name()

    def step(self) -> bool:
        """Run the first ready job; returns False if there is none."""
        queues = self.shard.read_queues()
        self._promotion.promote(queues)
        exchange = self._claims.prepare(queues=queues, want=1, worker_name=self.name)
        claims = self._claims.settle_and_claim(exchange).claims
        for claim in claims:
            # In a new thread, as in a worker: pytest need not allow database connections there.
            with ThreadPoolExecutor(1) as thread:
                outcome = thread.submit(self._run, claim).result()
            longest_wait_us = self.shard.config.worker.unknown_task_ttl_us
            self._settle(decide_settlement(claim, outcome, worker=self.name, longest_wait_us=longest_wait_us), outcome)
        return bool(claims)

    def drain(self, most: int = 200) -> int:
        """Run all jobs that are due now; return how many runs that took."""
        runs = 0
        while self.step():
            runs += 1
            assert runs < most, "a job runs again and again"
        return runs

    def _settle(self, settlement: Settlement, outcome: Outcome) -> None:
        answer = self._claims.settle_and_claim(self._claims.prepare(queues=(), want=0, settlements=[settlement]))
        emit_all([(settlement, outcome)], lost=answer.lost, metrics=MetricsBuffer(), emit=emit_now)
