"""Task schedules: `task.schedules`, the recurring schedules of one task."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Any

from django.views.decorators.debug import sensitive_variables

from django_delayq import runtime
from django_delayq.clock import estimated_us
from django_delayq.conf.settings import default_time_zone, get_config
from django_delayq.exceptions import InvalidSchedule, UnknownSchedule
from django_delayq.job.ids import shard_of
from django_delayq.recurring.declaration import Recurring
from django_delayq.recurring.schedule import CatchUp, Overlap, check_schedule_name, make_schedule
from django_delayq.store.digests import schedule_id
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.schedules.schedules import BATCH, StoredSchedule
from django_delayq.store.store import get_store
from django_delayq.task import outbox
from django_delayq.task.recurring.handle import ScheduleHandle, cancel_planted, delete_schedules

#: Options of `set()` that are no options of the schedule.
_OF_JOB = ("args", "kwargs")


@dataclass(frozen=True, slots=True)
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
        """Create a schedule, or replace the one of this name; an equal one stays as it is.

        Its jobs are due `every` so many seconds (or a timedelta), or at the times of `cron` fields in the time zone
        `tz`, by default TIME_ZONE; between `start` and `end`, aware datetimes; always by the same share of `jitter`
        later. They get `args` and `kwargs` and have the options that the task has now. Inside a transaction the
        schedule is stored after the commit. Raises `InvalidSchedule`, and what `job()` raises.
        """
        options = {key: value for key, value in locals().items() if key not in ("self", "name")}
        self.set_many([{"name": name, **options}])

    @sensitive_variables()
    def set_many(self, schedules: Iterable[Mapping[str, Any]]) -> int:
        """Create or replace schedules, each a mapping with a `name` and the options of `set()`; return their number.

        They are stored in batches of up to 250, each whole or not at all. Inside a transaction all are stored after the
        commit. Raises what `set()` raises; earlier batches are stored by then, but not in a transaction.
        """
        waits = outbox.open_transactions(self._task.database) if self._on_commit else ()
        made = map(self.define, schedules)
        if waits:
            found = list(made)
            outbox.after_commit(waits, partial(self._store_all, found))
            return len(found)
        return self._store_all(made)

    def get(self, name: str) -> ScheduleHandle | None:
        """Return the schedule of a name, None if there is none. One round trip."""
        id, shard = self._place(name)
        [stored] = get_store(self.backend).schedules(shard).find([id])
        return None if stored is None else ScheduleHandle(stored, self.backend)

    def delete(self, *names: str) -> int:
        """Delete schedules, and cancel their waiting jobs; return how many there were. Running jobs go on."""
        store, deleted = get_store(self.backend), 0
        for shard, ids in _by_shard(map(self._place, names)):
            deleted += delete_schedules(store, shard, ids)
        return deleted

    def pause(self, name: str) -> bool:
        """Plant no further job of a schedule. Returns False if it was paused already. Raises `UnknownSchedule`."""
        return self._known(name).pause()

    def resume(self, name: str) -> bool:
        """Plant the jobs of a schedule again. Returns False if it was not paused. Raises `UnknownSchedule`."""
        return self._known(name).resume()

    def iter(self, prefix: str = "") -> Iterator[ScheduleHandle]:
        """Yield the schedules whose names begin so, in no order. It reads those of all tasks, some hundred at a time.

        Those that this process cannot read are left out.
        """
        store = get_store(self.backend)
        for shard in range(store.config.shards):
            for stored in store.schedules(shard).scan():
                if self._owns(stored) and stored.definition and stored.definition.schedule.name.startswith(prefix):
                    yield ScheduleHandle(stored, self.backend)

    def _owns(self, stored: StoredSchedule) -> bool:
        return stored.definition is not None and stored.definition.job.task == self._task.name

    def _known(self, name: str) -> ScheduleHandle:
        if (found := self.get(name)) is None:
            raise UnknownSchedule(f"the task {self._task.name} has no schedule {name!r:.80}")
        return found

    @sensitive_variables()
    def define(self, options: Mapping[str, Any]) -> Definition:
        """Return the definition of a mapping of `set_many()`. Raises what `set()` raises. No round trip."""
        given = dict(options)
        name, args, kwargs = given.pop("name", None), given.pop("args", ()), given.pop("kwargs", None)
        _, shard = self._place(name)
        if given.get("cron") is not None and given.get("tz") is None:
            given["tz"] = default_time_zone()
        schedule = make_schedule(name, now_us=estimated_us(runtime.current().clock), **given)
        # A schedule has its own rule against doubles.
        task = replace(self._task, key=None, key_of=None, unique="keep", until="finish", delay_us=None, due_us=None)
        draft = task._make(list(args), dict(kwargs or {})).draft
        if draft.job.limits and get_config(self.backend).shards > 1:
            raise InvalidSchedule(
                f"the jobs of the schedule {name!r:.80} have limits; with SHARDS > 1 these are kept in the shard of "
                f"their value, and a schedule in that of its name. Let its job enqueue another one that has them"
            )
        return Definition(schedule, replace(draft.job, shard=shard), draft.cost, draft.drops)

    def _store_all(self, definitions: Iterable[Definition]) -> int:
        """Store definitions in batches; cancel the jobs that waited for those that are replaced."""
        store, batches, number = get_store(self.backend), dict[int, list[Definition]](), 0
        store.check_shards_once()

        def flush(shard: int) -> None:
            if planted := store.schedules(shard).set_schedules(batches.pop(shard)):
                cancel_planted(store, shard, planted)

        for definition in definitions:
            batch = batches.setdefault(definition.job.shard, [])
            batch.append(definition)
            number += 1
            if len(batch) == BATCH:
                flush(definition.job.shard)
        for shard in list(batches):
            flush(shard)
        return number

    def _place(self, name: Any) -> tuple[bytes, int]:
        """Return the id and the shard of a schedule. Raises ValueError for a wrong name."""
        id = schedule_id(self._task.name, check_schedule_name(name))
        return id, shard_of(id, get_config(self.backend).shards)

    @property
    def backend(self) -> str | None:
        """The alias in TASKS whose store has them; None: the store of DELAYQ."""
        return getattr(self._task, "alias", None)

    @property
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


def _by_shard(places: Iterable[tuple[bytes, int]]) -> Iterator[tuple[int, list[bytes]]]:
    ordered = sorted(places, key=lambda place: place[1])
    for shard, found in groupby(ordered, key=lambda place: place[1]):
        ids = [id for id, _ in found]
        for at in range(0, len(ids), BATCH):
            yield shard, ids[at : at + BATCH]
