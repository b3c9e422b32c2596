"""Dispatcher: move due jobs to ready and judge lapsed leases, then sleep until the next due time.

Any number may run on a shard: the steps are atomic, so a second one is harmless. The one that promoted last promotes
again; the others come a moment later, see that it did, and sleep on. Nobody is elected: who sees that it did not,
promotes.
"""

import random
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from time import monotonic, time_ns
from typing import Any

from django_delayq.clock import SECOND_US
from django_delayq.job.outcome import Action, Decision, Outcome, OutcomeKind, decide, kind_of_fault
from django_delayq.job.retry import RetryPolicy
from django_delayq.log import logger
from django_delayq.metrics import MetricsBuffer, MinuteSeries
from django_delayq.processes.emitter import Emit, emitter
from django_delayq.signals import announce, job_dead_lettered
from django_delayq.store.promotion import ExpiredLease, Promotion, PromotionResult, Reclaim
from django_delayq.store.shard import Shard
from django_delayq.task import registry

#: Seconds after which a dispatcher promotes itself, whatever others announced.
_PROMOTE_AGAIN = 30.0
#: Seconds that a dispatcher comes after another one, at least and at most: not all at once where that one is gone.
_HOLD_OFF = (0.02, 0.06)
#: Seconds that no announced promotion is ahead by.
_LONGEST_SWEEP = 6.0
#: Longest lead, in µs: beyond that the machine is overloaded, and waking earlier does not help.
_LONGEST_LEAD_US = 2_000
#: Share of a lateness that is added to the lead, and what an early promotion leaves of it.
_MORE, _LESS = 0.1, 0.7


class LeadTime:
    """How long before a due time one dispatcher wakes, so that `promote` reaches Redis just when the job is due.

    Between the end of a timer and Redis lie the wake-up, our own code on cold caches, and the way there: 0.3 to 1 ms,
    depending on the machine. The lead adapts: it grows a little after each late promotion and shrinks a lot after an
    early one, which moves nothing and costs one more step. An early promotion is harmless, since only Redis decides
    what is due.
    """

    def __init__(self) -> None:
        self._lead_us = 0.0

    @property
    def lead_us(self) -> float:
        """The lead in µs: a job that is due within it counts as due."""
        return self._lead_us

    def sleep(self, sleep_us: int) -> float:
        """Return the seconds to sleep for a job that is due in `sleep_us`."""
        return max(0.0, (sleep_us - self._lead_us) / SECOND_US)

    def record_late(self, late_us: int) -> None:
        """Lengthen the lead after a promotion that found a job due so long ago."""
        self._lead_us = min(_LONGEST_LEAD_US, self._lead_us + _MORE * min(max(0, late_us), _LONGEST_LEAD_US))

    def record_early(self) -> None:
        """Shorten the lead after a promotion that came before its time."""
        self._lead_us *= _LESS


