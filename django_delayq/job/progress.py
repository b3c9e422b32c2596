"""Progress: how far the code of a running job is, and the JSON that its claim record holds of it."""

import json
from dataclasses import dataclass
from typing import Any

from django_delayq.exceptions import InvalidProgress
from django_delayq.job.value import has_type

#: Longest note, in characters.
LONGEST_NOTE = 500
#: A sum of floats may pass 1 a little: fifty times 0.02 is 1.0000000000000004.
_ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a job is."""

    #: From 0 to 1.
    fraction: float
    #: A text for people, at most `LONGEST_NOTE` characters.
    note: str = ""

    @classmethod
    def checked(cls, fraction: Any, note: Any) -> "Progress":
        """Return the progress that a task reports. Raises `InvalidProgress`."""
        # Written so that NaN is refused too.
        if not (has_type(fraction, int) or has_type(fraction, float)) or not -_ROUNDING <= fraction <= 1 + _ROUNDING:
            raise InvalidProgress(
                f"fraction must be a number from 0 to 1, got {fraction!r:.100}; divide what is done by the total"
            )
        if not isinstance(note, str):
            raise InvalidProgress(f"note must be a text, got {type(note).__name__}")
        if len(note) > LONGEST_NOTE:
            raise InvalidProgress(
                f"note must have at most {LONGEST_NOTE} characters, got {len(note):,}; "
                f"store longer texts elsewhere and name them"
            )
        return cls(min(1.0, max(0.0, float(fraction))), note)

    def pack(self) -> bytes:
        """Return the stored form."""
        return json.dumps({"fraction": self.fraction, "note": self.note}, separators=(",", ":")).encode("ascii")

    @classmethod
    def unpack(cls, stored: bytes) -> "Progress | None":
        """Read the stored form; None if there is none, or it is damaged."""
        try:
            fields = json.loads(stored)
            return cls.checked(fields["fraction"], fields.get("note", ""))
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
