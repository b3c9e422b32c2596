"""Attempt history: the ended attempts of a job, as the key `attempts` stores them for jobs that failed or crashed.

A waiting job that never ran has none. Scripts read only the first three bytes: the number of ended attempts, whether
the last one ended in a crash or a lost lease, and whether the lease of an unconfirmed claim expired since (*spared*).
The rest is JSON, written by the process that settles.
"""

import json
import struct
from dataclasses import dataclass, replace
from typing import Any

from django_delayq.job.value import has_type

_HEAD = struct.Struct(">HB")
_CRASH_SUSPECTED, _SPARED = 1, 2
#: Most attempts in the history; older ones are only counted.
HISTORY = 20
#: Longest error text stored of the last attempt, and of each earlier one, in bytes of JSON.
LAST_ERROR, EARLIER_ERROR = 8 * 1024, 1024
#: Longest name of an exception's class, in characters.
_LONGEST_CLASS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptHistory:
    """The ended attempts of a job. A running attempt is not among them; its job has a lease."""

    #: Number of ended attempts.
    ended: int = 0
    #: The last attempt ended in a crash or a lost lease.
    crash_suspected: bool = False
    #: Since then the lease of an unconfirmed claim expired, and no attempt was counted. The next such expiry is
    #: counted: otherwise a job that kills its worker before the worker confirms the claim would be claimed forever.
    spared: bool = False
    #: Oldest first, at most HISTORY; the keys of an entry are those of `_ENTRY`.
    history: tuple[dict[str, Any], ...] = ()

    def add(
        self,
        *,
        worker: str,
        started_us: int,
        ended_us: int | None,
        ending: str,
        error: str,
        crash_suspected: bool = False,
        due_us: int | None = None,
        exception: str = "",
    ) -> "AttemptHistory":
        """Return the history with one more ended attempt.

        Times are µs since the epoch. `ended_us` is None if no process saw the end. `exception` is the class of the
        exception that the task raised, "module.qualname".
        """
        entry = {
            **({} if due_us is None else {"due_us": due_us}),
            "worker": worker,
            "started_us": started_us,
            "ended_us": ended_us,
            "ending": ending,
            "error": _cut(error, LAST_ERROR),
            **({"exception": exception[:_LONGEST_CLASS]} if exception else {}),
        }
        earlier = tuple(
            {**old, "error": _cut(old.get("error", ""), EARLIER_ERROR)} for old in self.history[-HISTORY + 1 :]
        )
        return replace(
            self, ended=self.ended + 1, crash_suspected=crash_suspected, spared=False, history=(*earlier, entry)
        )

    @property
    def last_error(self) -> str:
        """Error text of the last ended attempt; "" if there is none."""
        return str(self.history[-1].get("error", "")) if self.history else ""

    def pack(self) -> bytes:
        """Return the stored form."""
        bits = _CRASH_SUSPECTED * self.crash_suspected + _SPARED * self.spared
        head = _HEAD.pack(min(self.ended, 0xFFFF), bits)
        return head + json.dumps(self.history, separators=(",", ":")).encode() if self.history else head

    @classmethod
    def unpack(cls, record: bytes | None) -> "AttemptHistory":
        """Read the stored form. A damaged history reads as empty; the number of attempts stays."""
        if not record or len(record) < _HEAD.size:
            return NO_ATTEMPTS
        ended, bits = _HEAD.unpack_from(record)
        try:
            history = tuple(map(_known_fields, json.loads(record[_HEAD.size :] or b"[]")))
        except (ValueError, TypeError, AttributeError, RecursionError):
            history = ()
        return cls(
            ended=ended, crash_suspected=bool(bits & _CRASH_SUSPECTED), spared=bool(bits & _SPARED), history=history
        )


#: Key -> type of an entry of the history. `ended_us` may also be None.
_ENTRY: dict[str, type] = {
    **{"due_us": int, "worker": str, "started_us": int, "ended_us": int, "ending": str, "error": str},
    "exception": str,
}
NO_ATTEMPTS = AttemptHistory()


def _known_fields(entry: Any) -> dict[str, Any]:
    """Return the fields that `add` writes; leave out others and those of a wrong type, which manual edits leave."""
    return {
        name: value
        for name, value in entry.items()
        if name in _ENTRY and (has_type(value, _ENTRY[name]) or (value is None and name == "ended_us"))
    }


def _cut(text: str, limit: int) -> str:
    """Shorten a text at its start: the end of a traceback is the error itself."""
    text = str(text)
    # Cut before encoding, so that a much longer text is never encoded as a whole. "…" takes six bytes in JSON.
    if len(text) > limit:
        text = "…" + text[-limit + 6 :]
    while (size := len(json.dumps(text)) - 2) > limit:
        text = "…" + text[len(text) - len(text) * limit // size + 6 :]
    return text
