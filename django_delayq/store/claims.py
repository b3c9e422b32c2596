"""Claims: settle outcomes and claim jobs in one round trip, and send heartbeats. Called by workers."""

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import monotonic
from typing import Any

from django.views.decorators.debug import sensitive_variables

from django_delayq.clock import lease_time
from django_delayq.exceptions import BadBody, StaleExchange
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.body.codec import decode, try_decode_head
from django_delayq.job.job import Claim, due_of_rank
from django_delayq.job.outcome import Action, Decision
from django_delayq.job.progress import Progress
from django_delayq.job.security.attempts_record import pack_attempts, read_attempts
from django_delayq.job.security.encryption import PROGRESS
from django_delayq.job.security.error_group_record import error_group_of
from django_delayq.job.value import fast_dataclass
from django_delayq.recurring.run import RunOutcome
from django_delayq.store.client.script import Script
from django_delayq.store.client.script_call import ScriptCall
from django_delayq.store.digests import paused_task_digest
from django_delayq.store.keys import encode_queue
from django_delayq.store.nodes.resp import Part
from django_delayq.store.shard import Shard

_SETTLE_AND_CLAIM = Script("settle_and_claim")
_HEARTBEAT, _CLAIM_ONE, _SWEEP = Script("heartbeat"), Script("claim_one"), Script("sweep")
#: Bytes of a lease: member 14, worker id 8, exchange number 8.
_LEASE = 30
#: Most leases in one heartbeat.
_HEARTBEATS = 500


@fast_dataclass
class Settlement:
    """A claim, and the decision on its attempt."""

    claim: Claim
    decision: Decision
    #: Includes the attempt that just ended; not used for acknowledge and release.
    attempts: AttemptHistory
    #: If the job is acknowledged and keeps its result: the JSON to keep, and for how many ms.
    result: bytes = field(default=b"", repr=False)
    ttl_ms: int = 0
    #: If the job of a recurring schedule is acknowledged but was not done: what its schedule keeps of it.
    run_outcome: RunOutcome | None = None


@dataclass(slots=True, kw_only=True)
class ExchangeRequest:
    """One round trip of a worker; sending it again sends the same bytes."""

    #: 8 bytes.
    worker_id: bytes
    number: int
    #: Most claims it makes.
    want: int
    queues: tuple[str, ...]
    #: The arguments of the script that follow the fields above, and its keys.
    args: list[Any] = field(repr=False)
    keys: list[str] = field(repr=False)
    #: `clock.lease_time()` before it was sent for the first time: leases count from here.
    sent_at: float = 0.0
    #: It is sent behind a blocking pop, so its claims are unconfirmed.
    blocking: bool = False
    #: The call whose reply is to be read; None if it must be sent.
    call: ScriptCall | None = field(default=None, repr=False)

    @property
    def token(self) -> bytes:
        """The end of each lease that it makes."""
        return self.worker_id + self.number.to_bytes(8)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExchangeReply:
    """What an exchange returned."""

    #: The request wanted claims; without, the reply does not show whether there is work.
    claimed: bool
    #: It was sent behind a blocking pop, so its claims are unconfirmed.
    blocking: bool
    now_us: int
    #: Leases that the worker had lost before: their outcomes changed nothing.
    lost: frozenset[bytes]
    #: Leases of jobs that somebody stopped. Their retry, release or dead letter was refused.
    stopped: frozenset[bytes] = frozenset()
    #: µs after which a promotion will be overdue; 0: it is, and the worker must promote.
    overdue_in_us: int
    #: Changes when a queue appears or is removed.
    queues_version: bytes
    #: More jobs can be claimed.
    has_more: bool
    #: All of these are of fair queues or have limits, and the reply has as many of those as the worker requested.
    more_are_bounded: bool = False
    #: Digests of the paused tasks. Jobs of these are to be settled as paused.
    paused_tasks: frozenset[bytes] = frozenset()
    #: Some claims may be of paused tasks, or are to be dropped.
    may_turn_away: bool = False
    #: The server knows no earlier exchange of this worker: it is the first, or the server lost its data.
    unknown_worker: bool
    #: Recovered jobs remain, for a worker that has a process for one.
    recovered: bool
    claims: list[Claim]

    @property
    def dispatcher_overdue(self) -> bool:
        """Whether no dispatcher promotes."""
        return not self.overdue_in_us


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepReply:
    """What a sweep returned."""

    #: µs after which a promotion will be overdue; 0: it is, and the worker must promote.
    overdue_in_us: int
    #: Changes when a queue appears or is removed.
    queues_version: bytes
    #: Redis has run the exchange behind the pop.
    was_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    """What a heartbeat returned."""

    #: Leases that the worker had lost.
    lost: frozenset[bytes] = frozenset()
    #: The worker should take no more jobs.
    quiet: bool = False
    #: Lease of each job to stop -> µs until its code must end; 0 means at once.
    stops: Mapping[bytes, int] = field(default_factory=dict)


