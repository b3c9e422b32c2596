"""Store: the shards of one backend, and what producers do with each; the process's stores."""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from time import monotonic
from typing import Any, TypeVar

from django.utils.functional import cached_property

from django_delayq import runtime
from django_delayq.clock import Clock
from django_delayq.conf.config import Config
from django_delayq.conf.settings import get_config, on_config_dropped, sharing_alias
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.ending import Ending
from django_delayq.job.ids import shard_of
from django_delayq.job.job import Job, LimitUse, State
from django_delayq.job.layout import Layout, Place
from django_delayq.job.security.encryption import Cipher
from django_delayq.job.security.signing import BodySigner
from django_delayq.store.digests import key_digest, routing_of, schedule_id
from django_delayq.store.enqueue import Enqueue, is_routed, places_of
from django_delayq.store.growth.layouts import Layouts
from django_delayq.store.growth.lingering import Lingering
from django_delayq.store.growth.schedule_places import SchedulePlaces
from django_delayq.store.operations.operations import Operations
from django_delayq.store.queries.dashboard import DashboardQueries
from django_delayq.store.queries.endings import EndingQueries, newest_endings
from django_delayq.store.queries.error_groups import ErrorGroupQueries
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.store.queries.limits import LimitQueries, LimitState, combined_limits
from django_delayq.store.queries.lookup import Lookup
from django_delayq.store.queries.shard_reads import ShardReads
from django_delayq.store.queries.snapshot import Snapshot, combined
from django_delayq.store.queries.tenants import TenantQueries
from django_delayq.store.routing.route import Route
from django_delayq.store.routing.topologies import make_topology
from django_delayq.store.routing.topology import Topology
from django_delayq.store.schedules.schedules import Schedules
from django_delayq.store.schedules.stored_schedule import StoredSchedule, from_text_id
from django_delayq.store.servers.server_check import ServerCheck, check_servers
from django_delayq.store.shard import TRIES, KnownLayout, Shard
from django_delayq.store.slots import slot_of_shard

