"""Settling: from what happened to an attempt to what the store is told, and then to the signals."""

import random
from time import monotonic

from django_delayq import registry
from django_delayq.clock import SECOND_US
from django_delayq.job import Claim
from django_delayq.outcome import Outcome, Settle, decide
from django_delayq.retry import RetryPolicy
from django_delayq.signals import announce, job_dead_lettered, job_finished, logger
from django_delayq.store.claims import Settlement
from django_delayq.tally import Tally

_DEFAULT_RETRY = RetryPolicy()
_COUNTED = {Settle.ACKNOWLEDGE: "done", Settle.RETRY: "retried", Settle.DEAD_LETTER: "dead"}


def settle(claim: Claim, outcome: Outcome, *, worker: str) -> Settlement:
    """Decide about an attempt that ended, and write it into the job's history where there is to be one."""
    policy = claim.job.retry if claim.job else _DEFAULT_RETRY
    decision = decide(outcome, policy, attempt=claim.attempt, jitter=random.random())
    attempts = claim.attempts
    if decision.settle in (Settle.RETRY, Settle.DEAD_LETTER):
        # Redis's clock at the claim, and this process's own from there on.
        ended_us = claim.claimed_us + int((monotonic() - claim.sent_at) * SECOND_US)
        attempts = attempts.add(
            worker=worker,
            started_us=ended_us - outcome.run_us,
            ended_us=ended_us,
            ending=outcome.ending,
            error=outcome.error,
            suspect=decision.suspect,
            due_us=claim.due_us,
        )
    return Settlement(claim=claim, decision=decision, attempts=attempts)


def tell(settlement: Settlement, outcome: Outcome, *, lost: bool, tally: Tally) -> None:
    """Count a settled attempt and send its signals, or warn that its lease was lost and its outcome refused."""
    claim, decision = settlement.claim, settlement.decision
    if lost:
        logger.warning("Job %s: lease lost, its outcome (%s) was refused", claim.id, outcome.ending)
        return
    if decision.settle is Settle.RELEASE:
        return
    _count(claim, outcome, _COUNTED[decision.settle], tally)
    task = registry.find(claim.job.task) if claim.job else None
    facts = {"job_id": claim.id, "job": claim.job, "attempt": claim.attempt}
    announce(job_finished, task, **facts, outcome=outcome, decision=decision)
    if decision.settle is Settle.DEAD_LETTER:
        announce(job_dead_lettered, task, **facts, reason=f"{outcome.ending}\n{outcome.error}")


def _count(claim: Claim, outcome: Outcome, name: str, tally: Tally) -> None:
    ran, lag_us = outcome.began is not None, None
    if outcome.began is not None:
        # Redis's clock at the claim, and this process's own from there on.
        lag_us = claim.claimed_us - claim.due_us + int((outcome.began - claim.sent_at) * SECOND_US)
    task = claim.job.task if claim.job else ""
    tally.ended(name, queue=claim.queue, task=task, lag_us=lag_us, run_us=outcome.run_us if ran else None)
