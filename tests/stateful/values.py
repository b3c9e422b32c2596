"""Values of the model. A job has one field for its place, so it is in one place by construction."""

from dataclasses import dataclass
from enum import StrEnum

from django_delayq.job.job import Flag
from django_delayq.job.outcome import OutcomeKind


class Place(StrEnum):
    """The place of a job that has not ended."""

    SCHEDULED = "scheduled"
    READY = "ready"
    RECOVERED = "recovered"
    CLAIMED = "claimed"
    DEAD = "dead"


class KeyTaken(Exception):
    """Another job holds the unique key: index in the batch, id of the holder."""


@dataclass
class ModelJob:
    """One job of the model."""

    member: bytes
    body: bytes
    queue: str
    digest: bytes | None
    max_attempts: int
    place: Place = Place.READY
    #: Due time, rank, lease end or time of death (µs).
    score: int = 0
    #: The job may not start before this time (µs).
    due_us: int = 0
    token: bytes = b""
    #: Its claim was a blocking one, and its worker has not confirmed it.
    unconfirmed: bool = False
    claimed_us: int = 0
    rank: int = 0
    #: Ended attempts, counted here and not read from the record.
    ended: int = 0
    crash_suspected: bool = False
    #: An unconfirmed claim of this attempt has expired.
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
    """An ended attempt: its lease, its outcome, and the record that its settlement writes."""

    lease: bytes
    ending: OutcomeKind
    delay_us: int
    record: bytes

    @property
    def spared(self) -> bool:
        """Whether the attempt does not count."""
        return bool(self.record[2:3] and self.record[2] & 2)


@dataclass
class ExpectedReply:
    """The reply that an exchange must return."""

    lost: frozenset[bytes]
    more: bool
    claims: list[ModelJob]
    first: bool
    #: The version of the queue list at the time of the exchange.
    version: bytes
    recovered: bool = False
