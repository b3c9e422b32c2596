"""Snapshot: jobs by state, processes and metrics at one moment, of one shard or of all."""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, Self

from django_delayq.conf.queue_filter import QueueFilter
from django_delayq.job.value import has_type
from django_delayq.metrics import MinuteSeries, Stats
from django_delayq.store.servers.server_info import ServerInfo

#: A live process is seen several times within it: by its steps and its reports.
_SILENCE_US = 20_000_000
#: The fields of a status that a process reports, as JSON has them.
_STATUS = {
    **dict.fromkeys(("name", "version", "project"), str),
    **dict.fromkeys(("started_us", "rss", "slots", "oldest_us", "promoted", "lag_p95_us"), int),
    **dict.fromkeys(("more_queues", "filtered", "quiet"), bool),
    **{"project_keys": list, "queues": list, "weights": list, "running": dict},
}
_MOMENT = re.compile(rb"\d{1,18}")
_PAUSE = re.compile(rb"(\d{1,18}) (.*?)(?:\xff(\d{1,18}))?", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Who paused a queue, a tenant or a task, when, and until when (µs since the epoch)."""

    by: str
    at_us: int
    #: None: until somebody resumes it.
    until_us: int | None = None

    @classmethod
    def read(cls, record: bytes | None) -> Self | None:
        """Read a field of `paused`."""
        if record is None:
            return None
        found = _PAUSE.fullmatch(record)
        at, by, until = found.groups() if found else (b"0", record, None)
        return cls(by=by.decode(errors="replace"), at_us=int(at), until_us=int(until) if until else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """The waiting jobs of one queue. Moments are µs since the epoch; None if there is no such job."""

    scheduled: int = 0
    ready: int = 0
    #: Those of the ready jobs that a limit, or the pause of their task, keeps from beginning.
    parked: int = 0
    #: Scheduled jobs that are due, and the due time of the first of them.
    overdue: int = 0
    oldest_overdue_us: int | None = None
    #: Due time of the first job that is not due yet.
    next_due_us: int | None = None
    #: The task of that job; empty if there is none, or its body cannot be read.
    next_task: str = ""
    #: Due time of the job that will be claimed first.
    oldest_ready_us: int | None = None
    paused: Pause | None = None

    @classmethod
    def total(cls, states: Sequence["QueueState"]) -> "QueueState":
        """Return several states together."""
        return cls(
            scheduled=sum(state.scheduled for state in states),
            ready=sum(state.ready for state in states),
            parked=sum(state.parked for state in states),
            overdue=sum(state.overdue for state in states),
            oldest_overdue_us=_of(min, (state.oldest_overdue_us for state in states)),
            next_due_us=_of(min, (state.next_due_us for state in states)),
            next_task=next((state.next_task for state in states if state.next_task), ""),
            oldest_ready_us=_of(min, (state.oldest_ready_us for state in states)),
            # Even if only some shards are paused: to resume the queue resumes them.
            paused=next((state.paused for state in states if state.paused), None),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A dispatcher or worker, as of its last report."""

    kind: str
    code: bytes
    shard: int
    #: µs since the epoch, Redis's clock.
    seen_us: int
    #: Host and process id; empty before the first report.
    name: str = ""
    version: str = ""
    #: The ROOT_URLCONF of its project, and digests of its secret keys; empty before the first report.
    project: str = ""
    project_keys: tuple[str, ...] = ()
    #: µs since the epoch, its host's clock.
    started_us: int | None = None
    #: Resident memory in bytes.
    rss: int = 0
    #: Of a worker: queues in the order it serves them (none = all), their weights (none = it has no weights), most jobs
    #: at once, running jobs by queue, start of the oldest (µs since the epoch).
    queues: tuple[str, ...] = ()
    weights: tuple[int, ...] = ()
    #: Whether it serves more queues than `queues`.
    more_queues: bool = False
    #: Whether `queues` are the items of its queue filter.
    filtered: bool = False
    slots: int = 0
    running: dict[str, int] = field(default_factory=dict)
    oldest_us: int | None = None
    #: Whether somebody requested that it takes no more jobs, and whether it does so.
    asked_quiet: bool = False
    quiet: bool = False
    #: Of a dispatcher: jobs it promoted within the last hour, and the delay that 95 % of its promotions did not exceed.
    promoted: int = 0
    lag_p95_us: int | None = None

    @property
    def busy(self) -> int:
        """The number of its running jobs."""
        return sum(self.running.values())

    def serves(self, queue: str) -> bool:
        """Return whether it is a worker that claims jobs of that queue. A quiet one claims none."""
        is_worker = self.kind == "worker" and not self.quiet
        if self.filtered and (queue_filter := _read_filter(self.queues)):
            return is_worker and queue_filter.matches(queue)
        return is_worker and (not self.queues or self.more_queues or queue in self.queues)

    def is_lost(self, now_us: int, *, lease_us: int) -> bool:
        """Return whether it has been silent for longer than a lease and 20 s: no live process is, however slow."""
        return now_us - self.seen_us > lease_us + _SILENCE_US

    @classmethod
    def read(cls, report: bytes | None, **known: Any) -> Self:
        """Read a field of `process_reports`, beside fields that are known; values of another type are left out."""
        try:
            status = json.loads(report or b"{}")
        except (ValueError, RecursionError):
            status = None
        found = _of_types(status, _STATUS)
        for name in found.keys() & {"project_keys", "queues"}:
            found[name] = tuple(map(str, found[name]))
        if "weights" in found:
            weights = tuple(each for each in found["weights"] if has_type(each, int))
            # Edited manually: nobody knows which weight is whose.
            found["weights"] = weights if len(weights) == len(found.get("queues", ())) else ()
        if "running" in found:
            found["running"] = _of_types(found["running"], dict.fromkeys(found["running"], int))
        return cls(**known, **found)


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """One shard, or all of them, at one moment."""

    #: µs since the epoch, Redis's clock.
    now_us: int
    queues: dict[str, QueueState]
    claimed: int
    dead: int
    died_last_hour: int
    newest_death_us: int | None
    processes: list[Process]
    #: Dimension (see `metrics`) -> its series as text; only those that have one.
    metrics: dict[bytes, bytes]
    #: The last week of the requested dimension by the hour, as text.
    week: bytes = b""
    #: Release -> when (µs since the epoch) a worker or dispatcher of it reported first.
    releases: dict[str, int] = field(default_factory=dict)
    #: Address of a server -> facts about it; none if they were not requested, or this user may not read them.
    servers: dict[str, ServerInfo] = field(default_factory=dict)
    #: µs by which the clock of a server is ahead of this host's, the farthest one, and the error of that measurement.
    ahead_us: int = 0
    within_us: int = 0
    #: Task -> who paused it.
    paused_tasks: dict[str, Pause] = field(default_factory=dict)
    #: Recurring schedules; those that failures paused, and those that the last dispatcher could not read. The last two
    #: are 0 if the facts of the server were not requested, or if a shard has more than 200 schedules.
    schedules: int = 0
    failing_schedules: int = 0
    unreadable_schedules: int = 0

    @cached_property
    def total(self) -> QueueState:
        """The state of all queues together."""
        return QueueState.total(list(self.queues.values()))

    def measured(self, host_us: int, within_us: int) -> Self:
        """Return it with what its server's clock is ahead of this host's, which was `host_us` at that moment."""
        return replace(self, ahead_us=self.now_us - host_us, within_us=within_us)

    def alive(self, *, lease_us: int) -> list[Process]:
        """Return the dispatchers and workers that reported recently."""
        return [each for each in self.processes if not each.is_lost(self.now_us, lease_us=lease_us)]

    def is_served(self, queue: str, *, lease_us: int) -> bool:
        """Return whether a worker that reported recently serves a queue."""
        return any(each.serves(queue) for each in self.alive(lease_us=lease_us))

    def claimed_of(self, queue: str, *, lease_us: int) -> int:
        """Return the number of a queue's running jobs by the last reports of live workers."""
        return sum(process.running.get(queue, 0) for process in self.alive(lease_us=lease_us))

    def series(self, dimension: bytes) -> MinuteSeries:
        """Return the last hour of a dimension by the minute."""
        return MinuteSeries(self.metrics.get(dimension, b""))

    def hour(self, dimension: bytes) -> Stats:
        """Return the total of a dimension's last hour."""
        return self.series(dimension).hour(self.now_us)


# Cached: a page asks for each queue whether each worker serves it.
@lru_cache(maxsize=256)
def _read_filter(texts: tuple[str, ...]) -> QueueFilter | None:
    """Return the filter of these items; None if a later release wrote them, or if they were edited manually."""
    try:
        return QueueFilter.read(texts)
    except ValueError:
        return None


def absences(snapshots: Mapping[int, Snapshot], *, lease_us: int) -> dict[tuple[str, str], list[int]]:
    """Return the live processes that do not serve all of these shards: kind and name -> those that they leave out."""
    serving = {
        shard: {(each.kind, each.name) for each in snapshot.alive(lease_us=lease_us)}
        for shard, snapshot in snapshots.items()
    }
    known = sorted(set[tuple[str, str]]().union(*serving.values()))
    found = {process: [shard for shard, those in serving.items() if process not in those] for process in known}
    return {process: shards for process, shards in found.items() if shards}


def combined(snapshots: Sequence[Snapshot]) -> Snapshot:
    """Return one snapshot of several shards."""
    if len(snapshots) == 1:
        return snapshots[0]
    names = sorted({name for each in snapshots for name in each.queues})
    dimensions = {dimension for each in snapshots for dimension in each.metrics}
    return Snapshot(
        now_us=max(each.now_us for each in snapshots),
        queues={
            name: QueueState.total([each.queues[name] for each in snapshots if name in each.queues]) for name in names
        },
        claimed=sum(each.claimed for each in snapshots),
        dead=sum(each.dead for each in snapshots),
        died_last_hour=sum(each.died_last_hour for each in snapshots),
        newest_death_us=_of(max, (each.newest_death_us for each in snapshots)),
        processes=[process for each in snapshots for process in each.processes],
        # Lines of the same minute add up.
        metrics={
            dimension: b"".join(each.metrics.get(dimension, b"") for each in snapshots) for dimension in dimensions
        },
        week=b"".join(each.week for each in snapshots),
        releases=_first([each.releases for each in snapshots]),
        servers={address: server for each in snapshots for address, server in each.servers.items()},
        **_farthest(snapshots),
        # Even if only some shards have it: to resume the task resumes it in all.
        paused_tasks={name: pause for each in snapshots for name, pause in each.paused_tasks.items()},
        schedules=sum(each.schedules for each in snapshots),
        failing_schedules=sum(each.failing_schedules for each in snapshots),
        unreadable_schedules=sum(each.unreadable_schedules for each in snapshots),
    )


def _farthest(snapshots: Sequence[Snapshot]) -> dict[str, int]:
    """Return the measurement of the clock that differs most from this host's."""
    found = max(snapshots, key=lambda each: abs(each.ahead_us) - each.within_us)
    return {"ahead_us": found.ahead_us, "within_us": found.within_us}


def read_releases(fields: Iterable[tuple[bytes, bytes]]) -> dict[str, int]:
    """Read the fields of `releases`; those that no release wrote are left out."""
    return {name.decode("utf-8", "replace"): int(us) for name, us in fields if _MOMENT.fullmatch(us)}


def _first(parts: Sequence[dict[str, int]]) -> dict[str, int]:
    """Return release -> when it reported first, to any shard."""
    names = {name for part in parts for name in part}
    return {name: min(part[name] for part in parts if name in part) for name in names}


def read_paused_tasks(values: Iterable[bytes]) -> dict[str, Pause]:
    """Read the values of `paused_tasks`; those that no release wrote are left out."""
    split = (value.partition(b"\xff") for value in values)
    return {_task_name(task): pause for by, _, task in split if task and (pause := Pause.read(by))}


def _task_name(stored: bytes) -> str:
    try:
        return stored.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        # Somebody edited it.
        return stored.decode("utf-8", "backslashreplace")


def _of(choose: Callable[[list[int]], int], moments: Iterable[int | None]) -> int | None:
    known = [moment for moment in moments if moment is not None]
    return choose(known) if known else None


def _of_types(status: Any, types: Mapping[str, type]) -> dict[str, Any]:
    if not isinstance(status, dict):
        return {}
    return {name: status[name] for name, kind in types.items() if has_type(status.get(name), kind)}
