"""Schedule filter: which recurring schedules an operator means, by task, name and state.

The admin and `delayq_schedules` use it.
"""

from dataclasses import dataclass

from django_delayq.store.queries.job_filter import names_match
from django_delayq.store.schedules.stored_schedule import ScheduleState, StoredSchedule


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleFilter:
    """What a schedule must have. Empty texts match every one; only the state matches those that cannot be read."""

    #: A task: its name, the last parts of its name, or "=" and its exact name.
    task: str = ""
    #: How its own name begins.
    prefix: str = ""
    state: ScheduleState | None = None

    @property
    def is_set(self) -> bool:
        """Whether it excludes any schedule."""
        return bool(self.task or self.prefix or self.state)

    def matches(self, stored: StoredSchedule, *, now_us: int) -> bool:
        """Return whether a schedule has all of it at a moment, µs since the epoch."""
        if self.task or self.prefix:
            definition = stored.definition
            if definition is None or not definition.schedule.name.startswith(self.prefix):
                return False
            if self.task and not names_match(definition.job.task, self.task):
                return False
        return self.state is None or stored.state(now_us) is self.state
