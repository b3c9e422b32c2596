"""Records: how scripts lay out what Python reads of them; short or foreign ones read as empty, never as an error."""

from typing import NamedTuple, Self


class RunningRecord(NamedTuple):
    """What `claim_records` holds of a claimed job: its token (16 bytes), then this."""

    #: µs since the epoch when it was claimed; 0 where that is lost.
    claimed_us: int
    rank: int

    @classmethod
    def unpack(cls, record: bytes | None) -> Self:
        """Read a field of `claim_records`."""
        record = record or b""
        return cls(claimed_us=int.from_bytes(record[16:24]), rank=int.from_bytes(record[24:32]))


class DeadLetterRecord(NamedTuple):
    """What `dead_bodies` holds of a dead letter: two lengths, its member, its attempts and extras records, its body."""

    attempts: bytes
    extras: bytes
    body: bytes

    @classmethod
    def unpack(cls, stored: bytes | None) -> Self:
        """Read a field of `dead_bodies`, also of one cut short in its body."""
        stored = stored or b""
        extras = 22 + int.from_bytes(stored[:4])
        body = extras + int.from_bytes(stored[4:8])
        return cls(attempts=stored[22:extras], extras=stored[extras:body], body=stored[body:])


class ResultRecord(NamedTuple):
    """What `results` holds of a job that ended: two lengths, its attempts record, its ending (JSON), its body."""

    attempts: bytes
    ending: bytes
    body: bytes

    @classmethod
    def unpack(cls, stored: bytes | None) -> Self:
        """Read the one element of `results`."""
        stored = stored or b""
        ending = 8 + int.from_bytes(stored[:4])
        body = ending + int.from_bytes(stored[4:8])
        return cls(attempts=stored[8:ending], ending=stored[ending:body], body=stored[body:])


def worker_of(lease: bytes) -> bytes:
    """Return the code of the worker that holds a lease: member (14 bytes), then its token, which begins with it."""
    return lease[14:22]
