"""Attempt history: the ended attempts of a job, as the key `attempts` stores them for jobs that failed or crashed.

A waiting job that never ran has none. Scripts read only the first three bytes: the number of ended attempts, and the
bits of `_BITS`. The rest is JSON, written by the process that settles: the history, or an object with the history and
the counts of what is no attempt. Readers of release 0.1 and earlier know the history alone.
`security/attempts_record.py` encrypts the JSON.
"""

import json
import struct
from base64 import b64decode, b64encode
from dataclasses import field, replace
from typing import Any

from django_delayq.job.errors.error_text import cut_error
from django_delayq.job.value import fast_dataclass, has_type

_HEAD = struct.Struct(">HB")
#: Bytes that scripts read; they are never encrypted.
HEAD_SIZE = _HEAD.size
#: The largest number of attempts that a record holds. A job without a limit may have more.
MAX_COUNT = 0xFFFF
#: Bit of the third byte -> field. Scripts know the first two.
_BITS = {1: "crash_suspected", 2: "spared", 4: "interrupted"}
#: Most attempts in the history; older ones are only counted.
HISTORY = 20
#: Longest error text stored of the last attempt, and of each earlier one, in bytes of JSON.
LAST_ERROR, EARLIER_ERROR = 8 * 1024, 1024
#: Most bytes that are kept of what this process cannot read. One record takes half of it.
MOST_SEALED = 64 * 1024
#: Longest name of an exception's class, in characters.
_LONGEST_CLASS = 200


