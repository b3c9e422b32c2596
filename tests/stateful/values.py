"""Values: what the model is made of. A job is in one place because it has one field for it."""

from dataclasses import dataclass
from enum import StrEnum

from django_delayq.job.job import Flag
from django_delayq.job.outcome import OutcomeKind


class Place(StrEnum):
    """Where a job that has not ended is."""

    SCHEDULED = "scheduled"
    READY = "ready"
    RECOVERED = "recovered"
    CLAIMED = "claimed"
    DEAD = "dead"


class KeyTaken(Exception):
    """The key is another job's: number in the batch, id of the holder."""


@dataclass
class ModelJob:
    """One job."""

    member: bytes
    body: bytes
    queue: str
    digest: bytes | None
    max_attempts: int
    place: Place = Place.READY
    #: Due time, rank, lease end or time of death (µs).
    score: int = 0
    #: Nothing may start it before (µs).
    due_us: int = 0
    token: bytes = b""
    #: Its claim was made behind a blocking pop, and nobody said that it came.
    unconfirmed: bool = False
    claimed_us: int = 0
    rank: int = 0
    #: Ended attempts, counted here and not read from the record.
    ended: int = 0
    suspect: bool = False
    #: A claim lapsed since that nobody confirmed.
    spared: bool = False
    record: bytes = b""

    @property
    def raw_id(self) -> bytes:
        return self.member[:12]

    @property
    def lease(self) -> bytes:
        return self.member + self.token

    @property
    def waits(self) -> bool:
        return self.place in (Place.SCHEDULED, Place.READY, Place.RECOVERED)

    def has(self, flag: Flag) -> bool:
        return bool(self.member[13] & flag)


@dataclass(frozen=True)
class Ended:
    """An attempt that ended: its lease, how, and what the one who settles wrote."""

    lease: bytes
    ending: OutcomeKind
    delay_us: int
    record: bytes

    @property
    def spared(self) -> bool:
        """It does not count."""
        return bool(self.record[2:3] and self.record[2] & 2)


@dataclass
class Told:
    """What a worker must be told by an exchange."""

    lost: frozenset[bytes]
    more: bool
    claims: list[ModelJob]
    first: bool
    #: Of the queues, when the exchange came.
    version: bytes
    recovered: bool = False