class Dispatcher:
    """The dispatcher of one shard."""

    kind = "dispatcher"

    def __init__(
        self, shard: Shard, promotion: Promotion, *, tally: MetricsBuffer | None = None, emit: Emit = emitter.emit
    ) -> None:
        self._shard = shard
        self._promotion = promotion
        self._emit = emit
        #: Queues that the next promotion names: the last one returned them as due by then.
        self._queues: Sequence[str] = ()
        self._listener = shard.blocking_listener()
        self._lead_time = LeadTime()
        self._stopping = False
        #: Another dispatcher promoted last; the alarm rang here since the last step.
        self._follows, self._called = False, False
        #: The next promotion: as announced in Redis (µs), and by this host's clock; and when this one promoted last.
        self._wake_at_us, self._wakes_at, self._promoted_at = 0, 0.0, 0.0
        #: Dead letters that were dropped since the last log line about them.
        self._dropped = 0
        #: A stand-in adds to its worker's.
        self.metrics = tally or MetricsBuffer()
        self._stats = MinuteSeries()

    def step(self) -> float | None:
        """Promote what is due, judge what lapsed; return the seconds until the next thing to do."""
        if self._stopping:
            return None
        wait = self._follow()
        if wait is not None:
            return wait
        promoted = self.promote()
        # Who comes early for the moment it announced itself (see LeadTime) is no second one.
        self._follows = promoted.second and (self._follows or promoted.wake_at_us != self._wake_at_us)
        self._wake_at_us = promoted.wake_at_us
        self._promoted_at = monotonic()
        self._wakes_at = self._promoted_at + promoted.sleep_us / SECOND_US
        if promoted.moved:
            self._lead_time.record_late(promoted.late_us)
        elif promoted.sleep_us <= self._lead_time.lead_us:
            self._lead_time.record_early()
        return self._lead_time.sleep(promoted.sleep_us) + (random.uniform(*_HOLD_OFF) if self._follows else 0.0)

    def _follow(self) -> float | None:
        """Return the seconds to sleep where another dispatcher promoted for this moment, or None: promote."""
        called, self._called = self._called, False
        # Now and then all the same: two clocks drift apart.
        if not self._follows or called or monotonic() - self._promoted_at > _PROMOTE_AGAIN:
            return None
        wake_at_us = self._promotion.read_wake_at()
        if wake_at_us is None or wake_at_us <= self._wake_at_us:
            return None
        # Differences of moments, since only Redis knows its own clock.
        self._wakes_at += (wake_at_us - self._wake_at_us) / SECOND_US
        self._wake_at_us = wake_at_us
        wait = self._wakes_at - monotonic()
        # Farther ahead than any sweep: the clock was set.
        return wait + random.uniform(*_HOLD_OFF) if 0.0 < wait <= _LONGEST_SWEEP else None

    def promote(self) -> PromotionResult:
        """Do one whole step. One round trip, two where a queue is due that the last step did not know of."""
        promoted = self._promotion.promote(self._queues)
        if not (promoted.sleep_us or promoted.moved or set(promoted.queues).issubset(self._queues)):
            self._dropped += promoted.trimmed
            promoted = self._promotion.promote(promoted.queues)
        self._queues = promoted.queues
        if promoted.moved:
            self._stats.record_promotion(promoted.moved, late_us=promoted.late_us, now_us=time_ns() // 1_000)
        for leases in self._promotion.batches(promoted.expired_leases):
            self._judge(leases)
        self._dropped += promoted.trimmed
        # Where thousands go there are many steps in a row: one line for all of them.
        if self._dropped and promoted.sleep_us > 0:
            limits = "DEAD_MAX_AGE, DEAD_MAX_COUNT or DEAD_MAX_BYTES"
            logger.warning("Dropped %d dead letters beyond %s", self._dropped, limits)
            self._dropped = 0
        return promoted

    @property
    def worker_id(self) -> bytes:
        """How Redis knows this dispatcher."""
        return self._promotion.code

    def status(self) -> dict[str, Any]:
        """Return what the dashboard shows of this dispatcher besides its process."""
        hour = self._stats.hour(time_ns() // 1_000)
        return {"promoted": hour.promoted, "lag_p95_us": hour.lag_us(0.95)}

    def quiet(self, asked: bool) -> None:
        """Dispatchers take no jobs."""

    def listen(self) -> int:
        """Listen to the alarm."""
        self._listener.listen([self._shard.keys("notify_dispatcher")], now=monotonic())
        return self._listener.fileno()

    def on_wakeup(self) -> None:
        """Take the alarm down; the step that follows finds why it rang."""
        self._listener.take()
        self._called = True

    def stop(self) -> None:
        """End before the next step; steps are short."""
        self._stopping = True

    def close(self) -> None:
        """Let go of the connection."""
        self._listener.close()

    def _judge(self, leases: Sequence[bytes]) -> None:
        """Ask the same `decide` that workers ask; the policy travels in the job, so no user code is needed."""
        lapsed = self._promotion.read_expired_leases(leases)
        judged = [(item, *_judgement(item)) for item in lapsed]
        decided = [_reclaim(item, outcome, decision) for item, outcome, decision in judged]
        done = self._promotion.reclaim(decided)
        for (item, outcome, decision), reclaim, carried_out in zip(judged, decided, done, strict=True):
            # Else it was settled, revived, or judged by another dispatcher meanwhile, and that one tells.
            if carried_out and reclaim.attempts.spared:
                logger.info("Job %s: worker %s did not confirm its claim; no attempt is counted", item.id, item.worker)
            elif carried_out:
                counted = "retried" if reclaim.queue is not None else "dead"
                self.metrics.count_attempt(counted, queue=item.queue or "", task=item.job.task if item.job else "")
                self._emit([partial(_tell, item, outcome, decision, reclaim)])


def _tell(item: ExpiredLease, outcome: Outcome, decision: Decision, reclaim: Reclaim) -> None:
    task, queue, attempt = item.job and item.job.task, item.queue, reclaim.attempts.ended
    logger.warning(
        "Job %s of %r in %r: its lease lapsed on worker %s, attempt %d; %s",
        item.id,
        task,
        queue,
        item.worker,
        attempt,
        decision.action,
    )
    if decision.action is Action.DEAD_LETTER:
        sender = registry.find(item.job.task) if item.job else None
        announce(job_dead_lettered, sender, job_id=item.id, job=item.job, attempt=attempt, reason=outcome.error)
        if item.job and sender is not None:
            sender.on_finished(item.job, attempts=reclaim.attempts, ending=None)


def _judgement(item: ExpiredLease) -> tuple[Outcome, Decision]:
    if item.job is not None:
        ending, policy = OutcomeKind.LEASE_EXPIRED, item.job.retry
        error = f"The worker {item.worker} did not finish and its lease lapsed: killed, frozen, or cut off."
    else:
        ending, policy = kind_of_fault(item.fault), RetryPolicy()
        error = str(item.fault)
    outcome = Outcome(kind=ending, error=error)
    return outcome, decide(outcome, policy, attempt=item.attempts.ended + 1, jitter=random.random())


def _reclaim(item: ExpiredLease, outcome: Outcome, decision: Decision) -> Reclaim:
    if item.unconfirmed and item.queue is not None and not item.attempts.spared:
        return Reclaim(lease=item.lease, attempts=replace(item.attempts, spared=True), queue=item.queue)
    attempts = item.attempts.add(
        worker=item.worker,
        started_us=item.claimed_us,
        ended_us=None,
        ending=outcome.kind,
        error=outcome.error,
        suspect=decision.crash_suspected,
    )
    queue = item.queue if decision.action is Action.RETRY else None
    return Reclaim(lease=item.lease, attempts=attempts, queue=queue, delay_us=decision.delay_us)
