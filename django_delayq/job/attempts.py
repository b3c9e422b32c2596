"""Attempts: the record of the ended attempts of a job that failed or crashed.

Waiting jobs have none. A script reads the first three bytes only: how many attempts ended, whether the last one ended
in a crash or a lost lease (a *suspect*), and whether a claim lapsed since that nobody confirmed (it was *spared*). The
history behind them is JSON, written by whoever settles.
"""

import json
import struct
from dataclasses import dataclass, replace
from typing import Any

_HEAD = struct.Struct(">HB")
_SUSPECT, _SPARED = 1, 2
#: Attempts told in full; older ones keep their number only.
HISTORY = 20
#: Longest error text stored of the last attempt, and of each earlier one, in bytes as they are stored.
LAST_ERROR, EARLIER_ERROR = 8 * 1024, 1024
#: Longest name of an exception's class, in characters.
_LONGEST_CLASS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptHistory:
    """Ended attempts; a lease is the running one."""

    ended: int = 0
    #: The last attempt ended in a crash or a lost lease.
    crash_suspected: bool = False
    #: The lease of an unconfirmed claim lapsed since, and no attempt was counted. The next such lapse is counted:
    #: otherwise a job that kills its worker before the worker confirms the claim would be claimed endlessly.
    spared: bool = False
    #: Oldest first: {"due_us", "worker", "started_us", "ended_us", "ending", "error", "exception"}, at most HISTORY.
    history: tuple[dict[str, Any], ...] = ()

    def add(
        self,
        *,
        worker: str,
        started_us: int,
        ended_us: int | None,
        ending: str,
        error: str,
        suspect: bool = False,
        due_us: int | None = None,
        exception: str = "",
    ) -> "AttemptHistory":
        """Return the record with one more ended attempt; `ended_us` None: nobody saw it end; `due_us`: it was due.

        `exception` is the class of what the task raised, "module.qualname".
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
        return replace(self, ended=self.ended + 1, crash_suspected=suspect, spared=False, history=(*earlier, entry))

    @property
    def last_error(self) -> str:
        """Error text of the last ended attempt, empty where there is none."""
        return str(self.history[-1].get("error", "")) if self.history else ""

    def pack(self) -> bytes:
        """Return the stored form."""
        head = _HEAD.pack(min(self.ended, 0xFFFF), _SUSPECT * self.crash_suspected + _SPARED * self.spared)
        return head + json.dumps(self.history, separators=(",", ":")).encode() if self.history else head

    @classmethod
    def unpack(cls, record: bytes | None) -> "AttemptHistory":
        """Read the stored form; a damaged history is dropped, never the count."""
        if not record or len(record) < _HEAD.size:
            return NO_ATTEMPTS
        ended, bits = _HEAD.unpack_from(record)
        try:
            history = tuple(map(_known, json.loads(record[_HEAD.size :] or b"[]")))
        except (ValueError, TypeError, AttributeError, RecursionError):
            history = ()
        return cls(ended=ended, crash_suspected=bool(bits & _SUSPECT), spared=bool(bits & _SPARED), history=history)


#: What an entry of the history holds.
_ENTRY: dict[str, Any] = {
    **{"due_us": int, "worker": str, "started_us": int, "ended_us": int | None, "ending": str, "error": str},
    "exception": str,
}
#: No moment of ours is as far.
_LARGEST = 2**63
NO_ATTEMPTS = AttemptHistory()


def _known(entry: Any) -> dict[str, Any]:
    """Return what `add` writes of an entry; what else somebody put there, however deep, is dropped."""
    return {
        name: value
        for name, value in entry.items()
        if name in _ENTRY and isinstance(value, _ENTRY[name]) and not (isinstance(value, int) and abs(value) > _LARGEST)
    }


def _cut(text: str, limit: int) -> str:
    """Keep the end of a text that is too long: in a traceback that is where the error stands."""
    text = str(text)
    # Far more than fits is never encoded; "…" and its like take six bytes each.
    if len(text) > limit:
        text = "…" + text[-limit + 6 :]
    while (size := len(json.dumps(text)) - 2) > limit:
        text = "…" + text[len(text) - len(text) * limit // size + 6 :]
    return text
