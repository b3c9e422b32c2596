"""Result: how a job that keeps a result ended; the JSON that `results` holds of it.

A job that failed has none: it is a dead letter, with its whole history.
"""

import json
from dataclasses import dataclass
from typing import Any

from django_delayq.exceptions import PayloadTooLarge
from django_delayq.job.job import State

_STATES = frozenset({State.DONE, State.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """The ending of one job."""

    state: State
    #: µs since the epoch, Redis's clock; of a cancelled job as the one who cancelled it has it.
    ended_us: int
    #: None, and no worker, for a job that never ran.
    started_us: int | None = None
    worker: str = ""
    #: What the task returned.
    value: Any = None

    @classmethod
    def unpack(cls, stored: bytes) -> "Result | None":
        """Read the stored form; None for what nobody of ours wrote."""
        try:
            told = json.loads(stored)
            result = cls(
                state=State(told["state"]),
                ended_us=told["ended_us"],
                started_us=told.get("started_us"),
                worker=told.get("worker", ""),
                value=told.get("value"),
            )
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        moments = (result.ended_us, result.started_us or 0)
        sound = all(type(moment) is int and abs(moment) < 2**63 for moment in moments) and type(result.worker) is str
        return result if sound and result.state in _STATES else None


def json_of(value: Any, *, of: str, max_payload: int, strict: bool = True) -> str:
    """Return JSON of what a task returned; `strict`: without NaN and infinities, which JSON does not have.

    Raises `PayloadTooLarge`; TypeError and ValueError for what is no JSON.
    """
    text = json.dumps(value, separators=(",", ":"), allow_nan=not strict)
    if len(text) > max_payload:
        raise PayloadTooLarge(
            f"what {of} returned takes {len(text):,} bytes, more than MAX_PAYLOAD ({max_payload:,}); "
            f"store it elsewhere and return a reference"
        )
    return text


def done(*, worker: str, started_us: int, ended_us: int, value: str) -> bytes:
    """Return the stored form of a success; `value` is JSON already."""
    facts = json.dumps({"state": State.DONE, "worker": worker, "started_us": started_us, "ended_us": ended_us})
    return f'{facts[:-1]}, "value": {value}}}'.encode("ascii")


def cancelled(*, ended_us: int) -> bytes:
    """Return the stored form of a job that was cancelled before it ran."""
    return json.dumps({"state": State.CANCELLED, "ended_us": ended_us}).encode("ascii")
