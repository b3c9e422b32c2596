"""Result: how a job that keeps its result ended, and the JSON that `results` holds of it.

A job that failed has none: it is a dead letter with its history.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

from django_delayq.exceptions import PayloadTooLarge
from django_delayq.job.errors.error_text import find_message
from django_delayq.job.job import State
from django_delayq.job.value import has_type

#: What Python writes before a frame, and around the exceptions of a group; its margin at the lines of a group.
_FRAME = re.compile(r'^[ |]*  File "|^ +\+-', re.MULTILINE)
_AROUND, _MARGIN = " \n+-|", "  | "
_STATES = frozenset({State.DONE, State.CANCELLED, State.EXPIRED, State.DROPPED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The end of one job."""

    #: DONE, CANCELLED, EXPIRED or DROPPED.
    state: State
    #: µs since the epoch, Redis's clock; the canceller's clock for a job that was cancelled while it waited.
    ended_us: int
    #: None, with no worker, for a job that never ran.
    started_us: int | None = None
    worker: str = ""
    #: What the task returned.
    value: Any = None

    def pack(self, *, value: str = "") -> bytes:
        """Return the stored form with this value, which is JSON already, in place of its own."""
        ran = {} if self.started_us is None else {"worker": self.worker, "started_us": self.started_us}
        fields = json.dumps({"state": self.state, "ended_us": self.ended_us, **ran})
        return (f'{fields[:-1]}, "value": {value}}}' if value else fields).encode("ascii")

    @classmethod
    def unpack(cls, stored: bytes) -> "Result | None":
        """Read the stored form; None if it is damaged."""
        try:
            fields = json.loads(stored)
            result = cls(
                state=State(fields["state"]),
                ended_us=fields["ended_us"],
                started_us=fields.get("started_us"),
                worker=fields.get("worker", ""),
                value=fields.get("value"),
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        has_types = (
            has_type(result.ended_us, int)
            and (result.started_us is None or has_type(result.started_us, int))
            and has_type(result.worker, str)
        )
        return result if has_types and result.state in _STATES else None


@dataclass(frozen=True, slots=True)
class JobError:
    """Why the last attempt of a job ended without success."""

    #: Class of the exception, "module.qualname"; "" if the task raised none, as after a crash.
    class_path: str
    #: The text of the exception with its notes, or a sentence.
    message: str
    #: The stored end of the traceback; "" without an exception.
    traceback: str = field(repr=False)

    @classmethod
    def of(cls, error: str, exception: str) -> "JobError":
        """Return the error of an entry of an attempt history: its text, and the class of the exception."""
        if not exception:
            return cls("", error, "")
        if found := find_message(error, exception):
            start, after, end = found
            message = error[after:end]
            if error.startswith(_MARGIN, start):
                message = message.replace(f"\n{_MARGIN}", "\n").removeprefix(_MARGIN)
            return cls(exception, message.rstrip("\n"), error)
        # A text without a traceback is all message. Of one that was cut, the end says most.
        is_traceback = _FRAME.search(error) is not None
        return cls(
            exception, error.rstrip(_AROUND).rpartition("\n")[2].lstrip(_AROUND) if is_traceback else error, error
        )


def serialize_result(value: Any, *, of: str, max_payload: int, strict: bool = True) -> str:
    """Return the JSON of what a task returned; with `strict` without NaN and infinities, which JSON lacks.

    `of` names the task in errors. Raises `PayloadTooLarge`; TypeError or ValueError if the value is not JSON.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=not strict)
    if len(text) > max_payload:
        raise PayloadTooLarge(
            f"what {of} returned takes {len(text):,} bytes, more than MAX_PAYLOAD ({max_payload:,}); "
            f"store it elsewhere and return a reference"
        )
    return text
