"""Stepped worker: a worker in this process that a test steps, on a server that the test can make unreachable."""

import select
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import monotonic
from typing import Any

from redis import Redis

from django_delayq import get_store
from django_delayq.conf.config import WorkerConfig
from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.metrics import MetricsBuffer
from django_delayq.store.promotion import Promotion
from django_delayq.worker.exchange_session import InFlight
from django_delayq.worker.pools.base import Pool
from django_delayq.worker.pools.recovery import RecoveryRunner
from django_delayq.worker.pools.threads import ThreadPool
from django_delayq.worker.worker import Worker
from tests.subprocesses import until


class WorkerClock:
    """The clock of a worker in a test: real time, until a test stops it or sets it forward."""

    def __init__(self) -> None:
        #: Seconds by which it is ahead.
        self.ahead = 0.0
        self._stopped_at: float | None = None

    def __call__(self) -> float:
        return self.ahead + (monotonic() if self._stopped_at is None else self._stopped_at)

    def stop(self) -> None:
        """Let no more time pass."""
        self._stopped_at = monotonic()


@contextmanager
def stepped_worker(
    *,
    size: int = 2,
    sweep_us: int = 3_600_000_000,
    pool: Pool | None = None,
    config: WorkerConfig | None = None,
    **options: Any,
) -> Iterator[Worker]:
    """Yield a worker of the default shard; `options` are arguments of `Worker`. Its pool has `size` threads."""
    store = get_store()
    shard = store.shards[0]
    worker = Worker(
        shard=shard,
        config=config or store.config.worker,
        pool=pool or ThreadPool(size, recovery=RecoveryRunner()),
        dispatcher=Dispatcher(shard, Promotion(shard)),
        metrics=MetricsBuffer(),
        sweep_us=sweep_us,
        **options,
    )
    try:
        yield worker
    finally:
        worker.close()
        # Otherwise this process waits at exit for the processes that the pool started.
        worker._pool.close()
        for each in (*store.shards, *store._producer_shards):
            each.client.connection_pool.disconnect()


def step_until_idle(worker: Worker) -> None:
    """Step until the worker would sleep, or has ended."""
    until(lambda: worker._session.in_flight is InFlight.NOTHING and worker.step() != 0, what="a worker without work")


def await_notification(worker: Worker) -> None:
    """Wait until a notification reaches the listening worker, and let the worker read it."""
    until(lambda: select.select([worker.listen()], [], [], 0.05)[0], what="a notification")
    worker.on_wakeup()


@contextmanager
def redis_unreachable(link: Path, client: Redis) -> Iterator[None]:
    """Hide the socket at `link`, and cut every connection but that of `client`, until the block ends."""
    hidden = link.rename(link.with_suffix(".hidden"))
    client.client_kill_filter(_type="normal", skipme=True)
    try:
        yield
    finally:
        hidden.rename(link)
