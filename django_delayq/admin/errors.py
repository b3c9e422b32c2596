"""Failures: what the error of an attempt says in a few words, out of the text that was stored of it."""

import re
from typing import Any, NamedTuple, Self

from django.utils.translation import gettext_lazy as _

from django_delayq.admin.arguments import short, visible
from django_delayq.job.attempts import Attempts
from django_delayq.job.outcome import Ending

#: `module.Class: message`, as Python ends a traceback.
_LAST = re.compile(r"([A-Za-z_][\w.]{0,199})(?:: (.*))?")
_FRAME = '  File "'
#: Characters of a message in a list.
_LINE = 200
#: What people are told of endings that are no exceptions.
_WORDS: dict[str, Any] = {
    Ending.FAILED: _("failed"),
    Ending.ASKED_RETRY: _("asked for another try"),
    Ending.ASKED_DEAD: _("gave up"),
    Ending.CRASHED: _("crashed"),
    Ending.LAPSED: _("worker lost"),
    Ending.INTERRUPTED: _("interrupted"),
    Ending.UNKNOWN_TASK: _("function not known"),
    Ending.UNFIT: _("arguments do not fit"),
    Ending.NEWER: _("stored by a newer version"),
    Ending.UNREADABLE: _("could not be read"),
    Ending.BAD_SIGNATURE: _("signature wrong"),
    Ending.UNSTORABLE: _("its result cannot be stored"),
}


class Failure(NamedTuple):
    """What went wrong with an attempt."""

    #: The exception's dotted class, or the stored word for what ended it ("unknown_task"): what filters ask for.
    error: str
    message: str

    @classmethod
    def of(cls, attempts: Attempts) -> Self:
        """Read the last attempt; empty where there is none."""
        return cls.read(**attempts.history[-1]) if attempts.history else cls("", "")

    @classmethod
    def read(cls, ending: str = "", error: str = "", **_rest: object) -> Self:
        """Read one attempt of a history."""
        lines = error.rstrip().split("\n")
        if ending in ("failed", Ending.UNSTORABLE):
            frames = [number for number, line in enumerate(lines) if line.startswith(_FRAME)]
            after = lines[frames[-1] + 1 :] if frames else lines[-1:]
            # A message may go on for lines; the class stands at the beginning of the first.
            last = next((line for line in after if line[:1] not in ("", " ", "\t")), "")
            if found := _LAST.fullmatch(last):
                return cls(found[1], visible(found[2] or "")[:_LINE])
        return cls(visible(ending), visible(lines[-1].strip())[:_LINE])

    @property
    def name(self) -> str:
        """The class without its module, or what ended it in words."""
        words = _WORDS.get(self.error)
        return str(words) if words else short(self.error)

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name
