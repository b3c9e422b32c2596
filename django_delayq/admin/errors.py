"""Error summary: the stored error of an attempt in one line, for lists of jobs and for filters."""

from typing import Any, NamedTuple, Self

from django.utils.translation import gettext_lazy as _

from django_delayq.display.text import printable, short
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.errors.attempt_error import AttemptError
from django_delayq.job.outcome import OutcomeKind

#: Most characters of a message.
_MAX_MESSAGE = 200
#: Names of outcomes on the pages; an attempt that ended with an exception shows its class instead.
_OUTCOME_TEXTS: dict[str, Any] = {
    OutcomeKind.FAILED: _("exception"),
    OutcomeKind.RETRY_REQUESTED: _("requested a retry"),
    OutcomeKind.SNOOZED: _("snoozed"),
    OutcomeKind.REJECTED: _("rejected"),
    OutcomeKind.CRASHED: _("crashed"),
    OutcomeKind.LEASE_EXPIRED: _("worker lost"),
    OutcomeKind.INTERRUPTED: _("interrupted"),
    OutcomeKind.UNKNOWN_TASK: _("task not known"),
    OutcomeKind.ARGUMENTS_MISMATCH: _("arguments do not fit"),
    OutcomeKind.NEWER: _("stored by a newer version"),
    OutcomeKind.UNKNOWN_KEY: _("encrypted with an unknown key"),
    OutcomeKind.UNREADABLE: _("could not be read"),
    OutcomeKind.BAD_SIGNATURE: _("signature invalid"),
    OutcomeKind.RESULT_NOT_SERIALIZABLE: _("result not serializable"),
    OutcomeKind.STOPPED: _("stopped"),
    OutcomeKind.EXPIRED: _("expired"),
    OutcomeKind.DROPPED: _("dropped"),
}


def outcome_name(kind: str) -> str:
    """Return how the pages name an outcome."""
    return str(_OUTCOME_TEXTS.get(kind) or printable(kind))


class ErrorSummary(NamedTuple):
    """Why an attempt failed."""

    #: The exception's dotted class, or the outcome's stored name ("unknown task"); filters match this text.
    error: str
    message: str

    @classmethod
    def of(cls, attempts: AttemptHistory) -> Self:
        """Return the summary of the last attempt; empty if there is none."""
        return cls._shown(AttemptError.last_of(attempts))

    @classmethod
    def read(cls, **entry: Any) -> Self:
        """Read one entry of an attempt history."""
        return cls._shown(AttemptError.read(**entry))

    @classmethod
    def _shown(cls, found: AttemptError) -> Self:
        return cls(printable(found.name), printable(found.message)[:_MAX_MESSAGE])

    @property
    def name(self) -> str:
        """The class without its module, or the outcome in words."""
        text = _OUTCOME_TEXTS.get(self.error)
        return str(text) if text else short(self.error)

    def __str__(self) -> str:
        return f"{self.name}: {self.message}" if self.message else self.name
