"""Snapshot: one moment's picture of what waits, runs and died, and of who is at work."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from django_delayq.metrics import NO_HISTORY, MinuteSeries, Stats
from django_delayq.store.client.server_info import ServerInfo

#: No number of ours is as large.
_LARGEST = 2**63
#: Whoever lives is seen several times within it: by its steps, and by its reports.
_SILENCE_US = 20_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause:
    """Who paused a queue, and when (µs since the epoch)."""

    by: str
    at_us: int

    @classmethod
    def read(cls, record: bytes | None) -> Self | None:
        """Read a field of `paused`."""
        if record is None:
            return None
        return cls(by=record[8:].decode(errors="replace"), at_us=int.from_bytes(record[:8]))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """How one queue stands."""

    scheduled: int = 0
    ready: int = 0
    #: Scheduled jobs whose time has come, and when the first of them was due.
    overdue: int = 0
    oldest_overdue_us: int | None = None
    #: When the next job that is not due yet will be.
    next_due_us: int | None = None
    #: The task of that one; empty where there is none, or its body cannot be read.
    next_task: str = ""
    #: When the job that will be taken first was due.
    oldest_ready_us: int | None = None
    paused: Pause | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A dispatcher or worker, as it told of itself last."""

    kind: str
    code: bytes
    shard: int
    #: µs since the epoch, Redis's clock.
    seen_us: int
    #: Host and process id; empty for one that has not told yet.
    name: str = ""
    version: str = ""
    #: µs since the epoch, its host's clock.
    started_us: int | None = None
    #: Bytes of memory it has in RAM.
    rss: int = 0
    #: A worker's: queues in the order it serves them (none: all), jobs at once, jobs by queue, start of the oldest.
    queues: tuple[str, ...] = ()
    #: Whether it serves more than it named.
    more_queues: bool = False
    slots: int = 0
    running: dict[str, int] = field(default_factory=dict)
    oldest_us: int | None = None
    #: Whether it was asked to take no more jobs, and whether it has heard.
    asked_quiet: bool = False
    quiet: bool = False
    #: A dispatcher's: jobs it promoted within the last hour, and the lateness that 95 % of its steps kept within.
    moved_hour: int = 0
    lag_p95_us: int | None = None

    @property
    def busy(self) -> int:
        """Jobs it holds."""
        return sum(self.running.values())

    def serves(self, queue: str) -> bool:
        """Whether it is a worker of that queue."""
        return self.kind == "worker" and (not self.queues or self.more_queues or queue in self.queues)

    def is_lost(self, now_us: int, *, lease_us: int) -> bool:
        """Whether it was silent for longer than any that lives, however slow: a lease and 20 s."""
        return now_us - self.seen_us > lease_us + _SILENCE_US

    def asked(self, quiet: bool) -> Self:
        """Return it with what was asked of it."""
        return replace(self, asked_quiet=quiet) if quiet else self

    @classmethod
    def read(cls, said: bytes | None, *, kind: str, code: bytes, shard: int, seen_us: int) -> Self:
        """Read a field of `process_reports`; what is not as it should be there is left out."""
        try:
            told = json.loads(said or b"{}")
        except (ValueError, RecursionError):
            told = {}
        told = told if isinstance(told, dict) else {}
        queues, running = told.get("queues"), told.get("busy")
        return cls(
            kind=kind,
            code=code,
            shard=shard,
            seen_us=seen_us,
            name=_told(told, "name", str) or "",
            version=_told(told, "version", str) or "",
            started_us=_told(told, "started_us", int),
            rss=_told(told, "rss", int) or 0,
            queues=tuple(map(str, queues)) if isinstance(queues, list) else (),
            more_queues=bool(told.get("more_queues")),
            slots=_told(told, "slots", int) or 0,
            running={str(key): n for key in running if (n := _told(running, key, int))}
            if isinstance(running, dict)
            else {},
            oldest_us=_told(told, "oldest_us", int),
            quiet=bool(told.get("quiet")),
            moved_hour=_told(told, "moved", int) or 0,
            lag_p95_us=_told(told, "lag_p95_us", int),
        )


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """How one shard, or all of them, stand."""

    #: µs since the epoch, Redis's clock.
    now_us: int
    queues: dict[str, QueueState]
    claimed: int
    dead: int
    died_last_hour: int
    newest_death_us: int | None
    processes: list[Process]
    #: Scope (see `tally`) -> its last hour.
    history: dict[bytes, MinuteSeries]
    #: What the server says of itself; None where it was not asked, or does not tell.
    server: ServerInfo | None = None

    @property
    def scheduled(self) -> int:
        """Jobs that wait for their time."""
        return sum(queue.scheduled for queue in self.queues.values())

    @property
    def ready(self) -> int:
        """Jobs that wait for a worker."""
        return sum(queue.ready for queue in self.queues.values())

    @property
    def overdue(self) -> int:
        """Scheduled jobs whose time has come."""
        return sum(queue.overdue for queue in self.queues.values())

    @property
    def oldest_overdue_us(self) -> int | None:
        """When the job that is overdue for longest was due, or None where none is."""
        return _of(min, (queue.oldest_overdue_us for queue in self.queues.values()))

    def claimed_of(self, queue: str) -> int:
        """Return how many jobs of a queue run, as workers told last."""
        return sum(process.running.get(queue, 0) for process in self.processes)

    def figures(self, scope: bytes) -> Stats:
        """Return the last hour of a scope, added up."""
        return self.history.get(scope, NO_HISTORY).last(self.now_us)


def combined(snapshots: Sequence[Snapshot]) -> Snapshot:
    """Return the picture of several shards together."""
    if len(snapshots) == 1:
        return snapshots[0]
    names = sorted({name for each in snapshots for name in each.queues})
    scopes = {scope for each in snapshots for scope in each.history}
    return Snapshot(
        now_us=max(each.now_us for each in snapshots),
        queues={name: _queue([each.queues[name] for each in snapshots if name in each.queues]) for name in names},
        claimed=sum(each.claimed for each in snapshots),
        dead=sum(each.dead for each in snapshots),
        died_last_hour=sum(each.died_last_hour for each in snapshots),
        newest_death_us=_of(max, (each.newest_death_us for each in snapshots)),
        server=snapshots[0].server,
        processes=[process for each in snapshots for process in each.processes],
        history={
            scope: MinuteSeries.added([each.history[scope] for each in snapshots if scope in each.history])
            for scope in scopes
        },
    )


def _queue(states: Sequence[QueueState]) -> QueueState:
    return QueueState(
        scheduled=sum(state.scheduled for state in states),
        ready=sum(state.ready for state in states),
        overdue=sum(state.overdue for state in states),
        oldest_overdue_us=_of(min, (state.oldest_overdue_us for state in states)),
        next_due_us=_of(min, (state.next_due_us for state in states)),
        next_task=next((state.next_task for state in states if state.next_task), ""),
        oldest_ready_us=_of(min, (state.oldest_ready_us for state in states)),
        # Also where only some shards are: to resume it mends that.
        paused=next((state.paused for state in states if state.paused), None),
    )


def _of(choose: Any, moments: Any) -> int | None:
    known = [moment for moment in moments if moment is not None]
    return choose(known) if known else None


def _told(told: dict[str, Any], name: str, kind: type) -> Any:
    value: Any = told.get(name)
    if kind is int and type(value) is int:
        return value if -_LARGEST <= value <= _LARGEST else None
    return value if type(value) is kind else None
