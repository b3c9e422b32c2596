"""Values of the model. A job is in exactly one place because it has one field for it."""

from dataclasses import dataclass
from enum import StrEnum

from django_delayq.clock import DAY_US
from django_delayq.conf.queue_options import QueueOptions
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.body.codec import with_due
from django_delayq.job.job import Expiry, Flag
from django_delayq.job.outcome import FREE_INTERRUPTIONS, OutcomeKind
from django_delayq.job.unsent import Throttle, UnsentJob
from django_delayq.store.digests import key_digest, limit_digest, schedule_id, tenant_digest

#: Endings after which a job is a dead letter, whatever its attempts.
ENDED_FOR_GOOD = (OutcomeKind.REJECTED, OutcomeKind.UNKNOWN_TASK, OutcomeKind.EXPIRED)


class Place(StrEnum):
    """The place of a job that has not ended."""

    SCHEDULED = "scheduled"
    READY = "ready"
    RECOVERED = "recovered"
    PARKED = "parked"
    CLAIMED = "claimed"
    DEAD = "dead"


class KeyTaken(Exception):
    """Another job holds the key: number in the batch, id of the holder."""


class Full(Exception):
    """As many jobs of tenants wait as may: for each the numbers of its jobs in the batch, and how many wait."""


@dataclass
class ModelJob:
    """One job."""

    member: bytes
    body: bytes
    queue: str
    digest: bytes | None
    #: The job holds its key only until its start; and whether it holds it now.
    until_start: bool
    holds_key: bool
    max_attempts: int
    #: The digest of the key whose further calls it throttles.
    throttle: bytes | None = None
    #: Calls of it are debounced: when the first of the series came (µs); 0 after its start.
    first_call: int | None = None
    #: Name and digest of its tenant, and its weight in the queue (0: the queue is not fair).
    tenant_name: str | None = None
    tenant: bytes | None = None
    weight: int = 0
    #: It is ready, and got its turn from a claim; and its claim cost its flow a turn.
    is_late: bool = False
    has_paid: bool = False
    place: Place = Place.READY
    #: Due time, rank, lease end or time of death (µs).
    score: int = 0
    #: It may not start before this time (µs).
    due_us: int = 0
    token: bytes = b""
    #: Its claim was made behind a blocking pop and is not confirmed.
    unconfirmed: bool = False
    claimed_us: int = 0
    rank: int = 0
    #: If it was asked to stop: until when its code may run (µs). And the stored progress of its code.
    stop_by: int | None = None
    progress: bytes = b""
    #: Number of ended attempts, counted here and not read from the record.
    ended: int = 0
    crash_suspected: bool = False
    #: Since then the lease of an unconfirmed claim expired.
    spared: bool = False
    record: bytes = b""
    #: When it expires (µs), and what the caller gave; None if it never does.
    expires_us: int | None = None
    #: Its due time (µs), if the last claim of it was made before that, by a person.
    ahead_us: int | None = None
    expiry: Expiry | None = None
    #: Snoozes, and runs that a stop cut short; and when it first met a worker that does not know its task (µs).
    snoozes: int = 0
    interruptions: int = 0
    waiting_since: int = 0
    #: Its limits and its cost under each, and whether it is dropped if one of them keeps it from beginning.
    limits: tuple[tuple[bytes, int], ...] = ()
    drops: bool = False
    #: The limit that it waits for while it is parked; the one that let it in, while it is ready or recovered.
    waiting_for: bytes | None = None
    let_in: bytes | None = None
    #: While it is claimed: the limits of which it has a slot, and its cost; None: nothing is stored.
    held: list[tuple[bytes, int]] | None = None
    #: It was claimed to be dropped.
    is_dropped: bool = False
    #: Its recurring schedule, the version for which it was planted (0: a person runs it), and whether it ever began.
    schedule: bytes | None = None
    version: int = 0
    has_begun: bool = False

    @classmethod
    def of(cls, draft: UnsentJob) -> "ModelJob":
        job = draft.job
        return cls(
            member=job.member,
            body=draft.body,
            queue=job.queue,
            digest=digest_of(draft),
            until_start=draft.until_start,
            holds_key=digest_of(draft) is not None,
            throttle=throttle_of(draft),
            max_attempts=job.retry.max_attempts,
            expiry=job.expiry,
            tenant_name=job.tenant,
            limits=tuple((limit_digest(*limit), draft.cost) for limit in job.limits),
            drops=draft.drops,
            schedule=schedule_id(job.task, job.occurrence.schedule) if job.occurrence else None,
        )

    def use(self, options: QueueOptions) -> None:
        """Take the tenant's place in a queue with these options."""
        if self.tenant_name is not None or options.fair:
            self.tenant = tenant_digest(self.tenant_name)
        self.weight = options.weight_of(self.tenant_name)

    def put_off(self, item: "Ended", now: int) -> bool:
        """Settle a run that is no attempt; return False if it is one."""
        match item.ending:
            case OutcomeKind.SNOOZED:
                self.place, self.score, self.snoozes = Place.SCHEDULED, now + item.delay_us, self.snoozes + 1
            case OutcomeKind.INTERRUPTED if self.interruptions < FREE_INTERRUPTIONS:
                self.place, self.score, self.interruptions = Place.READY, self.rank, self.interruptions + 1
            case OutcomeKind.UNKNOWN_TASK if self.claimed_us - (self.waiting_since or self.claimed_us) < DAY_US:
                self.place, self.score = Place.SCHEDULED, now + item.delay_us
                self.due_us, self.waiting_since = self.score, self.waiting_since or self.claimed_us
                # Nothing ran: what is known of the last run remains.
                return True
            case _:
                return False
        if self.place is Place.SCHEDULED:
            self.due_us = self.score
        self.crash_suspected, self.spared, self.waiting_since = False, False, 0
        return True

    def start(self) -> None:
        """Give the key up if it is held only until now; a later call is the first of its series."""
        self.holds_key = self.holds_key and not self.until_start
        self.first_call = None if self.first_call is None else 0

    def revive(self) -> None:
        """Count everything from 0; the history of its errors stays."""
        self.ended, self.crash_suspected, self.spared = 0, False, False
        self.snoozes, self.interruptions, self.waiting_since = 0, 0, 0
        history = AttemptHistory.unpack(self.record).history
        self.record = AttemptHistory(history=history).pack() if history else b""

    @property
    def raw_id(self) -> bytes:
        return self.member[:12]

    @property
    def lease(self) -> bytes:
        return self.member + self.token

    @property
    def waits(self) -> bool:
        return self.place in (Place.SCHEDULED, Place.READY, Place.RECOVERED, Place.PARKED)

    def cost_of(self, limit: bytes) -> int:
        """Return its cost under a limit; 1 under one that is not its own: its task was paused."""
        return dict(self.limits).get(limit, 1)

    def expire_after(self, due_us: int, *, revived: bool = False) -> None:
        """Let a span begin at a due time; the expiry of a revived job is left out if it is over."""
        if self.expiry is None:
            return
        self.expires_us = self.expiry.moment_us if self.expiry.span_us is None else due_us + self.expiry.span_us
        self.body = with_due(self.body, due_us, revived=revived)
        if revived and self.expires_us <= due_us:
            self.expiry = self.expires_us = None

    def has(self, flag: Flag) -> bool:
        return bool(self.member[13] & flag)


def digest_of(draft: UnsentJob) -> bytes | None:
    """Return the digest of a draft's unique key."""
    return None if isinstance(draft.unique, Throttle) else _digest_of(draft)


def throttle_of(draft: UnsentJob) -> bytes | None:
    """Return the digest of a draft's throttled key."""
    return _digest_of(draft) if isinstance(draft.unique, Throttle) else None


def _digest_of(draft: UnsentJob) -> bytes | None:
    job = draft.job
    return None if job.key is None else key_digest(job.task, job.key, job.tenant)


@dataclass(frozen=True)
class Ended:
    """An ended attempt: its lease, its ending, and the record that the settling process wrote."""

    lease: bytes
    ending: OutcomeKind
    delay_us: int
    record: bytes

    @property
    def spared(self) -> bool:
        """Whether it does not count."""
        return bool(self.record[2:3] and self.record[2] & 2)


@dataclass
class ExpectedReply:
    """What the reply to an exchange must be."""

    lost: frozenset[bytes]
    #: Leases of jobs that were asked to stop, so that their outcomes were refused.
    stopped: frozenset[bytes]
    more: bool
    claims: list[ModelJob]
    first: bool
    #: Version of the queues at the time of the exchange.
    version: bytes
    recovered: bool = False
