"""Worker: exchange outcomes for claims with one shard, and keep a pool busy with them."""

import os
from collections.abc import Callable
from time import monotonic, sleep
from typing import Any

from django_delayq.clock import SECOND_US
from django_delayq.conf.config import WorkerConfig
from django_delayq.dispatcher import Dispatcher
from django_delayq.exceptions import StoreError
from django_delayq.job.job import Claim
from django_delayq.job.outcome import UNSTARTED, Outcome, OutcomeKind
from django_delayq.log import logger
from django_delayq.metrics import MetricsBuffer
from django_delayq.processes.reporter import claims_status
from django_delayq.processes.service import process_name
from django_delayq.store.claims import Claims, ExchangeReply
from django_delayq.store.shard import Shard
from django_delayq.worker.blocking_claim import BlockingClaim
from django_delayq.worker.exchange_session import ExchangeSession
from django_delayq.worker.fallback_dispatcher import FallbackDispatcher
from django_delayq.worker.leases import HeldClaims
from django_delayq.worker.outcome_buffer import OutcomeBuffer
from django_delayq.worker.pools.base import Pool
from django_delayq.worker.pools.recovery import RecoveryGate
from django_delayq.worker.prefetch import PrefetchPolicy
from django_delayq.worker.queue_listener import QueueListener
from django_delayq.worker.settlement import emit_all

#: Seconds a claim may wait in the pool before it is given back: short jobs must not wait behind a long one.
_UNBEGUN = 0.1
#: Seconds after GRACE to hand in the last outcomes, and to learn what was claimed last, where Redis is slow or away.
_LAST_WORD = 5.0


