"""Serving: the workers and dispatchers of all shards of a store, as commands and runserver run them."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from django_delayq.clock import SECOND_US
from django_delayq.conf.config import WorkerConfig, longest_wait_us
from django_delayq.dispatcher.declarer import Declarer
from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.metrics import MetricsBuffer
from django_delayq.processes.reporter import ProcessReporter
from django_delayq.processes.service import LONGEST_WAIT, Service
from django_delayq.processes.shutdown import Shutdown
from django_delayq.store.process_reports import ProcessReports
from django_delayq.store.promotion import Promotion
from django_delayq.store.shard import Shard
from django_delayq.store.store import Store
from django_delayq.worker.claiming.prefetch import PrefetchPolicy
from django_delayq.worker.pools.base import Pool
from django_delayq.worker.worker import Worker


class Served(NamedTuple):
    """Services of one kind, and what reports them to the pages in the admin."""

    services: list[Service]
    reporters: list[ProcessReporter]
    #: Adds those of a shard.
    add: Callable[[Shard], None]


def follow_layout(store: Store, served: Served) -> None:
    """Add the services of the shards that a later layout has; they are not started yet. One round trip."""
    store.layouts.read_any()
    for shard in store.shards[len(served.services) :]:
        served.add(shard)


def dispatchers(store: Store) -> Served:
    """Return a dispatcher for each shard."""

    def add(shard: Shard) -> None:
        dispatcher = make_dispatcher(store, shard)
        service = Service(dispatcher, name=f"Dispatcher of {shard.label}", longest_wait=_longest_wait(store))
        served.services.append(service)
        served.reporters.append(ProcessReporter(ProcessReports(shard), dispatcher))

    served = Served([], [], add)
    for shard in store.shards:
        add(shard)
    return served


def make_dispatcher(store: Store, shard: Shard, metrics: MetricsBuffer | None = None) -> Dispatcher:
    """Return a dispatcher of a shard, which also stores the declared recurring schedules."""
    promotion = Promotion(shard)
    declarer = Declarer(store, shard, process=promotion.dispatcher_id)
    return Dispatcher(shard, promotion, declarer=declarer, metrics=metrics)


def workers(store: Store, config: WorkerConfig, pool: Pool, shutdown: Shutdown, *, drain: bool = False) -> Served:
    """Return a worker for each shard; they share the pool."""
    sharing = list[PrefetchPolicy]()

    def add(shard: Shard) -> None:
        metrics = MetricsBuffer()
        worker = Worker(
            shard=shard,
            config=config,
            pool=pool,
            dispatcher=make_dispatcher(store, shard, metrics),
            metrics=metrics,
            sweep_us=store.config.dispatcher.sweep_us,
            drain=drain,
            sharing=sharing,
        )
        # A place in the pool that one shard frees may go to a job of any shard, so every worker is woken.
        worker.wake = partial(_wake_all, served.services)
        worker.on_interrupted = shutdown.set_deadline
        # Outcomes that were buffered during an outage are settled before their leases can expire.
        longest_wait = min(longest_wait_us(config.lease_us) / SECOND_US, _longest_wait(store))
        served.services.append(Service(worker, name=f"Worker of {shard.label}", longest_wait=longest_wait))
        served.reporters.append(ProcessReporter(ProcessReports(shard), worker))

    served = Served([], [], add)
    for shard in store.shards:
        add(shard)
    return served


def _longest_wait(store: Store) -> float:
    """Return how long a service waits after failures in a row, in seconds: less if a replica will take over."""
    return 1.0 if store.topology.recovers else LONGEST_WAIT


def _wake_all(services: list[Service]) -> None:
    for service in services:
        service.wake()
