"""Store: the shards, and the way from a job id to its shard's doors."""

import os
import threading
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.utils.functional import cached_property

from django_delayq import runtime
from django_delayq.clock import Clock
from django_delayq.conf.config import Config
from django_delayq.conf.settings import get_config, on_config_dropped, sharing_alias
from django_delayq.exceptions import ShardsChanged
from django_delayq.job.signing import BodySigner
from django_delayq.store.claims import Claims
from django_delayq.store.client.connection import Connections
from django_delayq.store.client.connection_cache import ConnectionCache
from django_delayq.store.client.script import with_store_errors
from django_delayq.store.client.server_info import ServerInfo
from django_delayq.store.enqueue import Enqueue
from django_delayq.store.forward_stream import ForwardStream
from django_delayq.store.keys import Keys
from django_delayq.store.maintenance.consistency_check import ConsistencyCheck
from django_delayq.store.operations import Operations
from django_delayq.store.process_reports import ProcessReports
from django_delayq.store.promotion import Promotion
from django_delayq.store.queries.dashboard import DashboardQueries
from django_delayq.store.queries.lookup import Lookup
from django_delayq.store.queries.result_waiter import ResultWaiter
from django_delayq.store.shard import Shard


class Store:
    """Find the right door; there is no class that has them all."""

    def __init__(self, config: Config, *, clock: Clock | None = None) -> None:
        self.config = config
        #: Signs and verifies bodies, or does nothing; here, so that a missing SECRET_KEY ends a command at its start.
        self.seal = BodySigner(on=config.sign)
        self._connections = Connections(config.redis)
        self._clock = clock or runtime.current().clock
        self._shards_checked = False
        self._surveys: dict[int, DashboardQueries] = {}

    # Django's cached_property: that of functools holds a lock before Python 3.12, and a fork keeps it held.
    @cached_property
    def shards(self) -> list[Shard]:
        """The shards for workers and dispatchers, whose commands have 5 s."""
        return self._shards(self._connections.client())

    @cached_property
    def _producer_shards(self) -> list[Shard]:
        return self._shards(self._connections.producer(timeout=self.config.enqueue_timeout))

    def _shards(self, client: Any) -> list[Shard]:
        line = ConnectionCache(client)
        return [
            Shard(
                index=index,
                line=line,
                connections=self._connections,
                keys=Keys(self.config.prefix, index),
                clock=self._clock,
            )
            for index in range(self.config.shards)
        ]

    def close(self) -> None:
        """Let go of the connections; the next use opens new ones."""
        for shard in (*self.shards, *self._producer_shards):
            shard.client.connection_pool.disconnect()

    def enqueue_api(self, shard: int) -> Enqueue:
        """Return the door for new jobs; its calls take at most ENQUEUE_TIMEOUT."""
        due_first_us = self.config.dispatcher.due_first_us
        return Enqueue(self._producer_shards[shard], due_first_us=due_first_us, seal=self.seal)

    def operations(self, shard: int) -> Operations:
        """Return the door for changes to single jobs."""
        due_first_us = self.config.dispatcher.due_first_us
        max_payload = self.config.tasks.max_payload
        return Operations(
            self._producer_shards[shard],
            shards=self.config.shards,
            due_first_us=due_first_us,
            max_payload=max_payload,
            seal=self.seal,
        )

    def lookup(self, shard: int) -> Lookup:
        """Return the reader's door."""
        return Lookup(self._producer_shards[shard], due_first_us=self.config.dispatcher.due_first_us)

    def result_waiter(self, shard: int) -> ResultWaiter:
        """Return the door of those who wait; its calls block for up to a second, beside what an answer may take."""
        return ResultWaiter(self.shards[shard])

    def dashboard(self, shard: int) -> DashboardQueries:
        """Return the watcher's door; the same one each time, since it knows the queues from the last."""
        if shard not in self._surveys:
            due_first_us = self.config.dispatcher.due_first_us
            self._surveys[shard] = DashboardQueries(self._producer_shards[shard], due_first_us=due_first_us)
        return self._surveys[shard]

    def consistency_check(self, shard: Shard) -> ConsistencyCheck:
        """Return the door of whoever checks a shard."""
        config = self.config
        return ConsistencyCheck(
            shard, due_first_us=config.dispatcher.due_first_us, max_payload=config.tasks.max_payload
        )

    def promotion(self, shard: Shard) -> Promotion:
        """Return the dispatcher's door."""
        return Promotion(shard, self.config.dispatcher)

    def process_reports(self, shard: Shard) -> ProcessReports:
        """Return the door by which dispatchers and workers tell of themselves."""
        return ProcessReports(shard)

    def forward_stream(self, shard: Shard) -> ForwardStream:
        """Return the forwarder's door."""
        return ForwardStream(shard)

    def claims(self, shard: Shard, *, worker: bytes) -> Claims:
        """Return the door of the worker with that code (8 random bytes of its process)."""
        config = self.config
        return Claims(
            shard,
            worker=worker,
            lease_us=config.worker.lease_us,
            due_first_us=config.dispatcher.due_first_us,
            seal=self.seal,
        )

    def check_server(self) -> str:
        """Look at the server's version and eviction policy; returns a warning, or nothing.

        Raises ImproperlyConfigured below Redis 6.2, and for a policy that may evict jobs.
        """
        server = ServerInfo.fetch(self.shards[0].client)
        for refusal in server.fatal():
            raise ImproperlyConfigured(refusal)
        return "" if server.policy else next(server.warnings())

    def check_shards_once(self) -> None:
        """Do `check_shards()` at the first call: keys must not be looked for in another shard than before."""
        if not self._shards_checked:
            self.check_shards()

    def known_shards(self) -> int:
        """Return the number of shards that the keys in use were spread over; 0 where nobody took it down."""
        client = self._producer_shards[0].client
        written = with_store_errors(partial(client.get, Keys(self.config.prefix, 0)("shards")), client) or b""
        # What is no number was written by hand.
        return int(written) if written.isdigit() else 0

    def check_shards(self, *, force: bool = False) -> None:
        """Compare SHARDS with the number the waiting jobs were spread over, and take it down.

        Raises `ShardsChanged` where keyed jobs wait (a key would be looked for in another shard) or a dropped
        shard still holds jobs, unless forced.
        """
        client, keys, shards = (
            self._producer_shards[0].client,
            Keys(self.config.prefix, 0),
            self.config.shards,
        )
        known = self.known_shards()
        self._shards_checked = True
        if known == shards:
            return
        for index in range(known if not force else 0):
            place = Keys(self.config.prefix, index)
            keyed = with_store_errors(partial(client.hlen, place("unique_keys")), client)
            left = sum(with_store_errors(partial(client.hlen, place(noun)), client) for noun in ("jobs", "dead_bodies"))
            if keyed or (left and index >= shards):
                self._shards_checked = False
                raise ShardsChanged(
                    f"DELAYQ['SHARDS'] changed from {known} to {shards} while shard {index} holds {left} jobs, "
                    f"{keyed} of them keyed: set it back until they are done, "
                    f"or start run_dispatcher once with --force-shards."
                )
        with_store_errors(partial(client.set, keys("shards"), shards), client)


# Reentrant: a signal handler that enqueues may interrupt the first use.
_lock = threading.RLock()
_store: Store | None = None
#: Those of aliases in TASKS that have one of their own.
_stores: dict[str, Store] = {}


def get_store(backend: str | None = None) -> Store:
    """Return this process's store, built from DELAYQ at first use. Opens nothing.

    `backend`: an alias in TASKS whose store is wanted. Raises ImproperlyConfigured for one that is not ours.
    """
    global _store
    if backend is not None and backend != sharing_alias():
        return _store_of(backend)
    if _store is None:
        with _lock:
            if _store is None:
                _store = Store(get_config())
    return _store


def _store_of(backend: str) -> Store:
    if backend not in _stores:
        with _lock:
            if backend not in _stores:
                _stores[backend] = Store(get_config(backend))
    return _stores[backend]


def _drop_stores() -> None:
    global _store, _lock, _stores
    # Also after a fork: the parent's lock may be held by a thread that does not exist here, and its sockets are its
    # own.
    _lock, _store, _stores = threading.RLock(), None, {}


on_config_dropped.append(_drop_stores)
os.register_at_fork(after_in_child=_drop_stores)
