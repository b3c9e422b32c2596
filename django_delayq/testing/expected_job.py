"""Expected job: what an assertion expects to be enqueued, and how it differs from an enqueued job."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django_delayq.clock import duration_us, moment, moment_us
from django_delayq.task.task import Task
from django_delayq.testing.job_views import EnqueuedJob, call, shown, span

#: Largest difference between a due time and the expected one.
_TOLERANCE = timedelta(seconds=1)
#: Most jobs in an error message.
_SHOWN = 10


@dataclass(frozen=True, kw_only=True)
class ExpectedJob:
    """A job as an assertion expects it; None matches anything."""

    task: str
    args: Sequence[Any] | None = None
    kwargs: Mapping[str, Any] | None = None
    due_in: timedelta | None = None
    due: datetime | None = None
    queue: str | None = None
    priority: int | None = None
    key: str | None = None
    #: How long the test has run: a job due in ten minutes may be that much nearer.
    took: timedelta = timedelta(0)

    @classmethod
    def of(cls, task: Any, *, due_in: Any = None, due: Any = None, took: timedelta, **wanted: Any) -> "ExpectedJob":
        """Return the expected job given the arguments of an assertion; `due_in` is in seconds or a timedelta."""
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
        """Return a sentence for each difference from a job of this task; none if it matches."""
        differences = []
        args, kwargs = _plain(self.args), _plain(self.kwargs)
        if args is not None and args != job.args:
            wanted, found = shown(self.task, args, {})[0], shown(self.task, job.args, {})[0]
            differences.append(f"args: expected {wanted!r}, got {found!r}")
        if kwargs is not None and kwargs != job.kwargs:
            hidden, there = shown(self.task, [], kwargs)[1], shown(self.task, [], job.kwargs)[1]
            differences.append(f"kwargs: expected {hidden!r}, got {there!r}")
        for name in ("queue", "priority", "key"):
            if getattr(self, name) not in (None, getattr(job, name)):
                differences.append(f"{name}: expected {getattr(self, name)!r}, got {getattr(job, name)!r}")
        left = max(job.due_in or timedelta(0), timedelta(0))
        if self.due_in is not None and not self.due_in - self.took - _TOLERANCE <= left <= self.due_in + _TOLERANCE:
            differences.append(f"due_in: expected {span(self.due_in)}, got {span(left)}")
        if self.due is not None and (job.due is None or abs(job.due - self.due) > _TOLERANCE):
            differences.append(f"due: expected {self.due}, got {job.due}")
        return differences

    def __str__(self) -> str:
        words = [self.task if self.args is None and self.kwargs is None else self._call]
        words += [f"due in {span(self.due_in)}"] if self.due_in is not None else []
        words += [f"due at {self.due}"] if self.due is not None else []
        words += [f"in queue {self.queue!r}"] if self.queue is not None else []
        words += [f"with priority {self.priority}"] if self.priority is not None else []
        words += [f"with key {self.key!r}"] if self.key is not None else []
        return " ".join(words)

    def describe_enqueued(self, jobs: Sequence[EnqueuedJob]) -> str:
        """Return the lines of an error message about what is enqueued instead, the nearest job first."""
        if not jobs:
            return "Nothing is enqueued."
        same = sorted((job for job in jobs if job.task == self.task), key=lambda job: len(self.mismatches(job)))
        if same:
            nearest = "\n    ".join(["Nearest:", repr(same[0]), *self.mismatches(same[0])])
            rest = [job for job in jobs if job is not same[0]]
            return f"{nearest}\n{_listed('Also enqueued:', rest)}" if rest else nearest
        close = difflib.get_close_matches(self.task, [job.task for job in jobs], n=1, cutoff=0.0)
        first = [job for job in jobs if job.task in close]
        return _listed("No job of this task. Enqueued:", [*first, *(job for job in jobs if job not in first)])

    @property
    def _call(self) -> str:
        return call(self.task, list(self.args or []), dict(self.kwargs or {}))


def name_of(task: Any) -> str:
    """Return the name of a task in its jobs, given a task of either kind or the name itself."""
    if isinstance(task, str):
        return task
    name = task.name if isinstance(task, Task) else getattr(task, "module_path", None)
    if not isinstance(name, str):
        raise TypeError(f"task must be a task or its name, got {type(task).__name__}")
    return name


def _plain(value: Any) -> Any:
    """Return arguments as they are stored, with lists instead of tuples."""
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return value


def _listed(head: str, jobs: Sequence[EnqueuedJob]) -> str:
    more = [f"… and {len(jobs) - _SHOWN} more"] if len(jobs) > _SHOWN else []
    return "\n    ".join([head, *map(repr, jobs[:_SHOWN]), *more])
