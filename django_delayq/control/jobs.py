"""Jobs: the jobs that match a filter, to read and to change in batches."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from hashlib import blake2b
from typing import Any

from django_delayq.clock import LATEST_US, duration_us, moment_us
from django_delayq.conf.spelling import did_you_mean
from django_delayq.exceptions import DelayTypeError
from django_delayq.job.ids import from_text
from django_delayq.job.job import State
from django_delayq.logs import logger
from django_delayq.store.client.reading import Reading
from django_delayq.store.operations.batch import MAX_BATCH, BatchJob, Effect
from django_delayq.store.operations.operations import Operations
from django_delayq.store.operations.spread import Spread
from django_delayq.store.queries.job_filter import JobFilter, Match
from django_delayq.store.queries.job_pages import JobPage, JobRow
from django_delayq.store.store import Store, get_store
from django_delayq.task.handle import JobHandle

#: Name of a state in the API -> the state. `running` and `failed` are the words of `counts()` and of the admin.
STATES = {"scheduled": State.SCHEDULED, "ready": State.READY, "running": State.CLAIMED, "failed": State.DEAD}
#: State -> its name in the API.
NAMES = {state: name for name, state in STATES.items()}
_WAITING, _DEAD = (State.SCHEDULED, State.READY), (State.DEAD,)
#: Called after each batch with the number of jobs that changed so far, and of those that were looked at.
OnProgress = Callable[[int, int], object]
Change = Callable[[Operations, Sequence[JobRow]], Sequence[Effect]]


@dataclass(frozen=True, kw_only=True, eq=False)
class Jobs:
    """The jobs of one store that match a filter.

    Iterating reads them in batches, as handles: `for job in jobs(state="failed"):`. They may change meanwhile, and a
    job that moves to a later time may be met twice. Each method that changes jobs sends one call a batch of up to 250,
    and returns how many it changed. All are safe to repeat: after a `StoreError` the same call changes what is left.
    Only `reschedule(delay=…)` counts from the time of each call, so all jobs move again; `at=` stays the same moment.
    """

    #: Alias in TASKS whose store has them; None for that of DELAYQ.
    backend: str | None
    #: The states that match.
    states: Sequence[State]
    #: What else must match.
    filter: JobFilter
    #: Ids of the jobs and their shards; None for all jobs.
    ids: Sequence[tuple[bytes, int]] | None = None
    #: The shards that are looked at; None for all.
    shards: Sequence[int] | None = None

    def __iter__(self) -> Iterator[JobHandle]:
        """Iterate over handles, queue by queue in the order of their places. One round trip for up to 250 jobs."""
        for row in self.rows():
            yield JobHandle.found(row, backend=self.backend)

    def rows(self) -> Iterator[JobRow]:
        """Iterate over the rows as Redis holds them; bodies of more than 32 KiB are cut."""
        for _, batch in self._batches(self.states):
            yield from batch.rows

    def count(self) -> int:
        """Return how many jobs match now. O(log n) a queue for a filter by queue alone, else all are read."""
        if self.ids is not None:
            return sum(len(batch.rows) for _, batch in self._named(self.states))
        return sum(sum(self._counts(state).values()) for state in self.states)

    def cancel(self, *, on_progress: OnProgress | None = None) -> int:
        """Cancel the jobs that wait; the result of those that keep one is that they were cancelled."""
        states = self._only(_WAITING, "cancel()", "jobs that wait; discard() drops failed ones")
        return self._change(states, lambda operations, rows: operations.waiting_jobs.cancel(_batch(rows)), on_progress)

    def reschedule(
        self,
        *,
        delay: float | timedelta | None = None,
        at: datetime | None = None,
        on_progress: OnProgress | None = None,
    ) -> int:
        """Give the jobs that wait another due time: seconds or a timedelta from now, or an aware datetime.

        The time is one moment for all of them, taken at the start. Jobs that are ready stay so if it has come.
        """
        if (delay is None) is (at is None):
            raise TypeError("reschedule() needs delay= (seconds or timedelta) or at= (aware datetime)")
        states = self._only(_WAITING, "reschedule()", "jobs that wait; requeue() revives failed ones")
        delay_us, at_us = self._store.config.tasks.check_time(delay=delay, at=at)
        now_us = self._store.now_us()
        due_us = min(now_us + (delay_us or 0), LATEST_US) if at_us is None else at_us
        if due_us <= now_us:
            states = [state for state in states if state is State.SCHEDULED]

        def change(operations: Operations, rows: Sequence[JobRow]) -> Sequence[Effect]:
            return operations.waiting_jobs.reschedule([BatchJob(raw_id=row.raw_id, due_us=due_us) for row in rows])

        # From the end: a job that becomes later is not met again.
        return self._change(states, change, on_progress, lambda row: row.due_us != due_us, before=True)

    def move(self, queue: str, *, on_progress: OnProgress | None = None) -> int:
        """Move the jobs that wait to another queue. They keep their due times and ranks."""
        states = self._only(_WAITING, "move()", "jobs that wait")
        name = self._store.config.tasks.check_queue(queue)

        def change(operations: Operations, rows: Sequence[JobRow]) -> Sequence[Effect]:
            return operations.waiting_jobs.move(_batch(rows), name)

        return self._change(states, change, on_progress, lambda row: row.queue != name)

    def requeue(self, *, spread: float | timedelta | None = None, on_progress: OnProgress | None = None) -> int:
        """Retry the failed jobs that failed before this call: all at once, or evenly over `spread`.

        Seconds or a timedelta. Attempts, snoozes and interruptions count from 0. The spread is stored until the call
        ends: calls with the same filter and length share it, also after an interruption, and together never exceed its
        rate.
        """
        states = self._only(_DEAD, "requeue()", "failed jobs; reschedule() moves jobs that wait")
        length_us = 0 if spread is None else self._store.config.tasks.check_spread(spread)
        end_us = self._store.now_us() + 1
        left = Counter[int]()
        if length_us and self.ids is None:
            left.update(self._counts(State.DEAD, to_us=end_us))
        elif length_us:
            for shard, batch in self._named(states):
                left[shard] += len(batch.rows)
        text = repr((self.filter.queue, self.filter.task, self.filter.error, self.ids, length_us))
        name = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        spreads = {shard: Spread(name=name, length_us=length_us, left=count) for shard, count in left.items()}

        def change(operations: Operations, rows: Sequence[JobRow]) -> Sequence[Effect]:
            return operations.dead_letters.requeue(_batch(rows), spread=spreads.get(rows[0].shard))

        changed = self._change(states, change, on_progress, to_us=end_us)
        for shard, each in spreads.items():
            self._store.operations(shard).dead_letters.end_spread(each)
        return changed

    def discard(self, *, on_progress: OnProgress | None = None) -> int:
        """Drop the failed jobs for good."""
        states = self._only(_DEAD, "discard()", "failed jobs; cancel() withdraws jobs that wait")
        end_us = self._store.now_us() + 1
        return self._change(
            states, lambda operations, rows: operations.dead_letters.discard(_batch(rows)), on_progress, to_us=end_us
        )

    @property
    def _store(self) -> Store:
        return get_store(self.backend)

    def _shards(self) -> Sequence[int]:
        return self._store.shard_numbers() if self.shards is None else self.shards

    def _only(self, possible: Sequence[State], method: str, what: str) -> list[State]:
        """Return the states that a method can change. Raises ValueError if there is none."""
        states = [state for state in self.states if state in possible]
        if not states:
            raise ValueError(f"{method} is for {what}; got state={' and '.join(NAMES[state] for state in self.states)}")
        return states

    def _change(
        self,
        states: Sequence[State],
        change: Change,
        on_progress: OnProgress | None,
        *more: Match,
        before: bool = False,
        to_us: int | None = None,
    ) -> int:
        changed, seen, refused = 0, 0, Counter[str]()
        for shard, batch in self._batches(states, *more, before=before, to_us=to_us):
            effects = change(self._store.operations(shard), batch.rows) if batch.rows else []
            changed += sum(effect.done for effect in effects)
            seen += batch.scanned
            refused.update(str(effect.error) for effect in effects if effect.error is not None)
            if on_progress is not None:
                on_progress(changed, seen)
        for reason, number in refused.items():
            logger.warning("%d jobs were left as they are: %s", number, reason)
        return changed

    def _batches(
        self, states: Sequence[State], *more: Match, before: bool = False, to_us: int | None = None
    ) -> Iterator[tuple[int, JobPage]]:
        """Yield the matching rows in batches, each with its shard."""
        if self.ids is not None:
            # Redis bounds the moments of a place, but not those of named jobs.
            yield from self._named(states, *more, lambda row: to_us is None or row.moment_us < to_us)
            return
        for state in states:
            found = self._store.reads().read(partial(self._read_options, state, more), self._shards())
            for shard, options in found.items():
                if options is None:
                    continue
                if to_us is not None:
                    options["to_us"] = to_us
                for batch in self._store.lookup(shard).batches(state, before=before, **options):
                    yield shard, batch

    def _named(self, states: Sequence[State], *more: Match) -> Iterator[tuple[int, JobPage]]:
        """Yield those of the jobs named by their ids that match, in batches of one shard."""
        match = self.filter.match(*more)
        for shard in self._shards():
            raw_ids = [raw_id for raw_id, its_shard in self.ids or () if its_shard == shard]
            for at in range(0, len(raw_ids), MAX_BATCH):
                found = self._store.lookup(shard).find_many(raw_ids[at : at + MAX_BATCH])
                rows = [row for row in found if row.state in states and (match is None or match(row))]
                yield shard, JobPage(rank=0, total=len(raw_ids), rows=rows, scanned=len(found), end=None)

    def _read_options(self, state: State, more: Sequence[Match], shard: int) -> Reading[dict[str, Any] | None]:
        """Return the reading of the options with which a place is read; None if it has no matching job."""
        wanted, queues, to_us = self.filter, list[str](), None
        if state in _WAITING:
            snapshot = yield from self._store.dashboard(shard).read_snapshot()
            queues = [name for name in snapshot.queues if wanted.queue in ("", name)]
            if not queues:
                return None
            wanted = replace(wanted, queue="")
        elif state is State.DEAD and wanted.due_before_us is not None:
            return None
        if state is State.SCHEDULED:
            # Redis finds them by their scores.
            to_us, wanted = wanted.due_before_us, replace(wanted, due_before_us=None)
        return {"queues": queues, "to_us": to_us, "match": wanted.match(*more)}

    def _counts(self, state: State, *, to_us: int | None = None) -> dict[int, int]:
        """Return how many jobs match in each shard; all shards are read side by side."""
        return self._store.reads().read(partial(self._read_count, state, to_us), self._shards())

    def _read_count(self, state: State, to_us: int | None, shard: int) -> Reading[int]:
        options = yield from self._read_options(state, (), shard)
        if options is None:
            return 0
        if to_us is not None:
            options["to_us"] = to_us
        lookup = self._store.lookup(shard)
        if options["match"] is None:
            page = yield from lookup.read_page(state, count=1, **options)
            return page.total
        numbers: list[int] = []
        yield from lookup.read_pages(state, lambda batch: numbers.append(len(batch.rows)), **options)
        return sum(numbers)


def jobs(
    *,
    state: str | Sequence[str] | None = None,
    queue: str | None = None,
    task: Any = None,
    error: Any = None,
    due_before: datetime | timedelta | float | None = None,
    ids: Iterable[str] | None = None,
    backend: str | None = None,
) -> Jobs:
    """Return the jobs that match all arguments; nothing is read yet.

    `state`: scheduled, ready, running or failed, or several; by default all. `task`: a task, its name, or the last
    parts of its name. `error`: the class of the last attempt's exception, or its name in the same ways. `due_before`:
    an aware datetime, or seconds or a timedelta from now; failed jobs are not due. `ids`: only jobs with these ids.
    `backend`: an alias in TASKS.
    """
    store = get_store(backend)
    found = Jobs(
        backend=backend,
        states=(*NAMES,) if state is None else _states(state),
        filter=JobFilter(
            queue=_text(queue, "queue must be the name of a queue"),
            task=_text(getattr(task, "name", task), "task must be a task or its name"),
            error=_text(_class_name(error), "error must be a class of exceptions or its name"),
        ),
        ids=None if ids is None else _ids(ids),
    )
    if due_before is not None:
        due_us = until_us(due_before, store, name="due_before")
        found = replace(found, filter=replace(found.filter, due_before_us=due_us))
    return found


def until_us(value: Any, store: Store, *, name: str) -> int:
    """Return a moment in µs since the epoch: an aware datetime, or seconds or a timedelta from Redis's time now."""
    if isinstance(value, datetime):
        return moment_us(value, name=name)
    try:
        return min(store.now_us() + duration_us(value, name=name), LATEST_US)
    except DelayTypeError as error:
        raise DelayTypeError(f"{error}; for a date and time use an aware datetime") from error


