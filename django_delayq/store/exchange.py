"""Exchange: what a worker hands in and asks for in one step, and what it is told."""

from dataclasses import dataclass, field
from typing import Any

from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.job import Claim
from django_delayq.job.outcome import Decision
from django_delayq.job.value import fast_dataclass
from django_delayq.store.client.script_call import ScriptCall


@fast_dataclass
class Settlement:
    """A claim, and what was decided of it."""

    claim: Claim
    decision: Decision
    #: With the attempt that just ended; unused for acknowledge and release.
    attempts: AttemptHistory
    #: Of a job that is acknowledged and keeps its result: what to keep of its end, and for how many ms.
    result: bytes = field(default=b"", repr=False)
    ttl_ms: int = 0


@dataclass(slots=True, kw_only=True)
class ExchangeRequest:
    """One exchange, ready to be sent, and to be sent again word for word."""

    #: Code of the worker, 8 bytes.
    worker: bytes
    number: int
    #: Claims it takes, at most.
    want: int
    queues: tuple[str, ...]
    #: What follows these in the script's arguments.
    args: list[Any] = field(repr=False)
    keys: list[str] = field(repr=False)
    #: `clock.lease_time()` before it was sent first: leases count from here.
    sent_at: float = 0.0
    #: It is sent behind a blocking pop: what it takes is unconfirmed.
    armed: bool = False
    #: Sent, and to be answered; None where it is to be sent.
    call: ScriptCall | None = field(default=None, repr=False)

    @property
    def token(self) -> bytes:
        """The end of each lease it takes."""
        return self.worker + self.number.to_bytes(8)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeReply:
    """What an exchange brought."""

    #: It asked for claims: else it says nothing of the work there is.
    claimed: bool
    #: It waited behind a blocking pop: its claims are unconfirmed.
    armed: bool
    now_us: int
    #: Leases that were somebody else's by then: their outcomes changed nothing.
    lost: frozenset[bytes]
    #: µs after which nobody promotes if nothing changes; 0: nobody does, and the worker should.
    overdue_in_us: int
    #: Another one whenever a queue appears or is forgotten.
    queues_version: bytes
    #: Takeable work was left behind.
    has_more: bool
    #: The server knows no earlier exchange of this worker: the first one, or the server was flushed or replaced.
    unknown_worker: bool
    #: Recovered jobs were left behind: whoever has a process for one may ask for it.
    recovered: bool
    claims: list[Claim]

    @property
    def dispatcher_overdue(self) -> bool:
        """Whether nobody promotes."""
        return not self.overdue_in_us