class Worker:
    """The worker of one shard; several may share a pool."""

    kind = "worker"

    def __init__(
        self,
        *,
        shard: Shard,
        door: Callable[[bytes], Claims],
        config: WorkerConfig,
        pool: Pool,
        dispatcher: Dispatcher,
        tally: MetricsBuffer,
        sweep_us: int,
        drain: bool = False,
        sharing: list[PrefetchPolicy] | None = None,
    ) -> None:
        """`sharing` has the paces of all workers that use this pool; this one's is added."""
        self._config = config
        self._pool = pool
        self._fallback = FallbackDispatcher(dispatcher)
        self._sweep = sweep_us / SECOND_US
        self._drain = drain
        self._name = process_name()
        claims = door(os.urandom(8))
        self._session = ExchangeSession(claims, name=self._name)
        self.metrics = tally
        #: Called by other threads to end the loop's sleep; set by whoever runs this part.
        self.wake: Callable[[], object] = lambda: None
        self._held = HeldClaims(
            claims.heartbeat, pool.is_stuck, lease_us=config.lease_us, name=self._name, ended=lambda: self.wake()
        )
        self._recovered = RecoveryGate(pool.recovery, wake=lambda: self.wake())
        #: Called once Redis has jobs back whose code still runs here; set by whoever can end the process.
        self.given_back: Callable[[], object] = lambda: None
        self._queues = QueueListener(shard, config.queues)
        self._blocking_claim = BlockingClaim(self._session, self._queues, pool, config)
        self._outcomes = OutcomeBuffer()
        self._prefetch = PrefetchPolicy(pool.size, holds=lambda: self._outcomes.expected, sharing=sharing)
        #: There may be work to take: a bell rang, or the last exchange left some behind.
        self._work_available = True
        self._sweep_at = 0.0
        self._stop_by: float | None = None
        self._quiet = False

    def step(self) -> float | None:
        """Exchange if there is reason to; return the seconds until there may be one, or None when ended."""
        try:
            return self._step()
        except StoreError:
            # While its Redis is away, the others of this pool need not wait for this worker.
            self._recovered.cancel_reservation()
            if self._prefetch.leave_room(wants=False, held=self._pool.held):
                self.wake()
            raise

    def _step(self) -> float | None:
        self._held.check()
        # After a bell the answer of the armed exchange has arrived: a job waits, so everything else comes later.
        if not self._blocking_claim.is_ready():
            if self._stop_by is not None and monotonic() > self._stop_by + _LAST_WORD:
                logger.warning("%s ends without an answer of Redis; its jobs run again when leases lapse", self._name)
                return None
            if self._drain and self._stop_by is None:
                self._work_available = self._fallback.promote() or self._work_available
            if left := self._blocking_claim.wait(wanted=self._takes and not self._recovered.poll()):
                return left
            if self._stop_by is None and not self._session.in_flight:
                self._queues.refresh()
            self._release_unbegun()
            if self._work_available and not self._session.in_flight and not self._takes:
                self._work_available = False
                self._queues.notify_others()
            self._interrupt_running()
            if not self._session.in_flight:
                wait = self._wait()
                self._prefetch.wants = self._work_available and self._takes
                if wait is not None:
                    return None if self._has_ended() else wait
                self._prepare()
        answer, settled = self._session.exchange(self._outcomes)
        self._accept_claims(answer)
        if self._prefetch.leave_room(wants=self._work_available, held=self._pool.held):
            self.wake()
        self._held.settled(settlement.claim.lease for settlement, _ in settled)
        if any(outcome.kind is OutcomeKind.INTERRUPTED for _, outcome in settled):
            self.given_back()
        emit_all(settled, lost=answer.lost, tally=self.metrics)
        if answer.dispatcher_overdue and not self._drain:
            self._work_available = self._fallback.promote() or self._work_available
        return 0.0

    def listen(self) -> int:
        """Listen to the bells while a slot is free and no work is known of; an idle worker arms its next exchange."""
        self._prefetch.deaf = not self._may_take()
        idle, wanted = (
            not (self._held or self._outcomes or self._drain),
            not (self._work_available or self._prefetch.deaf),
        )
        return self._blocking_claim.listen(idle=idle, wanted=wanted, until=min(self._sweep_at, self._fallback.check_at))

    def on_wakeup(self) -> None:
        """Read the bell that rang, or ring it again for a worker that has a slot free."""
        self._work_available = (
            self._blocking_claim.consume_wakeup(wanted=self._blocking_claim.waits or self._may_take())
            or self._work_available
        )

    @property
    def worker_id(self) -> bytes:
        """How Redis knows this worker."""
        return self._session.worker_id

    def status(self) -> dict[str, Any]:
        """Return what the dashboard shows of this worker besides its process; called by another thread."""
        held = claims_status(list(self._held), queues=self._config.queues)
        return {"slots": self._pool.size, **held, "quiet": self._quiet}

    def quiet(self, asked: bool) -> None:
        """Take no more jobs, or take them again; called by another thread."""
        if asked != self._quiet:
            logger.info("%s %s", self._name, "was asked to take no more jobs" if asked else "takes jobs again")
            self._quiet, self._work_available = asked, True
            self.wake()

    @property
    def _takes(self) -> bool:
        return self._stop_by is None and not self._quiet

    def _may_take(self) -> bool:
        return self._takes and self._prefetch.load(self._pool.held).has_slot

    def stop(self) -> None:
        """Claim no more; end when what runs has ended or GRACE is over; where nothing runs, or called again: now."""
        patient = self._stop_by is None and bool(self._held or self._outcomes or self._session.settling)
        self._stop_by = monotonic() + (self._config.grace_us / SECOND_US if patient else 0.0)

    def close(self) -> None:
        """Let go of connections and threads."""
        self._held.close()
        self._queues.close()
        self._fallback.close()

    def _wait(self) -> float | None:
        """Return the seconds until there may be reason for an exchange, or None where one is due now."""
        now = monotonic()
        if self._outcomes and (self._stop_by is not None or self._outcomes.wait <= 0):
            return None
        if self._stop_by is not None:
            return max(0.0, self._stop_by - now)  # Nothing is claimed any more; a running job's end wakes us.
        room = not self._quiet and self._prefetch.load(self._pool.held).is_time
        ask_at = min(self._sweep_at, self._fallback.check_at)
        recovered = self._takes and self._recovered.poll()
        if room and (self._work_available or self._queues.wakeup_missed or recovered or now >= ask_at):
            return None
        waits = [ask_at - now if room else self._sweep, *([self._outcomes.wait] if self._outcomes else [])]
        if self._pool.queued:
            waits.append(_UNBEGUN - self._pool.oldest_wait())
        return max(0.0, min(waits))

    def _prepare(self) -> None:
        with self._outcomes.taken() as ended:
            self._prefetch.observe(
                *(outcome.run_us for _, outcome in ended if outcome.kind is not OutcomeKind.UNSTARTED)
            )
            want = self._prefetch.asked = self._prefetch.load(self._pool.held).claim_count if self._takes else 0
            served, recovers = self._queues, want > 0 and self._recovered.may_claim()
            self._session.prepare(
                ended=ended, want=want, queues=served.queues, strict=served.strict, may_recover=recovers
            )
        self._held.leases.settling(self._session.settling)

    def _accept_claims(self, answer: ExchangeReply) -> None:
        may_run = self._recovered.record_reply(answer)
        self._held.add(answer.claims)
        self._outcomes.expect(len(answer.claims))
        if self._takes and may_run and self._blocking_claim.confirm(answer):
            was_idle = not self._pool.held
            self._pool.submit(answer.claims, self)
            if was_idle and answer.claims:
                # A thread of the pool waits for the interpreter, which this one would keep for another 80 µs.
                sleep(0)
        else:
            for claim in answer.claims:
                self.finished(claim, UNSTARTED)
        if answer.claimed:
            self._work_available, self._queues.wakeup_missed = False, False
            self._sweep_at = monotonic() + self._sweep
        news = self._queues.compare(answer.queues_version)
        self._work_available = news or answer.has_more or self._work_available
        self._fallback.told(answer.overdue_in_us)

    def may_begin(self, claim: Claim) -> bool:
        """Whether the claim's lease is surely still held; called by the pool right before its code begins."""
        return self._held.leases.begin(claim.lease)

    def finished(self, claim: Claim, outcome: Outcome) -> None:
        """Take an outcome down; called by threads of the pool."""
        self._recovered.release(claim)
        if self._outcomes.add(claim, outcome) or (self._work_available and self._pool.held <= self._prefetch.refill_at):
            self.wake()

    def _release_unbegun(self) -> None:
        if self._pool.queued and (self._stop_by is not None or self._pool.oldest_wait() >= _UNBEGUN):
            # Before they are handed in: the same exchange would take them again.
            self._prefetch.back_off()
            self._pool.release_queued()

    def _interrupt_running(self) -> None:
        """Once GRACE is over, settle what runs as interrupted, and release what waits for its own process to start."""
        if self._stop_by is not None and monotonic() >= self._stop_by:
            self._held.interrupt_all(self._outcomes, self._pool, settling=self._session.settling)

    def _has_ended(self) -> bool:
        idle = not self._outcomes and not self._session.in_flight
        if self._stop_by is not None:
            return idle and (not self._held or monotonic() >= self._stop_by)
        return idle and self._drain and not (self._work_available or self._pool.held or self._recovered.jobs_left)