class Claims:
    """API of one shard for one worker. Not thread-safe."""

    def __init__(self, shard: Shard, *, worker_id: bytes | None = None) -> None:
        self._shard = shard
        self._signer, self._cipher = shard.signer, shard.cipher
        self._due_first_us = shard.config.dispatcher.due_first_us
        self._lease_us = shard.config.worker.lease_us
        #: 8 random bytes; replaced after a stale exchange.
        self.worker_id = worker_id or os.urandom(8)
        self._number = 0
        self._has_fair = any(options.fair for options in shard.config.tasks.queues.values())

    def prepare(
        self,
        *,
        queues: Sequence[str],
        want: int,
        settlements: Sequence[Settlement] = (),
        strict: bool = False,
        may_recover: bool = True,
        worker_name: str = "",
        blocking: bool = False,
        want_fair: int | None = None,
        want_limited: int | None = None,
    ) -> ExchangeRequest:
        """Return the next exchange, not sent yet. If it is sent, its reply must be read before the next one is sent.

        At most `want_fair` claims are of fair queues, and at most `want_limited` have limits; None: all may.

        With `may_recover` it may claim a job whose last attempt crashed, and then that job alone. The claims of a
        `blocking` one are unconfirmed: if their lease expires, no attempt is counted.
        """
        self._number += 1
        keys = self._shard.keys
        acknowledged, not_done, dead, retries, releases = [], [], [], [], []
        kept: list[Any] = []
        outcome_queues: dict[str, int] = {}
        for settlement in settlements:
            claim, decision = settlement.claim, settlement.decision
            if settlement.run_outcome is not None:
                not_done.append(claim.lease + bytes((settlement.run_outcome,)))
            match decision.action:
                case Action.ACKNOWLEDGE | Action.CANCEL if settlement.result:
                    result = self._shard.seal_result(claim.raw_id, settlement.result)
                    kept += [claim.lease, result, settlement.ttl_ms]
                case Action.ACKNOWLEDGE | Action.CANCEL:
                    acknowledged.append(claim.lease)
                case Action.DEAD_LETTER:
                    dead += [claim.lease, self._attempts(settlement), self._error_group(settlement)]
                case Action.RETRY:
                    number = outcome_queues.setdefault(claim.queue, len(outcome_queues) + 1)
                    rank = claim.rank if decision.keeps_rank else b""
                    retries += [claim.lease, number, decision.delay_us, self._attempts(settlement), rank]
                case Action.RELEASE:
                    number = outcome_queues.setdefault(claim.queue, len(outcome_queues) + 1)
                    paused = decision.parks and claim.job
                    releases += [claim.lease, number, claim.rank]
                    releases.append(paused_task_digest(paused.task) if paused else b"")
        counts = (len(dead) // 3, len(retries) // 5, len(kept) // 3)
        return ExchangeRequest(
            worker_id=self.worker_id,
            number=self._number,
            want=want,
            queues=tuple(queues),
            blocking=blocking,
            args=[
                *(self._lease_us, int(strict), len(queues), worker_name, int(may_recover), int(blocking)),
                *(self._fair(queues), want if want_fair is None else want_fair),
                want if want_limited is None else want_limited,
                *(b"".join(acknowledged), b"".join(not_done), *counts, *dead, *retries, *kept, *releases),
            ],
            keys=[
                *(key for queue in queues for key in keys.served(queue)),
                *(keys.results(lease[:12]) for lease in kept[::3]),
                *(key for queue in outcome_queues for key in keys.settled(queue)),
            ],
        )

    def pack(self, exchange: ExchangeRequest) -> ScriptCall:
        """Return the call of an exchange, for a caller that sends it itself; `settle_and_claim()` reads its reply."""
        exchange.sent_at = exchange.sent_at or lease_time()
        args = [exchange.worker_id, exchange.number, exchange.want, *exchange.args]
        exchange.call = self._shard.call(_SETTLE_AND_CLAIM, args, more_keys=exchange.keys)
        return exchange.call

    @sensitive_variables()
    def settle_and_claim(self, exchange: ExchangeRequest) -> ExchangeReply:
        """Apply the outcomes and make the claims in one atomic round trip. O(k log n).

        Safe to repeat with the same request until it returns. Raises `StoreError`s, and `StaleExchange` if a later
        exchange was applied: then the next one has a new worker id.
        """
        call, exchange.call = exchange.call or self.pack(exchange), None
        try:
            reply = call.result()
        except StaleExchange:
            if exchange.number == self._number:
                # Only a number that was edited manually is later than our last. It could refuse this id forever.
                self.worker_id, self._number = os.urandom(8), 0
            raise
        now_us, lost, stopped, overdue_in_us, queues_version, more, unknown, recovered, paused, to_drop, *rows = reply
        token, received_at = exchange.token, monotonic()
        claims = [
            self._claim(exchange, now_us, received_at, rows[at] + token, *rows[at + 1 : at + 5])
            for at in range(0, len(rows), 5)
        ]
        for number in to_drop:
            claims[number - 1] = replace(claims[number - 1], is_dropped=True)
        return ExchangeReply(
            claimed=exchange.want > 0,
            blocking=exchange.blocking,
            now_us=now_us,
            lost=_leases(lost),
            stopped=_leases(stopped),
            overdue_in_us=overdue_in_us,
            queues_version=queues_version,
            has_more=bool(more),
            more_are_bounded=more == 2,
            paused_tasks=frozenset(paused[at : at + 12] for at in range(0, len(paused), 12)),
            may_turn_away=bool(paused or to_drop),
            unknown_worker=bool(unknown),
            recovered=bool(recovered),
            claims=claims,
        )

    def sweep(self, exchange: ExchangeRequest, *, all_queues: bool) -> SweepReply:
        """Find ready jobs whose notification was lost, while the exchange waits behind a blocking pop. O(1) a queue.

        Workers are notified of ready jobs of its queues; `all_queues`: those of all queues. The leases of claims that
        it makes afterwards count from here. It is sent in one write with those of other shards, a few milliseconds
        later.
        """
        sent_at = lease_time()
        more_keys = [key for queue in exchange.queues for key in self._shard.keys.served(queue)]
        args: list[Part] = [exchange.worker_id, exchange.number, int(all_queues)]
        overdue_in_us, queues_version, was_run = self._shard.run(_SWEEP, args, more_keys=more_keys, can_wait=True)
        if not was_run:
            exchange.sent_at = sent_at
        return SweepReply(overdue_in_us=overdue_in_us, queues_version=queues_version, was_run=bool(was_run))

    @sensitive_variables()
    def claim_one(self, raw_id: bytes, *, worker_name: str) -> Claim | None:
        """Claim one waiting job, whenever it is due, also of a paused queue. None: it does not wait. O(log n).

        Not safe to repeat: without a reply it may be claimed, and nobody else can claim it until the lease ends. An
        expired lease counts no attempt until a heartbeat confirms the claim.
        """
        keys = self._shard.keys
        for _ in range(2):
            head = try_decode_head(self._shard.execute("HGET", keys("jobs"), raw_id))
            if head is None:
                break
            self._number += 1
            exchange = ExchangeRequest(
                worker_id=self.worker_id, number=self._number, want=1, queues=(head.queue,), args=[], keys=[]
            )
            exchange.sent_at, member = lease_time(), head.member(raw_id)
            args: list[Part] = [self.worker_id, self._number, member, self._lease_us, self._due_first_us // 1_000]
            word, *claimed = self._shard.run(_CLAIM_ONE, [*args, worker_name], queue=head.queue)
            if word == b"CLAIMED":
                now_us, *row = claimed
                return self._claim(exchange, now_us, monotonic(), member + exchange.token, 1, *row)
            if word != b"ELSEWHERE":
                break
        return None

    def heartbeat(
        self, leases: Sequence[bytes], queues: Collection[str] = (), progress: Mapping[bytes, Progress] | None = None
    ) -> HeartbeatReply:
        """Extend held leases, keep their queues listed, and store the progress of jobs by their leases.

        A round trip per 500 leases, one without leases.
        """
        lost: set[bytes] = set()
        stops: dict[bytes, int] = {}
        quiet, names = False, [encode_queue(queue) for queue in queues]
        for at in range(0, len(leases) or 1, _HEARTBEATS):
            held = leases[at : at + _HEARTBEATS]
            reports = [
                part
                for lease in held
                if progress and lease in progress
                for part in (lease, self._cipher.seal(lease[:12], PROGRESS, progress[lease].pack()))
            ]
            args: list[Part] = [self.worker_id, self._lease_us, b"".join(held), len(names), *names, *reports]
            gone, is_quiet, *asked = self._shard.run(_HEARTBEAT, args)
            lost |= _leases(gone)
            quiet = bool(is_quiet)
            stops.update((lease, max(0, left_us)) for lease, left_us in zip(asked[::2], asked[1::2], strict=True))
        return HeartbeatReply(lost=frozenset(lost), quiet=quiet, stops=stops)

    def _fair(self, queues: Sequence[str]) -> str:
        """Return 1 or 0 for each queue: whether it is fair; "" if none is."""
        if not self._has_fair:
            return ""
        options_of = self._shard.config.tasks.options_of
        flags = "".join("01"[options_of(queue).fair] for queue in queues)
        return flags if "1" in flags else ""

    def _attempts(self, settlement: Settlement) -> bytes:
        return pack_attempts(settlement.attempts, raw_id=settlement.claim.raw_id, cipher=self._cipher)

    def _error_group(self, settlement: Settlement) -> bytes:
        job = settlement.claim.job
        return error_group_of(job.task if job else "", settlement.attempts, self._cipher)

    def _claim(
        self,
        exchange: ExchangeRequest,
        now_us: int,
        received_at: float,
        lease: bytes,
        queue: int,
        rank: int,
        body: bytes | None,
        record: bytes | None,
    ) -> Claim:
        job, fault = None, None
        name = exchange.queues[queue - 1]
        try:
            # Verified first, so that only the head of a forged body is ever parsed.
            self._signer.verify(lease[:12], body, queue=name)
            job = decode(body, raw_id=lease[:12], shard=self._shard.index, cipher=self._cipher)
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
            attempts=read_attempts(record, raw_id=lease[:12], cipher=self._cipher),
            claimed_us=now_us,
            sent_at=exchange.sent_at,
            received_at=received_at,
        )


def _leases(joined: bytes) -> frozenset[bytes]:
    return frozenset(joined[at : at + _LEASE] for at in range(0, len(joined), _LEASE))
