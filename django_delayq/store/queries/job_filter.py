"""Job filter: which rows of a place an operator means, by queue, task, error, tenant and due time.

The admin and `jobs()` use it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django_delayq.job.errors.attempt_error import AttemptError
from django_delayq.store.queries.job_pages import JobRow

Match = Callable[[JobRow], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """What a row must have. Empty texts match every row."""

    queue: str = ""
    #: A task: its name, the last parts of its name, or "=" and its exact name. `error` names a class in the same ways.
    task: str = ""
    error: str = ""
    tenant: str = ""
    #: Before this moment it is due (µs since the epoch).
    due_before_us: int | None = None

    def match(self, *more: Match) -> Match | None:
        """Return the test for a row, which it and all of `more` must pass; None if all rows match."""
        tests: Sequence[Match] = [
            *([self._has_queue] if self.queue else []),
            *([self._has_task] if self.task else []),
            *([self._has_error] if self.error else []),
            *([self._has_tenant] if self.tenant else []),
            *([self._is_due] if self.due_before_us is not None else []),
            *more,
        ]
        return (lambda row: all(test(row) for test in tests)) if tests else None

    def _has_queue(self, row: JobRow) -> bool:
        return row.queue == self.queue

    def _has_task(self, row: JobRow) -> bool:
        return names_match(row.task, self.task)

    def _has_error(self, row: JobRow) -> bool:
        # `handle.error.class_path` names the module of built-in classes.
        return names_match(AttemptError.name_of_last(row.last_attempt), self.error.removeprefix("builtins."))

    def _has_tenant(self, row: JobRow) -> bool:
        return row.job is not None and row.job.tenant == self.tenant

    def _is_due(self, row: JobRow) -> bool:
        return row.due_us is not None and row.due_us < (self.due_before_us or 0)


def names_match(name: str, wanted: str) -> bool:
    """Return whether a dotted name is the wanted one or ends so; with "=" before it, whether it is exactly that."""
    if wanted.startswith("="):
        # Groups use the exact name, because other names may end alike.
        return name == wanted[1:]
    return name == wanted or name.endswith(f".{wanted}")
