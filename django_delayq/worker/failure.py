"""Failure: the exception that the log and Django's signal show for an attempt that ended badly.

It is what the task raised, if that was in this process. A child process sends text alone: its exceptions may not be
picklable. Crashes and unreadable bodies raised nothing. Then an exception is made, so that every record has one.
"""

from typing import Any

from django_delayq.exceptions import DelayQError, JobCrashed, JobExpired, UnknownTask
from django_delayq.job.job import Claim
from django_delayq.job.outcome import Action, Decision, Outcome, OutcomeKind
from django_delayq.task.redaction import clear_variables

#: How an attempt ended that raised nothing -> the class of the exception that is shown.
_CLASSES: dict[OutcomeKind, type[DelayQError]] = {
    OutcomeKind.EXPIRED: JobExpired,
    OutcomeKind.CRASHED: JobCrashed,
    OutcomeKind.LEASE_EXPIRED: JobCrashed,
    OutcomeKind.UNKNOWN_TASK: UnknownTask,
}


#: How an attempt ended whose task asked for another.
_REQUESTS = (OutcomeKind.RETRY_REQUESTED, OutcomeKind.SNOOZED)


class ChildTraceback(Exception):
    """The traceback of an exception that a task raised in a child process."""


def exception_of(outcome: Outcome, decision: Decision, claim: Claim, task: Any) -> BaseException | None:
    """Return the exception to show for an attempt; None if it did not fail.

    If the task has sensitive arguments, the variables in the exception's traceback are cleared.
    """
    shown: BaseException | None = None
    if outcome.kind in _REQUESTS and decision.action is Action.RETRY:
        # `raise RetryLater(…) from error`: the error behind it is worth a traceback, the request is not.
        shown = outcome.raised and (outcome.raised.__cause__ or outcome.raised.__context__)
    elif decision.action is Action.DEAD_LETTER or (decision.action is Action.RETRY and decision.counted):
        shown = outcome.raised or _made(outcome, claim)
    if shown is not None and task is not None and task.sensitive:
        clear_variables(shown)
    return shown


def _made(outcome: Outcome, claim: Claim) -> BaseException:
    if claim.fault is not None:
        # The message is complete without a traceback, whose frames would be ours.
        return type(claim.fault)(outcome.error)
    if not outcome.exception:
        return _CLASSES.get(outcome.kind, DelayQError)(outcome.error)
    module, _, name = outcome.exception.rpartition(".")
    # Trackers of errors group by the name of the class and by the message.
    error: BaseException = type(name, (Exception,), {"__module__": module})(_message(outcome.error, module, name))
    error.__cause__ = ChildTraceback(f"\n{outcome.error}")
    return error


def _message(text: str, module: str, name: str) -> str:
    """Return the message in a traceback's text, whose last part is "module.Class: message"."""
    head = f"\n{name if module == 'builtins' else f'{module}.{name}'}: "
    _, found, message = f"\n{text}".rpartition(head)
    return message.strip() if found else ""
