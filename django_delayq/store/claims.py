"""Claims: a worker's exchange with the store, and its heartbeat. Called by workers."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from django.views.decorators.debug import sensitive_variables

from django_delayq.attempts import Attempts
from django_delayq.codec import decode
from django_delayq.exceptions import BadBody, StaleExchange
from django_delayq.job import Claim, due_of_rank
from django_delayq.outcome import Decision, Settle
from django_delayq.seal import Seal
from django_delayq.store.scripts import Script
from django_delayq.store.shard import Shard

_EXCHANGE = Script("exchange")
_HEARTBEAT = Script("heartbeat")
#: Bytes of a lease's member: job's member 14, worker 8, exchange number 8.
_LEASE = 30
#: Leases in one heartbeat, at most.
_HEARTBEATS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Settlement:
    """A claim, and what was decided of it."""

    claim: Claim
    decision: Decision
    #: With the attempt that just ended; unused for acknowledge and release.
    attempts: Attempts


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """One exchange, ready to be sent, and to be sent again word for word."""

    number: int
    queues: tuple[str, ...]
    args: list[Any] = field(repr=False)
    keys: list[str] = field(repr=False)
    #: time.monotonic() before it was sent first: leases count from here.
    sent_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an exchange brought."""

    now_us: int
    #: Leases that were somebody else's by then: their outcomes changed nothing.
    lost: frozenset[bytes]
    #: Nobody promotes; the worker should.
    overdue: bool
    #: Number of queues there are.
    queue_count: int
    #: Takeable work was left behind.
    more: bool
    #: The server knows no earlier exchange of this worker: the first one, or the server was flushed or replaced.
    first: bool
    claims: list[Claim]


class Claims:
    """The door of one worker to one shard."""

    def __init__(self, shard: Shard, *, worker: bytes, lease_us: int, due_first_us: int, seal: Seal) -> None:
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
        description: str = "",
    ) -> Exchange:
        """Make the next exchange; it must be answered before another is made. Sends nothing."""
        self._number += 1
        keys = self._shard.keys
        acknowledged, dead, retries, releases = [], [], [], []
        outcome_queues: dict[str, int] = {}
        for settlement in settlements:
            claim, decision = settlement.claim, settlement.decision
            match decision.settle:
                case Settle.ACKNOWLEDGE:
                    acknowledged.append(claim.lease)
                case Settle.DEAD_LETTER:
                    dead += [claim.lease, settlement.attempts.pack()]
                case Settle.RETRY:
                    number = outcome_queues.setdefault(claim.queue, len(outcome_queues) + 1)
                    retries += [claim.lease, number, decision.delay_us, settlement.attempts.pack()]
                case Settle.RELEASE:
                    number = outcome_queues.setdefault(claim.queue, len(outcome_queues) + 1)
                    releases += [claim.lease, number, claim.rank]
        counts = (len(dead) // 2, len(retries) // 4)
        return Exchange(
            number=self._number,
            queues=tuple(queues),
            args=[
                *(self.worker, self._number, want, self._lease_us, int(strict), len(queues), description),
                *(b"".join(acknowledged), *counts, *dead, *retries, *releases),
            ],
            keys=[
                *(key for queue in queues for key in (keys.ready(queue), keys.bell(queue))),
                *(key for queue in outcome_queues for key in self._places(queue)),
            ],
            sent_at=monotonic(),
        )

    @sensitive_variables()
    def exchange(self, exchange: Exchange) -> Answer:
        """Hand in outcomes and take claims in one atomic step; safe to repeat until it is answered. O(k log n).

        Raises `StoreError`s, and `StaleExchange` when a later exchange was carried out; the next is a new worker's.
        """
        try:
            reply = self._shard.run(_EXCHANGE, exchange.args, more_keys=exchange.keys)
        except StaleExchange:
            if exchange.number == self._number:
                # Only a number written by hand is later than our last: under this code it might refuse us for ever.
                self.worker, self._number = os.urandom(8), 0
            raise
        now_us, lost, overdue, queue_count, more, first, *rows = reply
        token = self.worker + exchange.number.to_bytes(8)
        claims = [
            self._claim(exchange, now_us, rows[at] + token, *rows[at + 1 : at + 5]) for at in range(0, len(rows), 5)
        ]
        return Answer(
            now_us=now_us,
            lost=_leases(lost),
            overdue=bool(overdue),
            queue_count=queue_count,
            more=bool(more),
            first=bool(first),
            claims=claims,
        )

    def heartbeat(self, leases: Sequence[bytes]) -> frozenset[bytes]:
        """Push the ends of held leases on; returns those that are lost. One round trip per 500."""
        lost: set[bytes] = set()
        for at in range(0, len(leases), _HEARTBEATS):
            held = b"".join(leases[at : at + _HEARTBEATS])
            lost |= _leases(self._shard.run(_HEARTBEAT, [self.worker, self._lease_us, held]))
        return frozenset(lost)

    def _places(self, queue: str) -> tuple[str, str, str]:
        keys = self._shard.keys
        return keys.schedule(queue), keys.ready(queue), keys.bell(queue)

    def _claim(
        self,
        exchange: Exchange,
        now_us: int,
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
            self._seal.check(lease[:12], body, queue=name)
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
            attempts=Attempts.unpack(record),
            claimed_us=now_us,
            sent_at=exchange.sent_at,
        )


def _leases(joined: bytes) -> frozenset[bytes]:
    return frozenset(joined[at : at + _LEASE] for at in range(0, len(joined), _LEASE))
