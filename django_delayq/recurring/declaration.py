"""Declaration: a recurring schedule that the code or the settings of a project name."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, fields
from datetime import datetime, timedelta
from typing import Any

from django_delayq.exceptions import InvalidSchedule
from django_delayq.recurring.schedule import CatchUp, Overlap, make_schedule

#: The name of the schedule of `@delayed_task(every=…)` and `@delayed_task(cron=…)`.
DEFAULT_NAME = "default"


@dataclass(frozen=True, slots=True)
class Recurring:
    """A recurring schedule of a task, for `recurring=` of its declaration; the options are those of `set()`.

    `set()` is the method of `task.schedules`. Raises `InvalidSchedule` and what else `set()` raises for wrong options,
    but not if its end has passed: the code of a campaign may outlast the campaign.
    """

    #: Its name among the schedules of its task, 1 to 200 bytes.
    name: str
    _: KW_ONLY
    every: float | timedelta | None = None
    cron: str | None = None
    tz: Any = None
    # Not in the repr: a task may hide its arguments.
    args: Sequence[Any] = field(default=(), repr=False)
    kwargs: Mapping[str, Any] | None = field(default=None, repr=False)
    start: datetime | None = None
    end: datetime | None = None
    jitter: float | timedelta | None = None
    overlap: Overlap = "skip"
    catch_up: CatchUp = "last"
    window: float | timedelta | None = None
    pause_after: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.args, (list, tuple)) or not isinstance(self.kwargs, Mapping | None):
            raise InvalidSchedule(f"the schedule {self.name!r} needs a list as args and a dict as kwargs")
        options = {name: value for name, value in self.options.items() if name not in ("args", "kwargs")}
        if options["cron"] is not None and options["tz"] is None:
            # TIME_ZONE decides later; settings may not be read while a module of tasks is imported.
            options["tz"] = "UTC"
        # As of the epoch: an end that has passed is no error.
        make_schedule(now_us=0, **options)

    @property
    def options(self) -> dict[str, Any]:
        """The name and the options, as `set()` takes them."""
        return {each.name: getattr(self, each.name) for each in fields(self)}


#: The options of a schedule, without its name.
SCHEDULE_OPTIONS = tuple(each.name for each in fields(Recurring) if each.name != "name")


def read_recurring(
    *, every: Any = None, cron: Any = None, tz: Any = None, recurring: Iterable[Recurring] = ()
) -> tuple[Recurring, ...]:
    """Return the schedules of the options of a task: those of `recurring`, and that of `every` or `cron`.

    Raises `InvalidSchedule`, also for two of one name.
    """
    if isinstance(recurring, Recurring | str | Mapping) or not isinstance(recurring, Iterable):
        raise InvalidSchedule(
            f"recurring must be a list such as [Recurring('morning', cron='0 9 * * *')], got {recurring!r:.80}"
        )
    found = list(recurring)
    for each in found:
        if not isinstance(each, Recurring):
            raise InvalidSchedule(f"recurring must be a list of Recurring('name', …), got {each!r:.80} in it")
    if (every, cron, tz) != (None, None, None):
        found.insert(0, Recurring(DEFAULT_NAME, every=every, cron=cron, tz=tz))
    names = [each.name for each in found]
    for name in names:
        if names.count(name) > 1:
            why = ", which every= and cron= use" if name == DEFAULT_NAME and found[0].name == name else ""
            raise InvalidSchedule(f"the task has two schedules {name!r}{why}; give each its own name")
    return tuple(found)
