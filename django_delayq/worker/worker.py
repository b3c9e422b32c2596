"""Worker: settle outcomes and claim jobs of one shard in one request, and keep a pool busy with the claims."""

from collections.abc import Callable
from enum import Enum
from time import monotonic, sleep
from typing import Any

from django_delayq.clock import SECOND_US
from django_delayq.conf.config import WorkerConfig
from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.exceptions import StoreError
from django_delayq.job.job import Claim
from django_delayq.job.outcome import UNSTARTED, Outcome, OutcomeKind, stopped
from django_delayq.job.progress import Progress
from django_delayq.logs import logger
from django_delayq.metrics import MetricsBuffer
from django_delayq.processes.reporter import claims_status
from django_delayq.processes.service import Runnable, process_name
from django_delayq.store.claims import Claims, ExchangeReply
from django_delayq.store.operations.limits import LimitOperations
from django_delayq.store.shard import Shard
from django_delayq.worker.claiming.blocking_claim import BlockingClaim
from django_delayq.worker.claiming.heartbeats import Heartbeats
from django_delayq.worker.claiming.leases import HeldClaims
from django_delayq.worker.claiming.prefetch import PrefetchPolicy
from django_delayq.worker.claiming.queue_listener import QueueListener
from django_delayq.worker.claiming.queue_weights import QueueWeights
from django_delayq.worker.claiming.turned_away import turn_away
from django_delayq.worker.claiming.worker_notification import WorkerNotification
from django_delayq.worker.exchange_session import ExchangeSession, InFlight
from django_delayq.worker.fallback_dispatcher import FallbackDispatcher
from django_delayq.worker.outcome_buffer import OutcomeBuffer
from django_delayq.worker.pools.base import Pool
from django_delayq.worker.pools.recovery import RecoveryGate
from django_delayq.worker.settlement import emit_all

#: Seconds a claim may wait in the pool before it is released: short jobs must not wait behind a long one.
_LONGEST_QUEUED = 0.1
#: Seconds after GRACE for the last outcomes and the reply to the last request, if Redis is slow or down.
_LAST_REPLY = 5.0


class Phase(Enum):
    """What a worker may still do."""

    #: Claims jobs.
    RUNNING = "running"
    #: Started with `--drain`: also promotes, and ends when no job is left.
    DRAINING = "draining"
    #: Claims nothing until it may again; the jobs that it holds continue.
    QUIET = "quiet"
    #: Claims nothing, and ends when what it holds has ended.
    STOPPING = "stopping"
    #: GRACE is over: what still runs is settled as interrupted.
    INTERRUPTING = "interrupting"

    @property
    def claims(self) -> bool:
        """Whether the worker claims jobs."""
        return self in (Phase.RUNNING, Phase.DRAINING)

    @property
    def ends(self) -> bool:
        """Whether the worker was stopped."""
        return self in (Phase.STOPPING, Phase.INTERRUPTING)


