"""Store: the shards of one backend, and what producers do with each; the process's stores."""

import os
import threading
from collections.abc import Iterable, Sequence

from django.utils.functional import cached_property

from django_delayq import runtime
from django_delayq.clock import Clock
from django_delayq.conf.config import Config
from django_delayq.conf.settings import get_config, on_config_dropped, sharing_alias
from django_delayq.exceptions import ShardsChanged
from django_delayq.job.ids import shard_of
from django_delayq.job.job import LimitUse
from django_delayq.job.security.encryption import Cipher
from django_delayq.job.security.signing import BodySigner
from django_delayq.store.digests import key_digest, routing_of, schedule_id
from django_delayq.store.enqueue import Enqueue
from django_delayq.store.operations.operations import Operations
from django_delayq.store.queries.dashboard import DashboardQueries
from django_delayq.store.queries.limits import LimitQueries, LimitState, combined_limits
from django_delayq.store.queries.lookup import Lookup
from django_delayq.store.queries.shard_reads import ShardReads
from django_delayq.store.queries.snapshot import Snapshot, combined
from django_delayq.store.queries.tenants import TenantQueries
from django_delayq.store.records import DeclaredBy
from django_delayq.store.routing.route import Route
from django_delayq.store.routing.topologies import make_topology
from django_delayq.store.routing.topology import Topology
from django_delayq.store.schedules.schedules import Schedules
from django_delayq.store.schedules.stored_schedule import StoredSchedule, from_text_id
from django_delayq.store.servers.server_check import ServerCheck, check_servers
from django_delayq.store.shard import Shard
from django_delayq.store.slots import hash_tag, slot_of


