"""Job filter: which rows of a place an operator means, by queue, task, error and due time.

The admin and `jobs()` use it.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.outcome import OutcomeKind
from django_delayq.job.result import JobError
from django_delayq.store.queries.job_pages import JobRow

Match = Callable[[JobRow], bool]
#: The end of a traceback: `module.Class: message`.
_LAST_LINE = re.compile(r"([A-Za-z_][\w.]{0,199})(?:: (.*))?")
#: Endings that are the exception of a task. A worker that cannot run a job has exceptions of its own.
_RAISED = (
    OutcomeKind.FAILED,
    OutcomeKind.RESULT_NOT_SERIALIZABLE,
    OutcomeKind.RETRY_REQUESTED,
    OutcomeKind.REJECTED,
)
_FRAME = '  File "'


class AttemptError(NamedTuple):
    """Why an attempt failed, as it is stored."""

    #: The exception's dotted class, if built-in without a module; or the outcome's stored name ("unknown task").
    name: str
    message: str

    @classmethod
    def last_of(cls, attempts: AttemptHistory) -> Self:
        """Return the error of the last attempt; empty if there is none."""
        return cls.read(**attempts.history[-1]) if attempts.history else cls("", "")

    @classmethod
    def name_of_last(cls, attempts: AttemptHistory) -> str:
        """Return the name of the last attempt's error, without the cost of its message; "" if there is none."""
        entry = attempts.history[-1] if attempts.history else {}
        return _stored_class(**entry) or cls.read(**entry).name

    @classmethod
    def read(cls, ending: str = "", error: str = "", exception: str = "", **_rest: object) -> Self:
        """Read one entry of an attempt history. Its text names the class only if the entry is an older one."""
        if name := _stored_class(ending, exception):
            return cls(name, JobError.of(error, exception).message.lstrip().partition("\n")[0])
        return cls._of_text(ending, error)

    @classmethod
    def _of_text(cls, ending: str, error: str) -> Self:
        lines = error.rstrip().split("\n")
        if ending in (OutcomeKind.FAILED, OutcomeKind.RESULT_NOT_SERIALIZABLE):
            frames = [number for number, line in enumerate(lines) if line.startswith(_FRAME)]
            after = lines[frames[-1] + 1 :] if frames else lines[-1:]
            # A message may have several lines; the first one begins with the class.
            first = next((line for line in after if line[:1] not in ("", " ", "\t")), "")
            if found := _LAST_LINE.fullmatch(first):
                return cls(found[1], found[2] or "")
        return cls(ending, lines[-1].strip())


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """What a row must have. Empty texts match every row."""

    queue: str = ""
    #: A task: its name, the last parts of its name, or "=" and its exact name. `error` names a class in the same ways.
    task: str = ""
    error: str = ""
    #: Before this moment it is due (µs since the epoch).
    due_before_us: int | None = None

    def match(self, *more: Match) -> Match | None:
        """Return the test for a row, which it and all of `more` must pass; None if all rows match."""
        tests: Sequence[Match] = [
            *([self._has_queue] if self.queue else []),
            *([self._has_task] if self.task else []),
            *([self._has_error] if self.error else []),
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
        return names_match(AttemptError.name_of_last(row.attempts), self.error.removeprefix("builtins."))

    def _is_due(self, row: JobRow) -> bool:
        return row.due_us is not None and row.due_us < (self.due_before_us or 0)


def _stored_class(ending: str = "", exception: str = "", **_rest: object) -> str:
    """Return the class that an entry stores, as people write it; "" without an exception, and in an older entry."""
    return exception.removeprefix("builtins.") if ending in _RAISED else ""


def names_match(name: str, wanted: str) -> bool:
    """Return whether a dotted name is the wanted one or ends so; with "=" before it, whether it is exactly that."""
    if wanted.startswith("="):
        # Groups use the exact name, because other names may end alike.
        return name == wanted[1:]
    return name == wanted or name.endswith(f".{wanted}")