T = TypeVar("T")


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
        self._known = KnownLayout(Layout.of(config.shards))
        #: How this process learns the layout of the shards.
        self.layouts = Layouts(self._known, setting=config.shards, shard=self.producer_shard)
        # More follow when a later layout has more. Two threads may make the same one, which harms nobody.
        self._made: dict[bool, list[Shard]] = {True: [], False: []}
        self._enqueue_apis: list[Enqueue] = []
        self._dashboards: dict[int, DashboardQueries] = {}

    # Django's cached_property: before Python 3.12 that of functools holds a lock, and a fork copies it locked.
    @cached_property
    def topology(self) -> Topology:
        """Which server has which shard. Raises ImproperlyConfigured if the client library does not accept REDIS."""
        return make_topology(self.config.redis, producer_timeout=self.config.enqueue_timeout)

    @property
    def shards(self) -> list[Shard]:
        """The shards for workers and dispatchers: a command may take 5 s."""
        return self._shards(self.shard_count, for_producers=False)[: self.shard_count]

    @property
    def _producer_shards(self) -> list[Shard]:
        """The shards for everybody else: a call may take ENQUEUE_TIMEOUT."""
        return self._shards(self.shard_count, for_producers=True)

    def producer_shard(self, index: int) -> Shard:
        """Return a shard for everybody else, which may be one of a former layout."""
        return self._shards(index + 1, for_producers=True)[index]

    def _shards(self, count: int, *, for_producers: bool) -> list[Shard]:
        """Return at least so many shards."""
        made = self._made[for_producers]
        if len(made) < count:
            with _lock:
                made += [self._shard(index, for_producers) for index in range(len(made), count)]
        return made

    def _shard(self, index: int, for_producers: bool) -> Shard:
        return Shard(
            index=index,
            config=self.config,
            signer=self.signer,
            cipher=self.cipher,
            route=Route(self.topology, slot_of_shard(index), shard=index, for_producers=for_producers),
            clock=self._clock,
            known=self._known,
            sibling=self.producer_shard,
        )

    def disconnect_idle(self) -> None:
        """Close the connections that are not in use; the next use opens new ones."""
        # A topology that was never used is not made for this.
        if "topology" in self.__dict__:
            self.topology.disconnect_idle()

    def enqueue_api(self, shard: int) -> Enqueue:
        """Return the API for new jobs; a call takes at most ENQUEUE_TIMEOUT."""
        apis = self._enqueue_apis
        if shard >= len(apis):
            with _lock:
                apis += map(Enqueue, self._shards(shard + 1, for_producers=True)[len(apis) :])
        return apis[shard]

    def shard_for(self, raw_id: bytes, routing: bytes | None) -> int:
        """Return the shard of a new job: by its routing value, or without one by its id.

        With ROUTE_AROUND a job without a routing value goes to the next shard whose server was reached lately.
        """
        shards = self._known.layout.shards
        shard = shard_of(routing or raw_id, shards)
        if routing is not None or not self.config.route_around:
            return shard
        routes = [each.route for each in self._producer_shards[:shards]]
        order = [*range(shard, len(routes)), *range(shard)]
        return next((index for index in order if not routes[index].is_down), shard)

    def operations(self, shard: int) -> Operations:
        """Return the APIs for changes to jobs, queues and workers."""
        return Operations(self.producer_shard(shard))

    def lookup(self, shard: int) -> Lookup:
        """Return the API that reads jobs."""
        return Lookup(self.producer_shard(shard))

    def holder(
        self, task: str, key: str, tenant: str | None, limits: Sequence[LimitUse] | None = ()
    ) -> tuple[bytes, int] | None:
        """Return the id and the shard of the job that holds a unique key, or throttles calls with it. See `Lookup`.

        `limits` are those of the job; None: they are not known, and every shard is asked.
        """
        shards: Iterable[int] = self.shard_numbers()
        if limits is not None:
            routing = routing_of(task, key, tenant, limits if self.shard_count > 1 else ())
            shards = [place.shard for place in self.layout.places(routing or b"")]
        for shard in shards:
            if raw_id := self.lookup(shard).holder(key_digest(task, key, tenant)):
                return raw_id, shard
        return None

    def find(self, raw_id: bytes, shard: int, **options: Any) -> JobRow:
        """Return a job in any state, as `Lookup.find()` does, with its options.

        If it is gone from the shard of its id, and the number of shards has changed, the other shards are asked.
        """
        row = self.lookup(shard).find(raw_id, **options)
        if row.state is State.GONE:
            # A process that only looks jobs up learns it nowhere else.
            self.layouts.learn()
        others = range(self.shard_count if row.state is State.GONE and self.layout.has_changed else 0)
        found = (self.lookup(other).find(raw_id, **options) for other in others if other != shard)
        return next((each for each in found if each.state is not State.GONE), row)

    def schedules(self, shard: int) -> Schedules:
        """Return the API that stores, changes and reads recurring schedules."""
        return Schedules(self.producer_shard(shard))

    def find_schedule(self, text_id: str) -> StoredSchedule | None:
        """Return the schedule of a `text_id`; None if there is none, or if the text is no id. One round trip."""
        id, shard = from_text_id(text_id) or (b"", -1)
        found = self.schedules(shard).find([id])[0] if shard >= 0 and self.has_shard(shard) else None
        if found is None and shard >= 0:
            self.layouts.read()
        if found is None and shard >= 0 and self.layout.has_changed:
            [shard] = self.schedule_places.shards([id])
            found = self.schedules(shard).find([id])[0]
        return found

    @cached_property
    def schedule_places(self) -> SchedulePlaces:
        """Where recurring schedules are."""
        return SchedulePlaces(self.layouts, self.producer_shard)

    def lingering(self, shard: int) -> Lingering:
        """Return the API that knows what is left of an older number of shards."""
        return Lingering(self.producer_shard(shard))

    def find_schedules(
        self, tasks: Iterable[str], name: str, *, reads: ShardReads | None = None
    ) -> list[StoredSchedule]:
        """Return the schedules of these tasks that have a name. One round trip."""
        by_shard, reads = dict[int, list[bytes]](), reads or self.reads()
        for task in tasks:
            id = schedule_id(task, name)
            for shard in {place.shard for place in self.layout.places(id)}:
                by_shard.setdefault(shard, []).append(id)
        found = reads.read(lambda shard: self.schedules(shard).read_found(by_shard[shard]), by_shard)
        return [each for schedules in found.values() for each in schedules if each is not None]

    def tenants(self, shard: int) -> TenantQueries:
        """Return the API that reads tenants."""
        return TenantQueries(self.producer_shard(shard))

    def limits(self, shard: int) -> LimitQueries:
        """Return the API that reads limits and paused tasks."""
        return LimitQueries(self.producer_shard(shard))

    def error_groups(self, shard: int) -> ErrorGroupQueries:
        """Return the API that reads error groups."""
        return ErrorGroupQueries(self.producer_shard(shard))

    def endings(self, *, reads: ShardReads | None = None) -> list[Ending]:
        """Return the last jobs that ended, newest first, at most FINISHED_KEPT. One round trip."""
        reads = reads or self.reads()
        found = reads.read(lambda shard: EndingQueries(self.producer_shard(shard)).read_endings())
        return newest_endings(found.values(), self.config.worker.finished_kept)

    def reads(self, *, partial: bool = False) -> ShardReads:
        """Return what reads all shards side by side; with `partial` without those whose servers do not answer."""
        self.layouts.learn()
        return ShardReads(self._producer_shards[: self.shard_count], partial=partial)

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
            self._dashboards[shard] = DashboardQueries(self.producer_shard(shard))
        return self._dashboards[shard]

    def snapshot(self, *, reads: ShardReads | None = None, **options: Any) -> Snapshot:
        """Return the counts, queues and processes of all shards together. One round trip.

        `options` are those of `DashboardQueries.snapshot()`.
        """
        return combined(list(self.snapshots(reads=reads, **options).values()))

    def snapshots(self, *, reads: ShardReads | None = None, **options: Any) -> dict[int, Snapshot]:
        """Return the snapshot of each shard. See `snapshot()`."""
        reads = reads or self.reads()
        found = reads.read(lambda shard: self.dashboard(shard).read_snapshot(**options))
        return {shard: each.measured(*reads.times_us[shard]) for shard, each in found.items()}

    def now_us(self) -> int:
        """Return the time of Redis (µs since the epoch), of any server that answers. One round trip."""
        return self.snapshot(reads=self.reads(partial=True)).now_us

    def check_servers(self, *, with_settings: bool = False) -> ServerCheck:
        """Look at every server at the same time: the masters of a cluster, or the only server. Two round trips.

        With `with_settings`, also at those of its settings that this user may read. Raises a `StoreError` if none
        answers.
        """
        slots = {index: slot_of_shard(index) for index in range(self.shard_count)}
        replicas = self.config.wait_replicas
        return check_servers(self.topology, slots, wait_replicas=replicas, with_settings=with_settings)

    def check_shards(self, *, force: bool = False, shard: int = 0) -> None:
        """Compare SHARDS with the stored layout of the shards; store it if there is none.

        The stored layout decides. A process whose SHARDS is a former number follows it. Another number is stored, but
        raises `ShardsChanged`, unless forced, if jobs with unique keys wait (a key could be held in two shards), if a
        shard that is no longer used holds jobs, or if there are recurring schedules that no code declares (their names
        would be looked up in another shard). `shard` is asked, whose server the caller needs anyway.
        """
        self.layouts.check(force=force, shard=shard)

    def check_shards_once(self, shard: int = 0) -> None:
        """Run `check_shards()` at the first call. Otherwise a unique key could be held in two shards."""
        if not self.layouts.is_checked:
            self.check_shards(shard=shard)

    def store_limits(self, shards: Iterable[int] | None = None) -> None:
        """Store the rules of LIMITS in these shards, or in all: they apply from now on. One round trip a shard."""
        for shard in self.shard_numbers() if shards is None else shards:
            self.operations(shard).limits.set_limits(self.config.tasks.limits.items())

    def stored_shard_count(self) -> int:
        """Return the number of shards over which the stored jobs are spread; 0 if none is stored."""
        found = self.layouts.read()
        return 0 if found is None else found.shards

    @property
    def layout(self) -> Layout:
        """The layout of the shards, as this process knows it."""
        return self._known.layout

    @property
    def shard_count(self) -> int:
        """The number of shards that exist, as far as this process knows. No round trip."""
        return self._known.layout.served

    def shard_numbers(self) -> range:
        """Return the numbers of all shards. A round trip every few seconds, since there may be more by now."""
        self.layouts.learn()
        return range(self.shard_count)

    def has_shard(self, shard: int) -> bool:
        """Return whether a shard exists. One round trip if this process does not know it."""
        if shard >= self.shard_count:
            self.layouts.read()
        return shard < self.shard_count

    def first_shard(self, job: Job) -> int:
        """Return the shard to which a job is sent first. A round trip every few seconds. Raises `ShardsChanged`."""
        layouts = self.layouts
        if monotonic() >= layouts.learn_at:
            layouts.read(job.shard if job.shard < self.shard_count else 0)
        if not layouts.is_checked and (self._known.layout.served > 1 or is_routed(job)):
            # Not shard 0: its server may be away, and the job's is needed anyway.
            self.check_shards(shard=job.shard)
        return places_of(job, self.layout)[0][0].shard if layouts.has_followed else job.shard

    def at_place(self, routing: bytes, call: Callable[..., T | None]) -> tuple[int, T]:
        """Make a call in the shard that has something of a routing value; return the shard and the reply.

        The shards are asked in their order: `call(shard, left=…, layout=…)` returns None if nothing of the value is
        left there. Raises what it raises.
        """
        self.layouts.learn()
        self.check_shards_once(self.layout.home(routing))

        def call_at(place: Place, layout: Layout) -> tuple[int, T] | None:
            reply = call(place.shard, left=place.left_here(routing), layout=layout.number)
            return None if reply is None else (place.shard, reply)

        found = self._known.at_place(routing, call_at)
        if found is None:
            raise StoreUnavailable(f"the number of shards changed {TRIES} times meanwhile", maybe_accepted=False)
        return found


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
