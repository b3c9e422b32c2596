"""Wish: what an assertion wants to find enqueued, and how a job that waits falls short of it."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django_delayq.clock import duration_us, moment, moment_us
from django_delayq.task.task import Task
from django_delayq.testing.job_views import EnqueuedJob, call, shown, span

#: How far a due time may be from the wanted one.
_CLOSE = timedelta(seconds=1)
#: Jobs told of in an error message.
_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class ExpectedJob:
    """A job somebody wants; what is None may be anything."""

    task: str
    args: Sequence[Any] | None = None
    kwargs: Mapping[str, Any] | None = None
    due_in: timedelta | None = None
    due: datetime | None = None
    queue: str | None = None
    priority: int | None = None
    key: str | None = None
    #: How long the test has taken so far: a job asked for in ten minutes may be nearer by as much.
    took: timedelta = timedelta(0)

    @classmethod
    def of(cls, task: Any, *, due_in: Any = None, due: Any = None, took: timedelta, **wanted: Any) -> "ExpectedJob":
        """Make one of what a test says: `due_in` in seconds or as a timedelta, `due` as an aware datetime."""
        if isinstance(wanted["args"], str) or not isinstance(wanted["args"], Sequence | None):
            raise TypeError(f"args must be a list or tuple of positional arguments, got {wanted['args']!r:.80}")
        if not isinstance(wanted["kwargs"], Mapping | None):
            raise TypeError(f"kwargs must be a dict, got {wanted['kwargs']!r:.80}")
        return cls(
            task=name_of(task),
            due_in=None if due_in is None else timedelta(microseconds=duration_us(due_in, name="due_in")),
            due=None if due is None else moment(moment_us(due, name="due")),
            took=took,
            **wanted,
        )

    def mismatches(self, job: EnqueuedJob) -> list[str]:
        """Return what is wrong with a job of this task; nothing where it is the wanted one."""
        faults = []
        args, kwargs = _plain(self.args), _plain(self.kwargs)
        if args is not None and args != job.args:
            wanted, found = shown(self.task, args, {})[0], shown(self.task, job.args, {})[0]
            faults.append(f"args: wanted {wanted!r}, it has {found!r}")
        if kwargs is not None and kwargs != job.kwargs:
            hidden, there = shown(self.task, [], kwargs)[1], shown(self.task, [], job.kwargs)[1]
            faults.append(f"kwargs: wanted {hidden!r}, it has {there!r}")
        for name in ("queue", "priority", "key"):
            if getattr(self, name) not in (None, getattr(job, name)):
                faults.append(f"{name}: wanted {getattr(self, name)!r}, it has {getattr(job, name)!r}")
        left = max(job.due_in or timedelta(0), timedelta(0))
        if self.due_in is not None and not self.due_in - self.took - _CLOSE <= left <= self.due_in + _CLOSE:
            faults.append(f"due_in: wanted {span(self.due_in)}, it is due in {span(left)}")
        if self.due is not None and (job.due is None or abs(job.due - self.due) > _CLOSE):
            faults.append(f"due: wanted {self.due}, it is due at {job.due}")
        return faults

    def __str__(self) -> str:
        words = [self.task if self.args is None and self.kwargs is None else self._call]
        words += [f"due in {span(self.due_in)}"] if self.due_in is not None else []
        words += [f"due at {self.due}"] if self.due is not None else []
        words += [f"in queue {self.queue!r}"] if self.queue is not None else []
        words += [f"with priority {self.priority}"] if self.priority is not None else []
        words += [f"with key {self.key!r}"] if self.key is not None else []
        return " ".join(words)

    def told_short(self, jobs: Sequence[EnqueuedJob]) -> str:
        """Return an error message's lines about what is enqueued instead, the nearest first."""
        if not jobs:
            return "Nothing is enqueued."
        same = sorted((job for job in jobs if job.task == self.task), key=lambda job: len(self.mismatches(job)))
        if same:
            nearest = "\n    ".join(["Nearest:", repr(same[0]), *self.mismatches(same[0])])
            rest = [job for job in jobs if job is not same[0]]
            return f"{nearest}\n{_listed('Also enqueued:', rest)}" if rest else nearest
        close = difflib.get_close_matches(self.task, [job.task for job in jobs], n=1, cutoff=0.0)
        first = [job for job in jobs if job.task in close]
        return _listed("No job of this task; enqueued is:", [*first, *(job for job in jobs if job not in first)])

    @property
    def _call(self) -> str:
        return call(self.task, list(self.args or []), dict(self.kwargs or {}))


def name_of(task: Any) -> str:
    """Return the name that jobs call a task by: of ours, of Django's, or as it is given."""
    if isinstance(task, str):
        return task
    name = task.name if isinstance(task, Task) else getattr(task, "module_path", None)
    if not isinstance(name, str):
        raise TypeError(f"task must be a task or its name, got {type(task).__name__}")
    return name


def _plain(value: Any) -> Any:
    """Return arguments as they are stored: tuples are lists there."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return value


def _listed(head: str, jobs: Sequence[EnqueuedJob]) -> str:
    more = [f"… and {len(jobs) - _SHOWN} more"] if len(jobs) > _SHOWN else []
    return "\n    ".join([head, *map(repr, jobs[:_SHOWN]), *more])