@fast_dataclass
class AttemptHistory:
    """The ended attempts of a job. A running attempt is not among them; its job has a lease."""

    #: Number of ended attempts.
    ended: int = 0
    #: The last attempt ended in a crash or a lost lease.
    crash_suspected: bool = False
    #: Since then the lease of an unconfirmed claim expired, and no attempt was counted. The next such expiry is
    #: counted: otherwise a job that kills its worker before the worker confirms the claim would be claimed forever.
    spared: bool = False
    #: The last run was cut short by the stop of its worker. It may have done part of its work.
    interrupted: bool = False
    #: Number of snoozes, and of runs that the stop of a worker cut short. Neither is an attempt.
    snoozes: int = 0
    interruptions: int = 0
    #: When the job began to wait for a worker that can run it, µs since the epoch, Redis's clock. 0: it does not wait.
    waiting_since_us: int = 0
    #: What it waits for, the value of an `OutcomeKind`; "" if it does not wait.
    waiting_for: str = ""
    #: Oldest first, at most HISTORY; the keys of an entry are those of `_ENTRY`.
    history: tuple[dict[str, Any], ...] = ()
    #: The parts of the record that this process has no key for, as they are stored, oldest first.
    sealed: tuple[bytes, ...] = field(default=(), repr=False)

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
            "error": cut_error(error, LAST_ERROR, exception=exception[:_LONGEST_CLASS]),
            **({"exception": exception[:_LONGEST_CLASS]} if exception else {}),
        }
        earlier = tuple(
            {**old, "error": cut_error(old.get("error", ""), EARLIER_ERROR, exception=old.get("exception", ""))}
            for old in self.history[-HISTORY + 1 :]
        )
        return replace(
            self._run_ended(),
            ended=self.ended + 1,
            crash_suspected=crash_suspected,
            history=(*earlier, entry),
        )

    def snoozed(self) -> "AttemptHistory":
        """Return the history after a snooze."""
        return replace(self._run_ended(), snoozes=self.snoozes + 1)

    def cut_short(self) -> "AttemptHistory":
        """Return the history after an interruption that is no attempt."""
        return replace(self._run_ended(), interrupted=True, interruptions=self.interruptions + 1)

    def waited(self, reason: str, *, now_us: int) -> "AttemptHistory":
        """Return the history after a worker that cannot run the job. The facts about the last run stay."""
        return replace(self, waiting_since_us=self.waiting_since_us or now_us, waiting_for=reason)

    def revived(self) -> "AttemptHistory":
        """Return the history of a dead letter that is retried: everything is counted from 0."""
        return AttemptHistory(history=self.history, sealed=self.sealed)

    def joined(self, earlier: "AttemptHistory") -> "AttemptHistory":
        """Return the history with an earlier part of the same record, which was sealed. Both count."""
        return replace(
            self,
            snoozes=earlier.snoozes + self.snoozes,
            interruptions=earlier.interruptions + self.interruptions,
            history=(*earlier.history, *self.history)[-HISTORY:],
            sealed=(*earlier.sealed, *self.sealed),
        )

    def _run_ended(self) -> "AttemptHistory":
        return replace(self, crash_suspected=False, spared=False, interrupted=False, waiting_since_us=0, waiting_for="")

    @property
    def recovered(self) -> bool:
        """Whether the last run did not end by itself, so that part of its work may be done."""
        return self.crash_suspected or self.interrupted

    @property
    def last_error(self) -> str:
        """Error text of the last ended attempt; "" if there is none."""
        return str(self.history[-1].get("error", "")) if self.history else ""

    def pack(self) -> bytes:
        """Return the stored form."""
        bits = sum(bit for bit, name in _BITS.items() if getattr(self, name))
        head = _HEAD.pack(min(self.ended, MAX_COUNT), bits)
        more: dict[str, Any] = {name: value for name in _COUNTS if (value := getattr(self, name))}
        if self.sealed:
            more["sealed"] = [b64encode(part).decode() for part in _newest(self.sealed)]
        rest = {"history": self.history, **more} if more else self.history
        return head + json.dumps(rest, separators=(",", ":")).encode() if rest else head

    @classmethod
    def unpack(cls, record: bytes | None, *, last_only: bool = False) -> "AttemptHistory":
        """Read the stored form. A damaged history reads as empty; the number of attempts stays.

        With `last_only`, earlier attempts than the last one may be left out.
        """
        if not record or len(record) < _HEAD.size:
            return NO_ATTEMPTS
        ended, bits = _HEAD.unpack_from(record)
        fields: dict[str, Any] = {name: bool(bits & bit) for bit, name in _BITS.items()} if bits else {}
        text = record[_HEAD.size :] or b"[]"
        # These bytes are between two entries: within a text, JSON escapes the quote. An object has counts, too.
        border = text.rfind(b'},{"') if last_only and text[:1] == b"[" else -1
        try:
            # Not the bytes, whose encoding `json.loads` would detect first.
            rest = json.loads((text if border < 0 else b"[" + text[border + 2 :]).decode("utf-8", "surrogatepass"))
            if type(rest) is dict:
                fields |= {name: rest[name] for name in _COUNTS if _is_count(rest.get(name), _COUNTS[name])}
                fields["sealed"] = _sealed_parts(rest.get("sealed", ()))
                rest = rest.get("history", ())
            history = tuple(map(_known_fields, rest))
        except (ValueError, TypeError, AttributeError, RecursionError):
            if border >= 0:
                # An entry that was edited manually may have a list of objects.
                return cls.unpack(record)
            history = ()
        return cls(ended=ended, **fields, history=history)


#: Key -> type of an entry of the history. `ended_us` may also be None.
_ENTRY: dict[str, type] = {
    **{"due_us": int, "worker": str, "started_us": int, "ended_us": int, "ending": str, "error": str},
    "exception": str,
}
#: Field of the object -> its type.
_COUNTS: dict[str, type] = {"snoozes": int, "interruptions": int, "waiting_since_us": int, "waiting_for": str}
NO_ATTEMPTS = AttemptHistory()


def _known_fields(entry: Any) -> dict[str, Any]:
    """Return the fields that `add` writes; leave out others and those of a wrong type, which manual edits leave."""
    return {
        name: value
        for name, value in entry.items()
        # As `has_type`, without a call for each field of each attempt.
        if (_ENTRY.get(name) is type(value) and (type(value) is not int or abs(value) < 2**63))
        or (value is None and name == "ended_us")
    }


def _is_count(value: Any, kind: type) -> bool:
    return has_type(value, kind) and (kind is str or 0 <= value < 2**53)


def _sealed_parts(texts: Any) -> tuple[bytes, ...]:
    """Return the parts that `pack` wrote; none if one was edited manually."""
    try:
        return tuple(b64decode(text, validate=True) for text in texts)
    except (ValueError, TypeError):
        return ()


def _newest(parts: tuple[bytes, ...]) -> tuple[bytes, ...]:
    while sum(map(len, parts)) > MOST_SEALED:
        parts = parts[1:]
    return parts
