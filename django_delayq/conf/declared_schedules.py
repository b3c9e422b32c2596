"""Declared schedules: the recurring schedules of DELAYQ['RECURRING'], for tasks of apps of others."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured

from django_delayq.conf.named_options import NamedOptions, NamedOptionsValidator
from django_delayq.recurring.declaration import SCHEDULE_OPTIONS, Recurring


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredSchedule:
    """One schedule that the settings declare."""

    #: The registered name of the task, or one of its aliases.
    task: str
    recurring: Recurring


#: The schedules of a setting by their names.
DeclaredSchedules = NamedOptions[DeclaredSchedule]
NO_RECURRING = DeclaredSchedules()


def _read(name: str, label: str, options: Mapping[str, Any]) -> DeclaredSchedule:
    task = options.get("task")
    if not isinstance(task, str) or not task:
        raise ValueError(f"{label}['task'] must be the name of a task, such as 'shop.tasks.report', got {task!r:.80}")
    try:
        recurring = Recurring(name, **{option: value for option, value in options.items() if option != "task"})
    except (TypeError, ValueError, ImproperlyConfigured) as error:
        raise ValueError(f"{label}: {error}") from error
    return DeclaredSchedule(task=task, recurring=recurring)


#: The check of the whole setting.
RECURRING = NamedOptionsValidator("names of recurring schedules", ("task", *SCHEDULE_OPTIONS), _read)
