"""Task schedules: `task.schedules`, the recurring schedules of one task."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

from asgiref.sync import sync_to_async
from django.utils.functional import cached_property
from django.views.decorators.debug import sensitive_variables

from django_delayq import runtime
from django_delayq.clock import estimated_us
from django_delayq.conf.settings import default_time_zone, get_config
from django_delayq.conf.spelling import did_you_mean
from django_delayq.exceptions import DelayQError, InvalidSchedule, StoreError, UnknownSchedule
from django_delayq.recurring.declaration import SCHEDULE_OPTIONS, Recurring
from django_delayq.recurring.schedule import CatchUp, Overlap, check_schedule_name, make_schedule
from django_delayq.store.client.async_calls import in_thread
from django_delayq.store.digests import schedule_id
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.schedules.schedules import BATCH
from django_delayq.store.schedules.stored_schedule import StoredSchedule
from django_delayq.store.store import get_store
from django_delayq.task import outbox
from django_delayq.task.arguments import args_and_kwargs
from django_delayq.task.recurring.handle import ScheduleHandle

T = TypeVar("T")
#: Options of `set()` that become the rule and the bounds of a schedule.
_OPTIONS = frozenset(SCHEDULE_OPTIONS) - {"args", "kwargs"}


@dataclass(frozen=True)
class TaskSchedules:
    """The recurring schedules of one task. Reading and changing one takes a round trip or two."""

    _task: Any

    @sensitive_variables()
    def set(
        self,
        name: str,
        *,
        every: float | timedelta | None = None,
        cron: str | None = None,
        tz: Any = None,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        start: datetime | None = None,
        end: datetime | None = None,
        jitter: float | timedelta | None = None,
        overlap: Overlap = "skip",
        catch_up: CatchUp = "last",
        window: float | timedelta | None = None,
        pause_after: int | None = None,
    ) -> None:
        """Create a schedule, or replace the one of this name; an equal one stays as it is, and so does its pause.

        Its jobs are due `every` so many seconds (or a timedelta), or at the times of `cron` fields in the time zone
        `tz`, by default TIME_ZONE; between `start` and `end`, aware datetimes; always by the same share of `jitter`
        later. They get `args` and `kwargs` and have the options that the task has now, but no unique key. Inside a
        transaction the schedule is stored after the commit. Raises `InvalidSchedule`, and what `job()` raises.
        """
        options = {key: value for key, value in locals().items() if key != "self"}
        self._set(map(self.define, [options]))

    @sensitive_variables()
    def set_many(self, schedules: Iterable[Mapping[str, Any]]) -> int:
        """Create or replace schedules, each a mapping with a `name` and the options of `set()`; return their number.

        They are stored in batches of up to 250, each whole or not at all. Those of an iterator are stored while it
        yields them; those of a list are all checked first, so that a wrong one leaves nothing stored. Inside a
        transaction all are stored after the commit. Raises what `set()` raises, also for a name that comes twice: of an
        iterator, earlier batches are stored by then. The call may be repeated: equal schedules stay as they are.
        """
        if isinstance(schedules, Mapping | str | bytes) or not isinstance(schedules, Iterable):
            raise TypeError(
                f"set_many() takes an iterable of mappings, each with a name and the options of set(), "
                f"got {type(schedules).__name__}"
            )
        # Not a generator: Django's error reports would not find the frame that names the sensitive variables.
        made: Iterable[Definition] = map(partial(self._define_item, dict[bytes, int]()), schedules)
        return self._set(list(made) if isinstance(schedules, Sequence) else made)

    @sensitive_variables()
    async def aset(self, name: str, **options: Any) -> None:
        """Do what `set()` does, from async code, in the thread whose transaction the caller is in."""
        await _in_its_thread(lambda: self.set(name, **options))

    @sensitive_variables()
    async def aset_many(self, schedules: Iterable[Mapping[str, Any]]) -> int:
        """Do what `set_many()` does, from async code."""
        return await _in_its_thread(lambda: self.set_many(schedules))

    def get(self, name: str) -> ScheduleHandle | None:
        """Return the schedule of a name, None if there is none. One round trip."""
        # One of an alias was set before the task was renamed.
        for id, shard in self._places(name):
            [stored] = get_store(self.backend).schedules(shard).find([id])
            if stored is not None:
                return self._handle(stored)
        return None

    async def aget(self, name: str) -> ScheduleHandle | None:
        """Do what `get()` does, from async code."""
        return await in_thread(self.get, name)

    def delete(self, *names: str) -> int:
        """Delete schedules, and cancel their waiting jobs; return how many there were. Running jobs go on.

        Inside a transaction they are deleted after the commit, and the number is that of now.
        """
        by_shard = list(_by_shard(place for name in names for place in self._places(name)))
        if waits := self._waits():
            outbox.after_commit(waits, partial(self._delete, by_shard))
            store = get_store(self.backend)
            return sum(each is not None for shard, ids in by_shard for each in store.schedules(shard).find(ids))
        return self._delete(by_shard)

    async def adelete(self, *names: str) -> int:
        """Do what `delete()` does, from async code, in the thread whose transaction the caller is in."""
        return await _in_its_thread(lambda: self.delete(*names))

    def pause(self, name: str) -> bool:
        """Pause a schedule as `ScheduleHandle.pause()` does. Raises `UnknownSchedule`."""
        return self._known(name).pause()

    def resume(self, name: str) -> bool:
        """Resume a schedule as `ScheduleHandle.resume()` does. Raises `UnknownSchedule`."""
        return self._known(name).resume()

    def iter(self, prefix: str = "") -> Iterator[ScheduleHandle]:
        """Iterate over the schedules whose names begin so, in no order.

        It reads the schedules of all tasks, some hundred in a round trip. One that is set meanwhile may come twice, or
        not at all. Those that this process cannot read are left out.
        """
        if not isinstance(prefix, str):
            raise TypeError(f"prefix must be the beginning of names, got {type(prefix).__name__}")
        return self._iterate(prefix)

    def _iterate(self, prefix: str) -> Iterator[ScheduleHandle]:
        store = get_store(self.backend)
        for shard in store.shard_numbers():
            for stored in store.schedules(shard).scan():
                found = stored.definition
                if found and found.job.task in self._names and found.schedule.name.startswith(prefix):
                    yield self._handle(stored)

    def _handle(self, stored: StoredSchedule) -> ScheduleHandle:
        return ScheduleHandle(stored, self.backend, _on_commit=self._on_commit, _database=self._task.database)

    def _known(self, name: str) -> ScheduleHandle:
        if (found := self.get(name)) is None:
            raise UnknownSchedule(
                f"the task {self._task.name} has no schedule {name!r:.80}; one that was set in a transaction exists "
                f"after its commit"
            )
        return found

    def _define_item(self, seen: dict[bytes, int], options: Mapping[str, Any]) -> Definition:
        """Return the definition of an item of `set_many()`; `seen` has the numbers of those before it, by their ids."""
        try:
            if not isinstance(options, Mapping):
                raise TypeError(f"set_many() takes mappings with a name each, got {type(options).__name__}")
            if "name" not in options:
                raise InvalidSchedule("a mapping for set_many() needs a name")
            definition = self.define(options)
            number = len(seen)
            first = seen.setdefault(definition.id, number)
            if first != number:
                name = definition.schedule.name
                raise InvalidSchedule(f"set_many() got the name {name!r} twice, in item {first} and in item {number}")
        except (DelayQError, TypeError, ValueError) as error:
            given = options.get("name") if isinstance(options, Mapping) else None
            error.add_note(f"This is item {len(seen)} of set_many(), counted from 0, with the name {given!r:.80}.")
            raise
        return definition

    @sensitive_variables()
    def define(self, options: Mapping[str, Any]) -> Definition:
        """Return the definition of a mapping with a name and the options of `set()`. No round trip."""
        given = dict(options)
        name, args, kwargs = given.pop("name"), given.pop("args", ()), given.pop("kwargs", None)
        check_schedule_name(name)
        shard = get_store(self.backend).layout.home(schedule_id(self._task.name, name))
        for option in given.keys() - _OPTIONS:
            raise TypeError(
                f"a schedule has no option {option!r:.80}{did_you_mean(option, _OPTIONS)}; it has args, kwargs, "
                f"{', '.join(sorted(_OPTIONS))}"
            )
        if given.get("cron") is not None and given.get("tz") is None:
            given["tz"] = default_time_zone()
        schedule = make_schedule(name, now_us=estimated_us(runtime.current().clock), **given)
        draft = self._task_of_jobs._make(*args_and_kwargs(args, kwargs)).draft
        if draft.job.limits and get_store(self.backend).shard_count > 1:
            raise InvalidSchedule(
                f"the jobs of the schedule {name!r:.80} have limits; with SHARDS > 1 these are kept in the shard of "
                f"their value, and a schedule in that of its name. Let its job enqueue another one that has them"
            )
        job = draft.job if draft.job.shard == shard else replace(draft.job, shard=shard)
        return Definition(schedule, job, draft.cost, draft.drops, draft.body)

    @cached_property
    def _task_of_jobs(self) -> Any:
        """The task with the options that jobs of schedules have."""
        if self._task.delay_us is not None or self._task.due_us is not None:
            raise InvalidSchedule(
                "the rule of a schedule sets the times of its jobs; leave out delay, at and run_after"
            )
        # A schedule has its own rule against doubles.
        return replace(self._task, key=None, key_of=None, unique="keep", until="finish")

    def _set(self, definitions: Iterable[Definition]) -> int:
        """Store definitions, after the commit if the caller is in a transaction; return their number."""
        if waits := self._waits():
            made = list(definitions)
            outbox.after_commit(waits, partial(self._store_all, made))
            return len(made)
        return self._store_all(definitions, check=self._check_no_transaction)

    @sensitive_variables()
    def _store_all(self, definitions: Iterable[Definition], *, check: Callable[[], None] | None = None) -> int:
        """Store definitions in batches; `check` is called before each. Return their number."""
        store, batches, stored = get_store(self.backend), dict[int, list[Definition]](), 0
        store.check_shards_once()
        try:
            for definition in definitions:
                batch = batches.setdefault(definition.job.shard, [])
                batch.append(definition)
                if len(batch) == BATCH:
                    self._store_batch(batches.pop(definition.job.shard), check)
                    stored += BATCH
            for batch in batches.values():
                self._store_batch(batch, check)
                stored += len(batch)
        except Exception as error:
            if stored:
                error.add_note(f"{stored:,} schedules were stored before.")
            if isinstance(error, StoreError):
                error.accepted = stored
            raise
        return stored

    def _store_batch(self, batch: Sequence[Definition], check: Callable[[], None] | None) -> None:
        """Store definitions of one shard; cancel the jobs that waited for those that they replace."""
        if check is not None:
            check()
        get_store(self.backend).schedule_places.set(batch)
        if self._task.aliases:
            # Each replaces one that was set before the task was renamed.
            names = [definition.schedule.name for definition in batch]
            self._delete(_by_shard(place for name in names for place in self._places(name)[1:]))

    def _delete(self, by_shard: Iterable[tuple[int, list[bytes]]]) -> int:
        store = get_store(self.backend)
        return sum(store.schedules(shard).delete_and_cancel(ids) for shard, ids in by_shard)

    def _waits(self) -> tuple[str, ...]:
        """Return the database connections whose commit a change waits for."""
        return outbox.open_transactions(self._task.database) if self._on_commit else ()

    def _check_no_transaction(self) -> None:
        if inside := self._waits():
            raise DelayQError(
                f"set_many() stores the schedules of an iterator while it yields them, but the iterator has begun a "
                f"transaction on {inside[0]!r}; begin it before the call, so that all are stored after the commit"
            )

    def _places(self, name: Any) -> list[tuple[bytes, int]]:
        """Return the id and the shard of a schedule, then those that it has under each alias of the task."""
        check_schedule_name(name)
        ids = [schedule_id(task, name) for task in self._names]
        return list(zip(ids, get_store(self.backend).schedule_places.shards(ids), strict=True))

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return self._task.name, *self._task.aliases

    @cached_property
    def backend(self) -> str | None:
        """The alias in TASKS whose store has them; None: the store of DELAYQ."""
        return getattr(self._task, "alias", None)

    @cached_property
    def _on_commit(self) -> bool:
        default = get_config(self.backend).tasks.on_commit
        return default if self._task.on_commit is None else self._task.on_commit


@dataclass(frozen=True, kw_only=True)
class HasSchedules:
    """What all tasks have; a base of `Task`."""

    #: The schedules that its declaration names.
    # Not compared: their arguments may be lists, which have no hash.
    recurring: tuple[Recurring, ...] = field(default=(), compare=False)

    @property
    def schedules(self) -> TaskSchedules:
        """The recurring schedules of the task."""
        return TaskSchedules(self)

    def check_recurring(self) -> None:
        """Raise TypeError, which names the schedule, if the function does not take the arguments of one."""
        for each in self.recurring:
            try:
                self.check_fit(list(each.args), dict(each.kwargs or {}))
            except TypeError as error:
                raise TypeError(f"the arguments of the schedule {each.name!r} do not fit the task: {error}") from None

    def check_fit(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        """Raise TypeError if the function does not accept the arguments."""
        raise NotImplementedError


async def _in_its_thread(call: Callable[[], T]) -> T:
    """Make a call in the thread in which asgiref runs synchronous code, since transactions belong to a thread."""
    # A call without arguments, because error reports show the frames of asgiref.
    return await sync_to_async(sensitive_variables()(call))()


def _by_shard(places: Iterable[tuple[bytes, int]]) -> Iterator[tuple[int, list[bytes]]]:
    """Yield each shard with ids in it, up to 250 at a time; ids of one shard keep their order."""
    shard_of_place = itemgetter(1)
    for shard, found in groupby(sorted(places, key=shard_of_place), key=shard_of_place):
        ids = [id for id, _ in found]
        for at in range(0, len(ids), BATCH):
            yield shard, ids[at : at + BATCH]