class Worker(Runnable):
    """The worker of one shard; several may share a pool.

    A step depends on the phase and on what is in flight. The phase changes by `quiet()`, by `stop()`, and by time:

    =============  =======================================  ==================  =================  ====================
    phase          in flight: nothing                       exchange            blocking           reply
    =============  =======================================  ==================  =================  ====================
    RUNNING        exchange if there is reason to; else     send again          wait               read; run claims
                   wait for a notification
    DRAINING       promote; exchange if there is reason     promote; send       (never blocks)     (never blocks)
                   to; else wait; end if no job is left     again
    QUIET          exchange outcomes without claiming;      send again; release cancel; then as    read; release claims
                   else wait; end if draining and idle      claims              exchange
    STOPPING       exchange outcomes at once; else wait;    send again; release cancel; then as    read; release claims
                   end if nothing is held                   claims              exchange
    INTERRUPTING   interrupt what runs; exchange outcomes;  send again, 5 s at  cancel; then as    read; release claims
                   end                                      most; then end      exchange
    =============  =======================================  ==================  =================  ====================

    A blocking request is also cancelled if a recovered job is waiting, if a notification may have been lost, if its
    reply is overdue or lost, and if it does not name a new queue.
    """

    kind = "worker"

    def __init__(
        self,
        *,
        shard: Shard,
        config: WorkerConfig,
        pool: Pool,
        dispatcher: Dispatcher,
        metrics: MetricsBuffer,
        sweep_us: int,
        drain: bool = False,
        sharing: list[PrefetchPolicy] | None = None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """`sharing` has the policies of all workers that use this pool."""
        self._clock, self._config, self._pool = clock, config, pool
        self._fallback = FallbackDispatcher(dispatcher, clock=clock)
        self._sweep = sweep_us / SECOND_US
        self._drain = drain
        self._name = process_name()
        claims = Claims(shard)
        wait_us, store_limits = config.unknown_task_ttl_us, LimitOperations(shard).store_settings
        self._session = ExchangeSession(claims, name=self._name, longest_wait_us=wait_us, store_limits=store_limits)
        self.metrics, self.endings = metrics, dispatcher.endings
        #: Ends the sleep of the loop; called by other threads. The `run_worker` command sets it.
        self.wake: Callable[[], object] = lambda: None
        self._held = HeldClaims(lease_us=config.lease_us, stop_claim=pool.stop)
        self._heartbeats = Heartbeats(
            self._held,
            claims.heartbeat,
            lease_us=config.lease_us,
            name=self._name,
            notification=WorkerNotification(shard, lambda: claims.worker_id),
            is_stuck=pool.is_stuck,
            quiet=self.quiet,
            ended=lambda: self.wake(),
        )
        self._recovered = RecoveryGate(pool.recovery, wake=lambda: self.wake())
        #: Called when jobs were settled as interrupted while their code still runs here. `run_worker` sets it, to end
        #: the process.
        self.on_interrupted: Callable[[], object] = lambda: None
        self._weights = QueueWeights(dict(zip(config.queues, config.weights, strict=True))) if config.weights else None
        self._queues = QueueListener(shard, config.queues, config.queue_filter, weights=self._weights, clock=clock)
        self._blocking_claim = BlockingClaim(self._session, self._queues, pool, config, clock=clock)
        self._outcomes = OutcomeBuffer(clock=clock)
        self._has_limits = bool(shard.config.tasks.limits)
        self._fair_queues = frozenset(name for name, each in shard.config.tasks.queues.items() if each.fair)
        self._prefetch = PrefetchPolicy(pool.size, holds=lambda: self._outcomes.expected, sharing=sharing)
        #: There may be jobs to claim: a notification arrived, or the last exchange left jobs behind.
        self._work_available = True
        self._sweep_at = 0.0
        # The phase is computed, not stored: other threads set the one value, signal handlers the other.
        self._is_quiet = False
        self._grace_until: float | None = None
        # Last: its thread may call `quiet()` at once.
        self._heartbeats.start()

    @property
    def phase(self) -> Phase:
        """The phase at this moment."""
        if self._grace_until is not None:
            return Phase.STOPPING if self._clock() < self._grace_until else Phase.INTERRUPTING
        if self._is_quiet:
            return Phase.QUIET
        return Phase.DRAINING if self._drain else Phase.RUNNING

    @property
    def worker_id(self) -> bytes:
        """The id of this worker in Redis."""
        return self._session.worker_id

    def step(self) -> float | None:
        """Exchange if there is reason to; return the seconds until there may be one, or None when ended."""
        try:
            return self._step()
        except StoreError:
            # While this worker's Redis is down, the other workers of the pool need not wait for it.
            self._recovered.cancel_reservation()
            if self._prefetch.request_ended(wants_more=False, held=self._pool.held):
                self.wake()
            raise

    def _step(self) -> float | None:
        self._heartbeats.check()
        # A reply that has arrived brings a job that is due now, so everything else comes after it.
        if self._session.in_flight is not InFlight.REPLY:
            if self._has_given_up():
                return None
            if self._drain and not self.phase.ends:
                self._promote()
            if seconds := self._blocking_claim.wait(wanted=self.phase.claims and not self._recovered.poll()):
                return self._sweep_while_blocking(seconds)
            self._release_queued()
            # Read once: if GRACE ends later in this step, the next step interrupts what runs.
            phase = self.phase
            if phase is Phase.INTERRUPTING:
                self._held.interrupt_all(self._outcomes, self._pool, settling=self._session.settling)
            if self._session.in_flight is InFlight.NOTHING:
                self._update_queues()
                wait = self._seconds_to_exchange()
                self._prefetch.wants_more = self._work_available and self.phase.claims
                if wait is not None:
                    return None if self._has_ended(phase) else wait
                self._prepare()
        self._exchange()
        return 0.0

    def _sweep_while_blocking(self, seconds: float) -> float:
        """Sweep if it is time. Return the seconds until the next sweep, `seconds` at most."""
        now = self._clock()
        if now >= min(self._sweep_at, self._fallback.check_at):
            overdue_in_us, self._sweep_at = self._blocking_claim.sweep(), now + self._sweep
            self._fallback.record_reply(overdue_in_us)
            if not overdue_in_us:
                self._promote()
        return max(0.0, min(seconds, self._sweep_at - now, self._fallback.check_at - now))

    def listen(self) -> int:
        """Listen for notifications while a slot is free and no job is known; an idle worker sends a blocking request.

        Returns the socket to wait on, or -1.
        """
        self._prefetch.is_full = not self._may_claim()
        return self._blocking_claim.listen(
            idle=not (self._held or self._outcomes or self._drain),
            wanted=not (self._work_available or self._prefetch.is_full),
            until=min(self._sweep_at, self._fallback.check_at),
        )

    def on_wakeup(self) -> None:
        """Read the notification that arrived. Without a free slot, send it on to another worker."""
        notified = self._blocking_claim.consume_wakeup(wanted=self._may_claim())
        self._work_available = notified or self._work_available

    def status(self) -> dict[str, Any]:
        """Return what the dashboard shows of this worker; called by another thread."""
        config = self._config
        filtered = config.queue_filter is not None
        held = claims_status(list(self._held), queues=config.queue_texts, filtered=filtered, weights=config.weights)
        return {"slots": self._pool.size, **held, "quiet": self._is_quiet}

    def quiet(self, wanted: bool) -> None:
        """Claim no more jobs, or claim them again; called by another thread."""
        if wanted != self._is_quiet:
            logger.info("%s %s", self._name, "claims no more jobs (quiet)" if wanted else "claims jobs again")
            self._is_quiet, self._work_available = wanted, True
            self.wake()

    def stop(self) -> None:
        """Claim no more, and end when what runs has ended or GRACE is over.

        Ends at once if nothing runs, and if called again.
        """
        first = self._grace_until is None
        busy = bool(self._held or self._outcomes or self._session.settling)
        self._grace_until = self._clock() + (self._config.grace_us / SECOND_US if first and busy else 0.0)

    def overdue(self) -> float:
        """Return for how many seconds the loop that runs the jobs has been blocked; called by another thread."""
        return self._pool.overdue()

    def close(self) -> None:
        """Close connections and end threads."""
        self._heartbeats.end()
        self._queues.close()
        self._fallback.close()

    def may_begin(self, claim: Claim) -> bool:
        """Whether the claim's lease is surely still held; called by the pool right before its code begins."""
        return self._held.begin(claim.lease)

    def finished(self, claim: Claim, outcome: Outcome) -> None:
        """Buffer an outcome; called by threads of the pool."""
        self._recovered.release(claim)
        if claim.lease in self._held.stopping:
            outcome = stopped(outcome)
        refills = self._work_available and self._pool.held <= self._prefetch.refill_at
        if self._outcomes.add(claim, outcome) or refills:
            self.wake()

    def report_progress(self, claim: Claim, progress: Progress) -> None:
        """Store the progress of a claim's job soon; called by its code."""
        self._heartbeats.report_progress(claim.lease, progress)

    def _may_claim(self) -> bool:
        return self.phase.claims and self._prefetch.load(self._pool.held).has_slot

    def _promote(self) -> None:
        self._work_available = self._fallback.promote() or self._work_available

    def _has_given_up(self) -> bool:
        if self._grace_until is None or self._clock() <= self._grace_until + _LAST_REPLY:
            return False
        logger.warning("%s ends without a reply of Redis; its jobs run again when their leases end", self._name)
        return True

    def _release_queued(self) -> None:
        if self._pool.queued and (self.phase.ends or self._pool.oldest_wait() >= _LONGEST_QUEUED):
            # Before the release is sent: the same exchange would claim them again.
            self._prefetch.back_off()
            self._pool.release_queued()

    def _update_queues(self) -> None:
        if not self.phase.ends:
            self._queues.refresh()
        if self.phase.claims:
            self._queues.send_on()
        elif self._work_available or self._queues.owes_notification:
            self._work_available = False
            self._queues.notify_others()

    def _seconds_to_exchange(self) -> float | None:
        """Return the seconds until there may be reason for an exchange, or None if there is one now."""
        now, phase = self._clock(), self.phase
        if self._outcomes and (phase.ends or self._outcomes.wait <= 0):
            return None
        if self._grace_until is not None:
            return max(0.0, self._grace_until - now)  # Nothing is claimed any more; the end of a job wakes the worker.
        room = phase.claims and self._prefetch.load(self._pool.held).should_refill
        check_at = min(self._sweep_at, self._fallback.check_at)
        recovered = phase.claims and self._recovered.poll()
        if room and (self._work_available or self._queues.wakeup_missed or recovered or now >= check_at):
            return None
        waits = [check_at - now if room else self._sweep, *([self._outcomes.wait] if self._outcomes else [])]
        if self._pool.queued:
            waits.append(_LONGEST_QUEUED - self._pool.oldest_wait())
        return max(0.0, min(waits))

    def _has_ended(self, phase: Phase) -> bool:
        if self._outcomes:
            return False
        if phase.ends:
            return phase is Phase.INTERRUPTING or not self._held
        return self._drain and not (self._work_available or self._pool.held or self._recovered.jobs_left)

    def _prepare(self) -> None:
        with self._outcomes.taken() as ended:
            self._prefetch.observe(
                *(outcome.run_us for _, outcome in ended if outcome.kind is not OutcomeKind.UNSTARTED)
            )
            if self._fair_queues or self._has_limits:
                self._prefetch.record_held(self._held.without(claim for claim, _ in ended), self._fair_queues)
            load = self._prefetch.load(self._pool.held)
            want = load.claim_count if self.phase.claims else 0
            if self._weights:
                want = min(want, self._weights.limit)
                if not self._fair_queues.isdisjoint(self._queues.queues):
                    # No more than of a fair queue: if one queue may give less than another, the exchange says nothing
                    # about which of them are empty.
                    want = min(want, load.fair_count)
            self._prefetch.requested = want
            self._session.prepare(
                ended=ended,
                want=want,
                want_fair=min(want, load.fair_count),
                want_limited=min(want, load.limited_count),
                queues=self._queues.queues,
                strict=self._queues.strict,
                may_recover=want > 0 and self._recovered.may_claim(),
            )
        self._held.settling(self._session.settling)

    def _exchange(self) -> None:
        reply, settled = self._session.exchange(self._outcomes)
        if self._weights:
            # Otherwise a queue of long jobs would pay for claims that waited in vain behind one of them.
            released = [each.claim.queue for each, outcome in settled if outcome.kind is OutcomeKind.UNSTARTED]
            self._weights.record_reply(reply, released=released)
        self._accept_claims(reply)
        if self._prefetch.request_ended(wants_more=self._work_available, held=self._pool.held):
            self.wake()
        self._held.settled(settlement.claim.lease for settlement, _ in settled)
        if any(outcome.kind is OutcomeKind.INTERRUPTED for _, outcome in settled) or (
            # A job that was asked to stop may have been settled as stopped while its code runs on.
            self.phase is Phase.INTERRUPTING and any(outcome.kind is OutcomeKind.STOPPED for _, outcome in settled)
        ):
            self.on_interrupted()
        emit_all(settled, lost=reply.lost, metrics=self.metrics, endings=self.endings)
        if reply.dispatcher_overdue and not self._drain:
            self._promote()

    def _accept_claims(self, reply: ExchangeReply) -> None:
        may_run = self._recovered.record_reply(reply)
        self._held.add(reply.claims)
        self._outcomes.expect(len(reply.claims))
        if self.phase.claims and may_run and self._blocking_claim.confirm(reply):
            was_idle = not self._pool.held
            to_run, others = turn_away(reply) if reply.may_turn_away else (reply.claims, [])
            self._pool.submit(to_run, self)
            for claim, outcome in others:
                self.finished(claim, outcome)
            if was_idle and to_run and not reply.has_more:
                # A thread of the pool waits for the interpreter, which this one would keep for another 80 µs. Not if
                # more can be claimed: the pool would run all of these before this thread could send the next request,
                # so that Redis and the pool would work by turns.
                sleep(0)
        else:
            for claim in reply.claims:
                self.finished(claim, UNSTARTED)
        if reply.claimed:
            self._work_available, self._queues.wakeup_missed = False, False
            self._sweep_at = self._clock() + self._sweep
            must_wait = reply.has_more and not reply.claims
            self._prefetch.record_more(only_bounded=reply.more_are_bounded, must_wait=must_wait)
        is_stale = self._queues.mark_if_stale(reply.queues_version)
        self._work_available = is_stale or reply.has_more or self._work_available
        self._fallback.record_reply(reply.overdue_in_us)
