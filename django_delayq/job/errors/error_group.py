"""Error group: what dead letters have in common that failed for one reason: task, class of error, kind of message."""

import json
import re
from typing import NamedTuple, Self

from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.errors.attempt_error import AttemptError

#: Most characters of a message.
_LONGEST = 200
#: A UUID; a word with a digit (a number, an id, an address in memory), or several of them, as in a time.
_VARYING = re.compile(
    r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"
    r"|\b[^\W\d]*+\d\w*+(?:[-:.,][^\W\d]*+\d\w*+)*+"
)
_SPACE = re.compile(r"\s+")


class ErrorGroup(NamedTuple):
    """One group. Its messages differ in words with digits only, each of which is "#" here."""

    #: Empty if the job cannot be read.
    task: str
    #: The exception's dotted class, if built-in without a module; or the outcome's stored name ("unknown task").
    error: str
    message: str

    @classmethod
    def of(cls, task: str, attempts: AttemptHistory) -> Self:
        """Return the group of a job whose last attempt ended with an error."""
        error, message = AttemptError.last_of(attempts)
        return cls(task, error, _SPACE.sub(" ", _VARYING.sub("#", message[: 4 * _LONGEST])).strip()[:_LONGEST])

    def pack(self) -> bytes:
        """Return the stored form."""
        return json.dumps(self, separators=(",", ":")).encode()

    @classmethod
    def unpack(cls, stored: bytes) -> Self | None:
        """Read the stored form; None if it was edited manually."""
        try:
            task, error, message = json.loads(stored)
        except (ValueError, TypeError):
            return None
        texts = (task, error, message)
        return cls(*texts) if all(isinstance(each, str) for each in texts) else None
