"""Dispatcher: moves due jobs to ready and reclaims jobs with expired leases, then sleeps until the next due time.

Any number may run on a shard: the steps are atomic, so a second dispatcher is harmless. The one that promoted last
promotes again. The others wake a moment later, see that it did, and sleep on; if it did not, they promote. There is no
election.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from time import monotonic, time_ns
from typing import Any

from django_delayq.clock import SECOND_US, estimated_us
from django_delayq.dispatcher.declarer import Declarer
from django_delayq.dispatcher.planter import Planter
from django_delayq.job.ending import EndingBuffer
from django_delayq.job.job import State
from django_delayq.job.outcome import Action, Decision, Outcome, OutcomeKind, decide, error_class, kind_of_fault
from django_delayq.job.result import Result
from django_delayq.job.retry import MAX_ATTEMPTS, RetryPolicy
from django_delayq.logs import job_fields, logger
from django_delayq.metrics import MetricsBuffer, MinuteSeries
from django_delayq.processes.emitter import Emit, emitter
from django_delayq.processes.service import Runnable
from django_delayq.processes.ticks import process_share, until_tick
from django_delayq.signals import announce, job_dead_lettered
from django_delayq.store.promotion import ExpiredLease, Promotion, PromotionResult, Reclaim
from django_delayq.store.shard import Shard
from django_delayq.task import registry

#: Seconds after which a dispatcher promotes, even if others announced a later promotion.
_PROMOTE_AGAIN = 30.0
#: Range of the seconds that a follower wakes after the one that promotes: random, so that not all followers take over.
_FOLLOWER_DELAY = (0.02, 0.06)
#: Seconds for which the pop for notifications is outstanding.
_BLOCK = 60.0
#: µs by which a job is late whose notification was lost.
_LOST_US = 50_000
#: Most seconds until an announced promotion: the longest sweep, which is 5 s, and time for delays.
_LONGEST_SWEEP = 6.0
#: Longest lead, in µs: beyond that the machine is overloaded, and waking earlier does not help.
_LONGEST_LEAD_US = 2_000
#: Share of a lateness that is added to the lead, and share of the lead that remains after an early promotion.
_LATE_GAIN, _EARLY_FACTOR = 0.3, 0.93


class LeadTime:
    """Adaptive lead of one dispatcher: it wakes just early enough for `promote` to reach Redis at the due time.

    Waking up, running our own code on cold caches and sending the command take 0.3 to 1 ms, depending on the machine.
    The lead grows after each late promotion and shrinks after an early one. An early promotion is harmless, since only
    Redis decides what is due: it moves nothing, and the next one follows at once, from a process that is awake. So the
    factors aim early. At 200 jobs a second, 0.7 promotions a job are early; with a gain of 0.1 and a factor of 0.7 it
    was 0.13, and jobs were promoted 0.1 ms later.
    """

    def __init__(self) -> None:
        self._lead_us = 0.0

    @property
    def lead_us(self) -> float:
        """The lead in µs; a job that is due within it is not slept for."""
        return self._lead_us

    def sleep(self, sleep_us: int) -> float:
        """Return the seconds to sleep for a job that is due in `sleep_us`."""
        return max(0.0, (sleep_us - self._lead_us) / SECOND_US)

    def record_late(self, late_us: int) -> None:
        """Lengthen the lead after a promotion that moved a job `late_us` after its due time."""
        self._lead_us = min(_LONGEST_LEAD_US, self._lead_us + _LATE_GAIN * min(max(0, late_us), _LONGEST_LEAD_US))

    def record_early(self) -> None:
        """Shorten the lead after a promotion that came before the due time."""
        self._lead_us *= _EARLY_FACTOR


class Dispatcher(Runnable):
    """The dispatcher of one shard, run by a `Service`."""

    kind = "dispatcher"

    def __init__(
        self,
        shard: Shard,
        promotion: Promotion,
        *,
        declarer: Declarer | None = None,
        metrics: MetricsBuffer | None = None,
        emit: Emit = emitter.emit,
    ) -> None:
        self._shard = shard
        self._promotion = promotion
        #: None in tests of projects, which declare when they want to.
        self._declarer = declarer
        self._emit = emit
        #: Queues for the next promotion, as the last one returned them.
        self._queues: Sequence[str] = ()
        self._planter = Planter(shard)
        self._listener = shard.blocking_listener()
        self._lead_time = LeadTime()
        # The same in all shards of a process, so that their requests go out together.
        shortest, longest = _FOLLOWER_DELAY
        self._follower_delay = shortest + process_share() * (longest - shortest)
        #: Another dispatcher promoted last, so this one is a follower.
        self._follows = False
        #: A notification arrived since the last step.
        self._notified = False
        #: The last promotion found nothing that is due before the next sweep.
        self._is_idle = False
        #: The next promotion, as announced in Redis (µs since the epoch, Redis's clock) and by time.monotonic().
        self._wake_at_us, self._wake_at = 0, 0.0
        #: time.monotonic() of this dispatcher's last promotion.
        self._promoted_at = 0.0
        #: Dead letters that were dropped since the last log line about them.
        self._dropped = 0
        #: Shared with the worker in its fallback dispatcher.
        self.metrics = metrics or MetricsBuffer()
        self.endings = EndingBuffer(-(-shard.config.dispatcher.finished_kept // shard.layout.served))
        self._stats = MinuteSeries()

    def step(self) -> float | None:
        """Promote due jobs and reclaim expired leases; return the seconds until the next step, None once stopped."""
        if self.stopped:
            return None
        notified, self._notified = self._notified, False
        wait = self._follow(notified=notified)
        if wait is not None:
            return wait
        promoted = self.promote(sweep_us=self._until_sweep_us(), can_wait=self._is_idle and not notified)
        # A dispatcher that wakes early for the moment it announced itself (see LeadTime) is no follower.
        self._follows = promoted.redundant and (self._follows or promoted.next_promotion_us != self._wake_at_us)
        self._wake_at_us = promoted.next_promotion_us
        self._promoted_at = monotonic()
        self._wake_at = self._promoted_at + promoted.sleep_us / SECOND_US
        if promoted.moved:
            self._lead_time.record_late(promoted.late_us)
        elif promoted.sleep_us <= self._lead_time.lead_us and not promoted.schedules:
            self._lead_time.record_early()
        if self._is_idle and promoted.moved and promoted.late_us > _LOST_US:
            # Its notification did not arrive, so the connection may be dead.
            self._listener.close()
        self._is_idle = promoted.is_idle
        return self._lead_time.sleep(promoted.sleep_us) + (self._follower_delay if self._follows else 0.0)

    def _until_sweep_us(self) -> int:
        """Return the µs until the next sweep: of several shards at a tick, so that they sweep together."""
        sweep_us = self._shard.config.dispatcher.sweep_us
        return int(until_tick(sweep_us / SECOND_US) * SECOND_US) if self._shard.layout.served > 1 else sweep_us

    def _follow(self, *, notified: bool) -> float | None:
        """Return the seconds to sleep if another dispatcher promoted for this moment, or None to promote."""
        # A follower promotes now and then nevertheless, because the clocks of two hosts drift apart.
        if not self._follows or notified or monotonic() - self._promoted_at > _PROMOTE_AGAIN:
            return None
        wake_at_us = self._promotion.read_next_promotion()
        if wake_at_us is None or wake_at_us <= self._wake_at_us:
            return None
        # Only differences between moments of Redis's clock can be added to this host's clock.
        self._wake_at += (wake_at_us - self._wake_at_us) / SECOND_US
        self._wake_at_us = wake_at_us
        wait = self._wake_at - monotonic()
        # A moment farther ahead than any sweep means that Redis's clock was set.
        return wait + self._follower_delay if 0.0 < wait <= _LONGEST_SWEEP else None

    def promote(self, *, sweep_us: int | None = None, can_wait: bool = False) -> PromotionResult:
        """Promote due jobs and reclaim expired leases. See `Promotion.promote()` for the arguments.

        One round trip; two if a queue is due that the last call did not return; more if leases have expired, if jobs of
        recurring schedules are to be planted, and once a minute to see who declared these schedules.
        """
        if self._declarer is not None:
            self._declarer.step()
        promoted = self._promotion.promote(self._queues, sweep_us=sweep_us, can_wait=can_wait)
        if not (promoted.sleep_us or promoted.moved or set(promoted.queues).issubset(self._queues)):
            self._dropped += promoted.trimmed
            promoted = self._promotion.promote(promoted.queues)
        if promoted.limits_to_let_in:
            self._promotion.let_in(promoted.limits_to_let_in, promoted.parked_in)
            again = self._promotion.promote(promoted.queues)
            moved, late_us = promoted.moved + again.moved, max(promoted.late_us, again.late_us)
            self._dropped += promoted.trimmed
            promoted = replace(again, moved=moved, late_us=late_us)
        if promoted.schedules:
            self._planter.plant(promoted.schedules, now_us=promoted.next_promotion_us - promoted.sleep_us)
            # The rest is planted after the jobs that are due by then.
            promoted = replace(promoted, sleep_us=0)
        self._queues = promoted.queues
        if promoted.moved:
            self._stats.record_promotion(promoted.moved, late_us=promoted.late_us, now_us=time_ns() // 1_000)
        for leases in self._promotion.batches(promoted.expired_leases):
            self._reclaim(leases)
        self._dropped += promoted.trimmed
        # Thousands of them take many steps in a row, which share one log line.
        if self._dropped and promoted.sleep_us > 0:
            limits = "DEAD_MAX_AGE, DEAD_MAX_COUNT or DEAD_MAX_BYTES"
            logger.warning("Dropped %d dead letters beyond %s", self._dropped, limits)
            self._dropped = 0
        return promoted

    @property
    def worker_id(self) -> bytes:
        """This dispatcher's name in Redis: 8 random bytes."""
        return self._promotion.dispatcher_id

    def status(self) -> dict[str, Any]:
        """Return the figures of this dispatcher for its report; called by the thread of the reporter."""
        hour = self._stats.hour(time_ns() // 1_000)
        return {"promoted": hour.promoted, "lag_p95_us": hour.lag_us(0.95)}

    def quiet(self, wanted: bool) -> None:
        """Do nothing: a dispatcher claims no jobs."""

    def listen(self) -> int:
        """Listen for notifications of an earlier due time; return the socket. Raises `StoreError`."""
        self._listener.listen([self._shard.keys("notify_dispatcher")], now=monotonic(), block=_BLOCK)
        return self._listener.fileno()

    def on_wakeup(self) -> None:
        """Consume the notification; the next step promotes. Raises `StoreError`."""
        self._listener.read_notification()
        self._notified = True

    def close(self) -> None:
        """Close the connection that listens."""
        self._listener.close()

    def _reclaim(self, leases: Sequence[bytes]) -> None:
        """Settle expired leases by the same `decide` as workers do.

        The retry policy travels in the job, so no user code is needed.
        """
        items = self._promotion.read_expired_leases(leases)
        judged = [(item, *_judge(item)) for item in items]
        now_us = estimated_us(self._shard.clock)
        reclaims = [_to_reclaim(item, outcome, decision, now_us=now_us) for item, outcome, decision in judged]
        done = self._promotion.reclaim(reclaims)
        for (item, outcome, decision), reclaim, is_done in zip(judged, reclaims, done, strict=True):
            # Otherwise somebody settled, revived or reclaimed the job meanwhile, and announces that.
            if is_done and reclaim.attempts.spared and not reclaim.stops:
                text = "Job %s: worker %s did not confirm its claim; no attempt is counted"
                logger.info(text, item.id, item.worker, extra=job_fields(item.id, item.job, item.attempts.ended + 1))
            elif is_done:
                counted = "cancelled" if reclaim.stops else "retried" if reclaim.queue is not None else "dead"
                queue, task = item.queue or "", item.job.task if item.job else ""
                self.metrics.count_attempt(counted, queue=queue, task=task, reclaimed=True)
                if reclaim.queue is None:
                    before, kept_ms = item.attempts.ended, reclaim.ttl_ms if reclaim.result else 0
                    end = (item.lease, task, queue, before, counted, now_us, None, None, kept_ms, item.worker)
                    self.endings.add(end)
                self._emit([partial(_announce, item, outcome, decision, reclaim)])


def _announce(item: ExpiredLease, outcome: Outcome, decision: Decision, reclaim: Reclaim) -> None:
    """Log a reclaimed job; send the signals of a dead letter."""
    task, queue, attempt = item.job and item.job.task, item.queue, reclaim.attempts.ended + reclaim.stops
    error = None if decision.action is Action.CANCEL else error_class(outcome.kind)(outcome.error)
    logger.warning(
        "Job %s of %r in %r: its lease expired on worker %s, attempt %d; %s",
        item.id,
        task,
        queue,
        item.worker,
        attempt,
        decision.action,
        # The record of a dead letter, which follows, has its exception.
        exc_info=error if decision.action is Action.RETRY else None,
        extra=job_fields(item.id, item.job, attempt),
    )
    sender = registry.find(item.job.task) if item.job and decision.action is not Action.RETRY else None
    if decision.action is Action.DEAD_LETTER:
        facts = {"job_id": item.id, "job": item.job, "attempt": attempt}
        announce(job_dead_lettered, sender, error=error, **facts, reason=outcome.error)
    if item.job and sender is not None:
        sender.on_finished(item.job, attempts=reclaim.attempts, stored=reclaim.result or None, error=error)


def _judge(item: ExpiredLease) -> tuple[Outcome, Decision]:
    kind = OutcomeKind.LEASE_EXPIRED if item.job is not None else kind_of_fault(item.fault)
    if kind in (OutcomeKind.NEWER, OutcomeKind.UNKNOWN_KEY):
        # The lapse counts, or a job that kills its worker never ends. Only a newer process, or one with the key, knows
        # its policy.
        kind, policy = OutcomeKind.LEASE_EXPIRED, RetryPolicy(max_attempts=MAX_ATTEMPTS)
    else:
        policy = item.job.retry if item.job is not None else RetryPolicy()
    if kind is OutcomeKind.LEASE_EXPIRED:
        error = f"The worker {item.worker} did not finish and its lease expired: killed, frozen, or cut off."
    else:
        error = str(item.fault)
    outcome = Outcome(kind=OutcomeKind.STOPPED if item.stops else kind, error=error)
    return outcome, decide(outcome, policy, attempt=item.attempts.ended + 1, jitter=random.random())


def _to_reclaim(item: ExpiredLease, outcome: Outcome, decision: Decision, *, now_us: int) -> Reclaim:
    if decision.action is Action.CANCEL:
        result, ttl_ms = b"", 0
        if item.job and (ttl_ms := item.job.result_ttl_ms):
            result = Result(
                state=State.CANCELLED, ended_us=now_us, started_us=item.claimed_us, worker=item.worker
            ).pack()
        return Reclaim(lease=item.lease, attempts=item.attempts, queue=None, stops=True, result=result, ttl_ms=ttl_ms)
    if item.unconfirmed and item.queue is not None and not item.attempts.spared:
        return Reclaim(lease=item.lease, attempts=replace(item.attempts, spared=True), queue=item.queue)
    attempts = item.attempts.add(
        worker=item.worker,
        started_us=item.claimed_us,
        ended_us=None,
        ending=outcome.kind,
        error=outcome.error,
        crash_suspected=decision.crash_suspected,
    )
    queue = item.queue if decision.action is Action.RETRY else None
    task = item.job.task if item.job else ""
    return Reclaim(lease=item.lease, attempts=attempts, queue=queue, task=task, delay_us=decision.delay_us)
