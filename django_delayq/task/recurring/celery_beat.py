"""Celery beat: copies the tables of django-celery-beat to recurring schedules of tasks of this package.

The tables are read by the models of that package, which stays installed until the copy is made. Nothing is written to
them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, NamedTuple

from django.apps import apps
from django.core.exceptions import ImproperlyConfigured
from django.utils import timezone
from django.views.decorators.debug import sensitive_variables

from django_delayq import runtime
from django_delayq.clock import estimated_us, moment_us
from django_delayq.exceptions import DelayQError
from django_delayq.task import outbox, registry
from django_delayq.task.task import Task

_APP = "django_celery_beat"
#: The tables of rules; a row of PeriodicTask names a row of one of them.
_KINDS = ("interval", "crontab", "solar", "clocked")
#: Options of a row for the message that beat sends, which have no counterpart or another meaning here.
_OPTIONS = ("priority", "exchange", "routing_key")
#: The days of a month on which `mon#1` may be, `mon#2` and so on.
_WEEKS = [set(range(first, min(first + 7, 32))) for first in range(1, 32, 7)]


class Copied(NamedTuple):
    """A row that has a schedule now, or with `dry_run` would have one."""

    #: Name of the row, and of the schedule.
    name: str
    #: Name of the task here.
    task: str
    #: The rule of the schedule; "at …" for a clocked row, which is a delayed job.
    rule: str
    #: What differs from the row.
    notes: list[str]

    def __str__(self) -> str:
        notes = f" ({'; '.join(self.notes)})" if self.notes else ""
        return f"copied {self.name!r} to {self.task}: {self.rule}{notes}"


class Skipped(NamedTuple):
    """A row that has no schedule."""

    name: str
    #: Name of the task in Celery.
    task: str
    reason: str

    def __str__(self) -> str:
        return f"skipped {self.name!r} of {self.task}: {self.reason}"


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What became of each row, by their names; `str()` has a line for each."""

    copied: list[Copied] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join(map(str, [*self.copied, *self.skipped]))


def copy_periodic_tasks(tasks: Mapping[str, Any] | None = None, *, dry_run: bool = False) -> CopyReport:
    """Copy the rows of django-celery-beat to schedules of the same names, and return what became of each.

    The name of a Celery task is that of the task here, or an alias of it; `tasks` maps other names to tasks or to their
    names. A row that is not enabled becomes a paused schedule. A clocked row becomes a delayed job. With `dry_run`
    nothing is stored. Otherwise each schedule is stored at once, even inside a transaction. Safe to repeat: a schedule
    is replaced if its row has changed, and stays paused if somebody paused it. A round trip or two for each row.

    Raises ImproperlyConfigured if `django_celery_beat` is not in INSTALLED_APPS, and `StoreError`.
    """
    if not apps.is_installed(_APP):
        raise ImproperlyConfigured(f"copy_periodic_tasks() reads the tables of {_APP}; add it to INSTALLED_APPS")
    report, given = CopyReport(), tasks or {}
    rows = apps.get_model(_APP, "PeriodicTask")._default_manager.select_related(*_KINDS).order_by("name")
    for row in rows.iterator():
        task = _task_of(row.task, given)
        if task is None:
            reason = f"no task is registered as {given.get(row.task, row.task)!r}; give its task in tasks="
            report.skipped.append(Skipped(row.name, row.task, reason))
            continue
        copy = _copy_job if row.clocked else _copy_schedule
        try:
            rule = copy(row, replace(task, on_commit=False), dry_run)
        except _Unsupported as error:
            report.skipped.append(Skipped(row.name, row.task, str(error)))
        else:
            report.copied.append(Copied(row.name, task.name, rule, _notes(row, task)))
    return report


class _Unsupported(Exception):
    """A row cannot be copied; the message is the reason."""


def _task_of(name: str, tasks: Mapping[str, Any]) -> Task[..., Any] | None:
    """Return the task of a name in Celery; None if there is none. Raises TypeError for a value that is no task."""
    found = tasks.get(name, name)
    if isinstance(found, str):
        found = registry.find(found)
    if not isinstance(found, Task | None):
        raise TypeError(f"tasks[{name!r}] must be a task of @delayed_task or a registered name, got {found!r:.80}")
    return found


@sensitive_variables()
def _copy_schedule(row: Any, task: Task[..., Any], dry_run: bool) -> str:
    """Set the schedule of a row; return its rule."""
    if row.one_off:
        raise _Unsupported("it runs only once (one_off); enqueue a job with at=")
    args, kwargs = _arguments(row)
    options = {"name": row.name, "args": args, "kwargs": kwargs, **_times(row)}
    try:
        definition = task.schedules.define(options)
    except (DelayQError, TypeError, ValueError) as error:
        raise _Unsupported(str(error)) from error
    found = task.schedules.get(row.name)
    if found is not None and found.is_declared:
        raise _Unsupported("the code declares a schedule of this name, which stays as it is")
    if not dry_run:
        task.schedules.set_many([options])
        if not row.enabled:
            task.schedules.pause(row.name)
    return definition.schedule.rule.text