def _states(value: Any) -> list[State]:
    """Read one name of a state or several. Raises TypeError, and ValueError for a name that is none."""
    if isinstance(value, bytes) or not isinstance(value, Iterable):
        raise TypeError(f"state must be one of {', '.join(STATES)}, or a list of them, got {value!r:.80}")
    found: dict[State, None] = {}
    for name in [value] if isinstance(value, str) else value:
        if not isinstance(name, str) or name not in STATES:
            spelling = did_you_mean(name, list(STATES))
            raise ValueError(f"state must be one of {', '.join(STATES)}, got {name!r:.80}{spelling}")
        found[STATES[name]] = None
    if not found:
        raise ValueError(f"state must name at least one of {', '.join(STATES)}; leave it out for all")
    return list(found)


def _ids(texts: Any) -> list[tuple[bytes, int]]:
    """Read ids of jobs, each once. Raises TypeError, and ValueError for a text that is none."""
    if isinstance(texts, str | bytes) or not isinstance(texts, Iterable):
        cure = f"; write ids=[{texts!r:.80}]" if isinstance(texts, str) else ""
        raise TypeError(f"ids must be a list of the ids of jobs, got {texts!r:.80}{cure}")
    found: dict[tuple[bytes, int], None] = {}
    for text in texts:
        place = from_text(text)
        if place is None:
            raise ValueError(
                f"{text!r:.80} in ids is not the id of a job; copy it from handle.id, the admin or delayq_jobs"
            )
        found[place] = None
    return list(found)


def _batch(rows: Sequence[JobRow]) -> list[BatchJob]:
    return [BatchJob(raw_id=row.raw_id, died_us=row.moment_us) for row in rows]


def _text(value: Any, rule: str) -> str:
    """Return a filter's text, "" for none. Raises TypeError with the rule that the value breaks."""
    if value is not None and not (isinstance(value, str) and value):
        raise TypeError(f"{rule}, got {value!r:.80}; leave it out for all")
    return value or ""


def _class_name(value: Any) -> Any:
    """Return the name that a filter has of a class of exceptions; any other value as it is."""
    if isinstance(value, type) and issubclass(value, BaseException):
        return f"={value.__module__}.{value.__qualname__}".replace("=builtins.", "=")
    return value