class Store:
    """The shards of one backend, and the APIs for producers and the admin. Thread-safe; opens nothing by itself."""

    def __init__(self, config: Config, *, alias: str | None = None, clock: Clock | None = None) -> None:
        self.config = config
        #: Its alias in TASKS; None: it is the store of DELAYQ.
        self.alias = alias
        #: Made here, so that a command without SECRET_KEY fails at its start.
        self.signer = BodySigner(on=config.sign)
        self.cipher = Cipher(on=config.encrypt, secrets=config.encryption_keys)
        self._clock = clock or runtime.current().clock
        self._shards_checked = False
        self._dashboards: dict[int, DashboardQueries] = {}

    # Django's cached_property: before Python 3.12 that of functools holds a lock, and a fork copies it locked.
    @cached_property
    def topology(self) -> Topology:
        """Which server has which shard. Raises ImproperlyConfigured if the client library does not accept REDIS."""
        return make_topology(self.config.redis, producer_timeout=self.config.enqueue_timeout)

    @cached_property
    def shards(self) -> list[Shard]:
        """The shards for workers and dispatchers: a command may take 5 s."""
        return self._shards(for_producers=False)

    @cached_property
    def _producer_shards(self) -> list[Shard]:
        """The shards for everybody else: a call may take ENQUEUE_TIMEOUT."""
        return self._shards(for_producers=True)

    @cached_property
    def _enqueue_apis(self) -> list[Enqueue]:
        return [Enqueue(shard) for shard in self._producer_shards]

    def _shards(self, *, for_producers: bool) -> list[Shard]:
        return [self._shard(index, for_producers=for_producers) for index in range(self.config.shards)]

    def _shard(self, index: int, *, for_producers: bool) -> Shard:
        return Shard(
            index=index,
            config=self.config,
            signer=self.signer,
            cipher=self.cipher,
            route=Route(self.topology, slot_of(hash_tag(index)), shard=index, for_producers=for_producers),
            clock=self._clock,
        )

    def disconnect_idle(self) -> None:
        """Close the connections that are not in use; the next use opens new ones."""
        # A topology that was never used is not made for this.
        if "topology" in self.__dict__:
            self.topology.disconnect_idle()

    def enqueue_api(self, shard: int) -> Enqueue:
        """Return the API for new jobs; a call takes at most ENQUEUE_TIMEOUT."""
        return self._enqueue_apis[shard]

    def shard_for(self, raw_id: bytes, routing: bytes | None) -> int:
        """Return the shard of a new job: by its routing value, or without one by its id.

        With ROUTE_AROUND a job without a routing value goes to the next shard whose server was reached lately.
        """
        shard = shard_of(routing or raw_id, self.config.shards)
        if routing is not None or not self.config.route_around:
            return shard
        routes = [each.route for each in self._producer_shards]
        order = [*range(shard, len(routes)), *range(shard)]
        return next((index for index in order if not routes[index].is_down), shard)

    def operations(self, shard: int) -> Operations:
        """Return the APIs for changes to jobs, queues and workers."""
        return Operations(self._producer_shards[shard])

    def lookup(self, shard: int) -> Lookup:
        """Return the API that reads jobs."""
        return Lookup(self._producer_shards[shard])

    def holder(
        self, task: str, key: str, tenant: str | None, limits: Sequence[LimitUse] | None = ()
    ) -> tuple[bytes, int] | None:
        """Return the id and the shard of the job that holds a unique key, or throttles calls with it. See `Lookup`.

        `limits` are those of the job; None: they are not known, and every shard is asked.
        """
        shards: Iterable[int] = range(self.config.shards)
        if limits is not None:
            routing = routing_of(task, key, tenant, limits if self.config.shards > 1 else ())
            shards = [shard_of(routing or b"", self.config.shards)]
        for shard in shards:
            if raw_id := self.lookup(shard).holder(key_digest(task, key, tenant)):
                return raw_id, shard
        return None

    def schedules(self, shard: int) -> Schedules:
        """Return the API that stores, changes and reads recurring schedules."""
        return Schedules(self._producer_shards[shard])

    def find_schedule(self, text_id: str) -> StoredSchedule | None:
        """Return the schedule of a `text_id`; None if there is none, or if the text is no id. One round trip."""
        id, shard = from_text_id(text_id) or (b"", self.config.shards)
        return self.schedules(shard).find([id])[0] if shard < self.config.shards else None

    def find_schedules(
        self, tasks: Iterable[str], name: str, *, reads: ShardReads | None = None
    ) -> list[StoredSchedule]:
        """Return the schedules of these tasks that have a name. One round trip."""
        by_shard: dict[int, list[bytes]] = {}
        for task in tasks:
            id = schedule_id(task, name)
            by_shard.setdefault(shard_of(id, self.config.shards), []).append(id)
        found = (reads or self.reads()).read(lambda shard: self.schedules(shard).read_found(by_shard[shard]), by_shard)
        return [each for schedules in found.values() for each in schedules if each is not None]

    def tenants(self, shard: int) -> TenantQueries:
        """Return the API that reads tenants."""
        return TenantQueries(self._producer_shards[shard])

    def limits(self, shard: int) -> LimitQueries:
        """Return the API that reads limits and paused tasks."""
        return LimitQueries(self._producer_shards[shard])

    def reads(self, *, partial: bool = False) -> ShardReads:
        """Return what reads all shards side by side; with `partial` without those whose servers do not answer."""
        return ShardReads(self._producer_shards, partial=partial)

    def limit_states(
        self, tasks: Sequence[str] = (), *, reads: ShardReads | None = None
    ) -> tuple[dict[str, LimitState], dict[str, int]]:
        """Return the state of each limit of LIMITS, and how many jobs wait for each of these paused tasks.

        One round trip; none if there is nothing to ask for.
        """
        names, reads = list(self.config.tasks.limits), reads or self.reads()
        parts = reads.read(lambda shard: self.limits(shard).read_all(names, tasks)) if names or tasks else {}
        found = list(parts.values())
        return (
            {name: combined_limits([limits[at] for limits, _ in found]) for at, name in enumerate(names)},
            {task: sum(waiting[at] for _, waiting in found) for at, task in enumerate(tasks)},
        )

    def dashboard(self, shard: int) -> DashboardQueries:
        """Return the dashboard's API: the same object each time, since it remembers the names of the queues."""
        if shard not in self._dashboards:
            self._dashboards[shard] = DashboardQueries(self._producer_shards[shard])
        return self._dashboards[shard]

    def snapshot(self, *, tasks: Sequence[str] = (), facts: bool = False, reads: ShardReads | None = None) -> Snapshot:
        """Return the counts, queues and processes of all shards together. One round trip."""
        reads = reads or self.reads()
        found = reads.read(lambda shard: self.dashboard(shard).read_snapshot(tasks=tasks, facts=facts))
        return combined([each.measured(*reads.times_us[shard]) for shard, each in found.items()])

    def now_us(self) -> int:
        """Return the time of Redis (µs since the epoch), of any server that answers. One round trip."""
        return self.snapshot(reads=self.reads(partial=True)).now_us

    def check_servers(self, *, with_settings: bool = False) -> ServerCheck:
        """Look at every server at the same time: the masters of a cluster, or the only server. Two round trips.

        With `with_settings`, also at those of its settings that this user may read. Raises a `StoreError` if none
        answers.
        """
        slots = {index: slot_of(hash_tag(index)) for index in range(self.config.shards)}
        replicas = self.config.wait_replicas
        return check_servers(self.topology, slots, wait_replicas=replicas, with_settings=with_settings)

    def check_shards_once(self) -> None:
        """Run `check_shards()` at the first call. Otherwise a unique key could be held in two shards."""
        if not self._shards_checked:
            self.check_shards()

    def store_limits(self, shards: Iterable[int] | None = None) -> None:
        """Store the rules of LIMITS in these shards, or in all: they apply from now on. One round trip a shard."""
        for shard in range(self.config.shards) if shards is None else shards:
            self.operations(shard).limits.set_limits(self.config.tasks.limits.items())

    def known_shards(self) -> int:
        """Return the number of shards over which the stored jobs are spread; 0 if none is stored."""
        shard = self._producer_shards[0]
        stored = shard.execute("GET", shard.keys("shards")) or b""
        # A value that is no number was edited manually.
        return int(stored) if stored.isdigit() else 0

    def check_shards(self, *, force: bool = False) -> None:
        """Compare SHARDS with the number over which the stored jobs are spread, and store it.

        Raises `ShardsChanged`, unless forced, if jobs with unique keys wait (a key could be held in two shards), if a
        shard that is no longer used holds jobs, or if there are recurring schedules that no code declares (their names
        would be looked up in another shard).
        """
        first, shards, known = self._producer_shards[0], self.config.shards, self.known_shards()
        self._shards_checked = True
        if known == shards:
            return
        for index in range(known if not force else 0):
            shard = self._shard(index, for_producers=True)
            nouns = ("unique_keys", "jobs", "dead_bodies", "schedules")
            lengths = [["HLEN", shard.keys(noun)] for noun in nouns]
            keyed, jobs, dead, schedules, size = shard.execute_all([*lengths, ["STRLEN", shard.keys("declared_by")]])
            left, at_run_time = jobs + dead, schedules - DeclaredBy.count(size)
            if keyed or at_run_time > 0 or (left and index >= shards):
                self._shards_checked = False
                raise ShardsChanged(
                    f"DELAYQ['SHARDS'] changed from {known} to {shards} while shard {index} holds {left} jobs, "
                    f"{keyed} of them keyed, and {max(0, at_run_time)} recurring schedules that were set at run time: "
                    f"set it back until the jobs are done and the schedules are deleted, "
                    f"or start run_dispatcher once with --force-shards."
                )
        first.execute("SET", first.keys("shards"), shards)


# Reentrant: a signal handler that enqueues may interrupt the first call.
_lock = threading.RLock()
_store: Store | None = None
#: Alias in TASKS -> its store, if it has one of its own.
_stores: dict[str, Store] = {}


def get_store(backend: str | None = None) -> Store:
    """Return this process's store, built from DELAYQ at the first call. Opens nothing.

    `backend`: an alias in TASKS. Raises ImproperlyConfigured if its backend is not DelayQ's.
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
                _stores[backend] = Store(get_config(backend), alias=backend)
    return _stores[backend]


def _drop_stores() -> None:
    global _store, _lock, _stores
    # Also after a fork: a thread that does not exist here may hold the lock, and the sockets are the parent's.
    _lock, _store, _stores = threading.RLock(), None, {}


def _close_stores() -> None:
    dropped = [*_stores.values(), *filter(None, [_store])]
    _drop_stores()
    for store in dropped:
        # Otherwise the garbage collector closes them, with a ResourceWarning, in whatever test runs then.
        store.disconnect_idle()


on_config_dropped.append(_close_stores)
os.register_at_fork(after_in_child=_drop_stores)
