"""Turned away: claims of an exchange that do not run. Their task is paused, or a limit or their schedule drops them."""

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
        elif claim.is_dropped and _may_be_dropped(claim):
            others.append((claim, _dropped(claim)))
        else:
            to_run.append(claim)
    return to_run, others


def _may_be_dropped(claim: Claim) -> bool:
    """Return whether the body, too, says that the job has limits or a schedule; a damaged extras record may not."""
    return claim.job is not None and bool(claim.job.limits or claim.job.occurrence)


def _dropped(claim: Claim) -> Outcome:
    names = ", ".join(limit.name for limit in claim.job.limits) if claim.job else ""
    if claim.job and claim.job.occurrence:
        error = (
            f"Its schedule {claim.job.occurrence.schedule!r} kept the job from beginning: another job of it had not "
            f"ended, or it was changed after this job was planted{f'; or a limit ({names}) did' if names else ''}."
        )
    else:
        error = f"A limit ({names}) kept the job from beginning, and on_limit='drop' ends it."
    return Outcome(kind=OutcomeKind.DROPPED, error=error)
