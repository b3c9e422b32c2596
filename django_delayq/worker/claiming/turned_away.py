"""Turned away: the claims of an exchange that do not run, since their task is paused, or a limit drops them."""

from django_delayq.job.job import Claim
from django_delayq.job.outcome import PAUSED, Outcome, OutcomeKind
from django_delayq.store.claims import ExchangeReply
from django_delayq.store.digests import paused_task_digest


def turn_away(reply: ExchangeReply) -> tuple[list[Claim], list[tuple[Claim, Outcome]]]:
    """Return the claims to run, and the others with their outcomes."""
    to_run, others = list[Claim](), list[tuple[Claim, Outcome]]()
    for claim in reply.claims:
        # Paused first: such a job waits, also if a limit drops it when it may begin.
        if claim.job and reply.paused_tasks and paused_task_digest(claim.job.task) in reply.paused_tasks:
            others.append((claim, PAUSED))
        elif claim.is_dropped:
            others.append((claim, _dropped(claim)))
        else:
            to_run.append(claim)
    return to_run, others


def _dropped(claim: Claim) -> Outcome:
    job = claim.job
    reasons = []
    if job and job.limits:
        names = ", ".join(limit.name for limit in job.limits)
        reasons.append(f"A limit ({names}) kept the job from beginning, and on_limit='drop' ends it")
    if job and job.occurrence:
        reasons.append(
            f"The recurring schedule {job.occurrence.schedule!r} ends the job: another one of it had not ended "
            f"(overlap), or the schedule was changed, paused or deleted"
        )
    return Outcome(kind=OutcomeKind.DROPPED, error=f"{'; or: '.join(reasons)}.")
