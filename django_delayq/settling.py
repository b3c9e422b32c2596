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

_DEFAULT_RETRY = RetryPolicy()


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
        )
    return Settlement(claim=claim, decision=decision, attempts=attempts)


def tell(settlement: Settlement, outcome: Outcome, *, lost: bool) -> None:
    """Send the signals of a settled attempt, or warn that its lease was lost and its outcome refused."""
    claim, decision = settlement.claim, settlement.decision
    if lost:
        logger.warning("Job %s: lease lost, its outcome (%s) was refused", claim.id, outcome.ending)
        return
    if decision.settle is Settle.RELEASE:
        return
    task = registry.find(claim.job.task) if claim.job else None
    facts = {"job_id": claim.id, "job": claim.job, "attempt": claim.attempt}
    announce(job_finished, task, **facts, outcome=outcome, decision=decision)
    if decision.settle is Settle.DEAD_LETTER:
        announce(job_dead_lettered, task, **facts, reason=f"{outcome.ending}\n{outcome.error}")