@sensitive_variables()
def _copy_job(row: Any, task: Task[..., Any], dry_run: bool) -> str:
    """Enqueue the job of a clocked row; return when it is due."""
    due = _aware(row.clocked.clocked_time)
    if not row.enabled:
        raise _Unsupported("it is not enabled, and a job cannot be paused")
    if moment_us(due, name="clocked_time") <= estimated_us(runtime.current().clock):
        raise _Unsupported(f"its time, {due.isoformat()}, has passed")
    args, kwargs = _arguments(row)
    try:
        # The key makes a repeated copy replace the job instead of enqueueing another one.
        once = task.using(at=due, key=f"celery-beat {row.name}", unique="replace", expires=row.expire_seconds or None)
        job = once._make(args, kwargs)
    except (DelayQError, TypeError, ValueError) as error:
        raise _Unsupported(str(error)) from error
    if not dry_run:
        outbox.accept([job])
    return f"at {due.isoformat()}"


def _arguments(row: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the arguments of a row."""
    args, kwargs = _read_json(row.args or "[]", "args"), _read_json(row.kwargs or "{}", "kwargs")
    if not isinstance(args, list) or not isinstance(kwargs, dict):
        raise _Unsupported("its args must be a JSON list, and its kwargs a JSON object")
    return args, kwargs


def _read_json(text: str, name: str) -> Any:
    try:
        return json.loads(text, object_hook=_plain)
    except ValueError as error:
        raise _Unsupported(f"its {name} cannot be read: {error}") from error


def _plain(value: dict[str, Any]) -> dict[str, Any]:
    """Return an object of JSON; Celery writes values that JSON lacks, such as datetimes, as objects of a type."""
    if value.keys() >= {"__type__", "__value__"}:
        raise ValueError(f"they have a value of the type {value['__type__']!r:.80}, which is no JSON")
    return value


def _times(row: Any) -> dict[str, Any]:
    """Return the options of a schedule for the times of its jobs."""
    options: dict[str, Any] = {"start": row.start_time and _aware(row.start_time)}
    if row.interval:
        options["every"] = timedelta(**{row.interval.period: row.interval.every})
        options["start"] = _aware(_anchor(row))
    elif row.crontab:
        options |= cron_options(row.crontab)
    else:
        raise _Unsupported("solar schedules are not supported" if row.solar else "it has no schedule")
    if row.expires:
        options["end"] = _aware(row.expires)
    if row.expire_seconds:
        options |= {"catch_up": "none", "window": row.expire_seconds}
    return options


def _anchor(row: Any) -> Any:
    """Return the moment from which the interval of a row counts. Beat counts from the last run."""
    if row.start_time and (row.last_run_at is None or row.start_time > row.last_run_at):
        return row.start_time
    return row.last_run_at or row.date_changed


def cron_options(row: Any) -> dict[str, str]:
    """Return `cron` and `tz` of a schedule that has the occurrences of a row of CrontabSchedule.

    Celery runs a job on days that match both the day of the month and the day of the week. In cron fields either is
    enough, unless one of them begins with `*`.
    """
    try:
        crontab = row.schedule
    except Exception as error:
        # The tables accept fields that Celery cannot read, for which it raises classes of its own.
        raise _Unsupported(f"Celery cannot read its crontab: {error}") from error
    days, weekdays = crontab.day_of_month, crontab.day_of_week
    fields = [
        _field(row.minute, crontab.minute, range(60)),
        _field(row.hour, crontab.hour, range(24)),
        _field(row.day_of_month, days, range(1, 32)),
        _field(row.month_of_year, crontab.month_of_year, range(1, 13)),
        _field(row.day_of_week, weekdays, range(7)),
    ]
    if not fields[2].startswith("*") and not fields[4].startswith("*"):
        weeks = [number for number, week in enumerate(_WEEKS, 1) if week <= days]
        if days != {day for number in weeks for day in _WEEKS[number - 1]}:
            raise _Unsupported(
                "Celery runs it on days that match both the day of the month and the day of the week; leave one of "
                "them out, and let the task return on other days"
            )
        fields[2], fields[4] = "*", ",".join(f"{each}#{number}" for number in weeks for each in sorted(weekdays))
    return {"cron": " ".join(fields), "tz": str(crontab.tz)}


def _field(text: str, numbers: set[int], every: range) -> str:
    """Return the cron field for what Celery reads in a text.

    It begins with `*` if the text does: that decides what happens when clocks change.
    """
    if numbers == set(every):
        return "*"
    text = text.replace(" ", "")
    if text.startswith("*/") and text[2:].isdecimal():
        return text
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _notes(row: Any, task: Task[..., Any]) -> list[str]:
    """Return what a copy lacks of its row."""
    notes = [] if row.enabled else ["paused, because it is not enabled"]
    if row.queue and row.queue != task.queue:
        notes.append(f"its jobs go to the queue {task.queue!r} of the task, not to {row.queue!r}")
    lost = [name for name in _OPTIONS if getattr(row, name) not in (None, "")]
    if row.headers not in (None, "", "{}"):
        lost.append("headers")
    if lost:
        notes.append(f"without its {', '.join(lost)}")
    return notes


def _aware(moment: Any) -> Any:
    # With USE_TZ = False, databases have naive moments.
    return timezone.make_aware(moment) if timezone.is_naive(moment) else moment
