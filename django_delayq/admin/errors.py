"""Failures: what the error of an attempt says in a few words, out of the text that was stored of it."""

import re
from typing import Any, NamedTuple, Self

from django.utils.translation import gettext_lazy as _

from django_delayq.admin.arguments import printable, short
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.outcome import OutcomeKind

#: `module.Class: message`, as Python ends a traceback.
_LAST = re.compile(r"([A-Za-z_][\w.]{0,199})(?:: (.*))?")
_FRAME = '  File "'
#: Characters of a message in a list.
_LINE = 200
#: What people are told of endings that are no exceptions.
_WORDS: dict[str, Any] = {
    OutcomeKind.FAILED: _("failed"),
    OutcomeKind.RETRY_REQUESTED: _("asked for another try"),
    OutcomeKind.REJECTED: _("gave up"),
    OutcomeKind.CRASHED: _("crashed"),
    OutcomeKind.LEASE_EXPIRED: _("worker lost"),
    OutcomeKind.INTERRUPTED: _("interrupted"),
    OutcomeKind.UNKNOWN_TASK: _("function not known"),
    OutcomeKind.ARGUMENTS_MISMATCH: _("arguments do not fit"),
    OutcomeKind.NEWER: _("stored by a newer version"),
    OutcomeKind.UNREADABLE: _("could not be read"),
    OutcomeKind.BAD_SIGNATURE: _("signature wrong"),
    OutcomeKind.RESULT_NOT_SERIALIZABLE: _("its result cannot be stored"),
}


class ErrorSummary(NamedTuple):
    """What went wrong with an attempt."""

    #: The exception's dotted class, or the stored word for what ended it ("unknown task"): what filters ask for.
    error: str
    message: str

    @classmethod
    def of(cls, attempts: AttemptHistory) -> Self:
        """Read the last attempt; empty where there is none."""
        return cls.read(**attempts.history[-1]) if attempts.history else cls("", "")

    @classmethod
    def read(cls, ending: str = "", error: str = "", **_rest: object) -> Self:
        """Read one attempt of a history."""
        lines = error.rstrip().split("\n")
        if ending in ("failed", OutcomeKind.RESULT_NOT_SERIALIZABLE):
            frames = [number for number, line in enumerate(lines) if line.startswith(_FRAME)]
            after = lines[frames[-1] + 1 :] if frames else lines[-1:]
            # A message may go on for lines; the class stands at the beginning of the first.
            last = next((line for line in after if line[:1] not in ("", " ", "\t")), "")
            if found := _LAST.fullmatch(last):
                return cls(found[1], printable(found[2] or "")[:_LINE])
        return cls(printable(ending), printable(lines[-1].strip())[:_LINE])

    @property
    def name(self) -> str:
        """The class without its module, or what ended it in words."""
        words = _WORDS.get(self.error)
        return str(words) if words else short(self.error)

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name
