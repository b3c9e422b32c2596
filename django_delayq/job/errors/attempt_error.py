"""Attempt error: why an attempt failed, read from its stored entry of the attempt history."""

import re
from typing import NamedTuple, Self

from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.outcome import OutcomeKind
from django_delayq.job.result import JobError

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


def _stored_class(ending: str = "", exception: str = "", **_rest: object) -> str:
    """Return the class that an entry stores, as people write it; "" without an exception, and in an older entry."""
    return exception.removeprefix("builtins.") if ending in _RAISED else ""
