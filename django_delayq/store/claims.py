"""Claims: a worker settles outcomes and claims jobs in one round trip, and sends its heartbeat. Called by workers."""

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from django.views.decorators.debug import sensitive_variables

from django_delayq.clock import lease_time
from django_delayq.exceptions import BadBody, StaleExchange
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.codec import decode
from django_delayq.job.job import Claim, due_of_rank
from django_delayq.job.outcome import Action, Decision
from django_delayq.job.signing import BodySigner
from django_delayq.job.value import fast_dataclass
from django_delayq.store.client.script import Script
from django_delayq.store.client.script_call import ScriptCall
from django_delayq.store.keys import encode_queue
from django_delayq.store.shard import Shard

_SETTLE_AND_CLAIM = Script("settle_and_claim")
_HEARTBEAT = Script("heartbeat")
#: Bytes of a lease's member: job's member 14, worker 8, exchange number 8.
_LEASE = 30
#: Leases in one heartbeat, at most.
_HEARTBEATS = 500


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


class Claims:
    """The door of one worker to one shard."""

    def __init__(self, shard: Shard, *, worker: bytes, lease_us: int, due_first_us: int, seal: BodySigner) -> None:
        self._shard = shard
        self._seal = seal
        self._due_first_us = due_first_us
        #: The worker's code, as Redis knows it; another one after a stale exchange.
        self.worker = worker
        self._lease_us = lease_us
        self._number = 0

    def prepare(
        self,
        *,
        queues: Sequence[str],
        want: int,
        settlements: Sequence[Settlement] = (),
        strict: bool = False,
        may_recover: bool = True,
        description: str = "",
        armed: bool = False,
    ) -> ExchangeRequest:
        """Make the next exchange; sends nothing. If it is sent, it must be answered before the next is.

        Only with `may_recover` it may bring a job whose last attempt crashed: then that one alone. What an `armed` one
        takes is unconfirmed: it counts no attempt if its lease lapses.
        """
        self._number += 1
        keys = self._shard.keys
        acknowledged, dead, retries, releases = [], [], [], []
        kept: list[Any] = []
        outcome_queues: dict[str, int] = {}
        for settlement in settlements:
            claim, decision = settlement.claim, settlement.decision
            match decision.action:
                case Action.ACKNOWLEDGE if settlement.result:
                    kept += [claim.lease, settlement.result, settlement.ttl_ms]
                case Action.ACKNOWLEDGE:
                    acknowledged.append(claim.lease)
                case Action.DEAD_LETTER:
                    dead += [claim.lease, settlement.attempts.pack()]
                case Action.RETRY:
                    number = outcome_queues.setdefault(claim.queue, len(outcome_queues) + 1)
                    rank = claim.rank if decision.keeps_place else b""
                    retries += [claim.lease, number, decision.delay_us, settlement.attempts.pack(), rank]
                case Action.RELEASE:
                    number = outcome_queues.setdefault(claim.queue, len(outcome_queues) + 1)
                    releases += [claim.lease, number, claim.rank]
        counts = (len(dead) // 2, len(retries) // 5, len(kept) // 3)
        return ExchangeRequest(
            worker=self.worker,
            number=self._number,
            want=want,
            queues=tuple(queues),
            armed=armed,
            args=[
                *(self._lease_us, int(strict), len(queues), description, int(may_recover), int(armed)),
                *(b"".join(acknowledged), *counts, *dead, *retries, *kept, *releases),
            ],
            keys=[
                *(key for queue in queues for key in (keys.ready(queue), keys.notify(queue), keys.recovered(queue))),
                *(keys.results(lease[:12]) for lease in kept[::3]),
                *(key for queue in outcome_queues for key in keys.of_queue(queue)),
            ],
        )

    def pack(self, exchange: ExchangeRequest) -> ScriptCall:
        """Return the call of an exchange, to be sent at once; `exchange()` reads its answer, or sends it again."""
        exchange.sent_at = exchange.sent_at or lease_time()
        args = [exchange.worker, exchange.number, exchange.want, *exchange.args]
        exchange.call = self._shard.call(_SETTLE_AND_CLAIM, args, more_keys=exchange.keys)
        return exchange.call

    @sensitive_variables()
    def settle_and_claim(self, exchange: ExchangeRequest) -> ExchangeReply:
        """Hand in outcomes and take claims in one atomic step; safe to repeat until it is answered. O(k log n).

        Raises `StoreError`s, and `StaleExchange` when a later exchange was carried out; the next is a new worker's.
        """
        call, exchange.call = exchange.call or self.pack(exchange), None
        try:
            reply = call.answer()
        except StaleExchange:
            if exchange.number == self._number:
                # Only a number written by hand is later than our last: under this code it might refuse us for ever.
                self.worker, self._number = os.urandom(8), 0
            raise
        now_us, lost, overdue_in_us, queues_version, more, first, recovered, *rows = reply
        token, taken_at = exchange.token, monotonic()
        claims = [
            self._claim(exchange, now_us, taken_at, rows[at] + token, *rows[at + 1 : at + 5])
            for at in range(0, len(rows), 5)
        ]
        return ExchangeReply(
            claimed=exchange.want > 0,
            armed=exchange.armed,
            now_us=now_us,
            lost=_leases(lost),
            overdue_in_us=overdue_in_us,
            queues_version=queues_version,
            has_more=bool(more),
            unknown_worker=bool(first),
            recovered=bool(recovered),
            claims=claims,
        )

    def heartbeat(self, leases: Sequence[bytes], queues: Collection[str] = ()) -> frozenset[bytes]:
        """Push the ends of held leases on, and keep their queues remembered; returns those that are lost.

        One round trip per 500.
        """
        lost: set[bytes] = set()
        names = [encode_queue(queue) for queue in queues]
        for at in range(0, len(leases), _HEARTBEATS):
            held = b"".join(leases[at : at + _HEARTBEATS])
            lost |= _leases(self._shard.run(_HEARTBEAT, [self.worker, self._lease_us, held, *names]))
        return frozenset(lost)

    def _claim(
        self,
        exchange: ExchangeRequest,
        now_us: int,
        taken_at: float,
        lease: bytes,
        queue: int,
        rank: int,
        body: bytes | None,
        record: bytes | None,
    ) -> Claim:
        job, fault = None, None
        name = exchange.queues[queue - 1]
        try:
            # First, so that nothing but the head of a forged body is ever parsed.
            self._seal.verify(lease[:12], body, queue=name)
            job = decode(body, raw_id=lease[:12], shard=self._shard.index)
        except BadBody as error:
            fault = error
        return Claim(
            lease=lease,
            shard=self._shard.index,
            queue=name,
            rank=rank,
            due_us=due_of_rank(rank, lease[13], due_first_us=self._due_first_us),
            job=job,
            fault=fault,
            attempts=AttemptHistory.unpack(record),
            claimed_us=now_us,
            sent_at=exchange.sent_at,
            taken_at=taken_at,
        )


def _leases(joined: bytes) -> frozenset[bytes]:
    return frozenset(joined[at : at + _LEASE] for at in range(0, len(joined), _LEASE))
