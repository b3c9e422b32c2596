"""Failure: the exception that the log and Django's signal show for an attempt that ended badly.

It is what the task raised, or the exception behind its request, if that was in this process. A child process sends
text alone: its exceptions may not be picklable. Crashes and unreadable bodies raised nothing. Then an exception is
made, so that every record has one. The variables of a sensitive task are cleared in its traceback.
"""

from typing import Any

from django_delayq.job.outcome import Action, Decision, Outcome, OutcomeKind, error_class
from django_delayq.job.result import JobError
from django_delayq.worker.outcomes import REQUESTS

#: Outcomes of attempts in which the task requested another run.
_RUN_REQUESTED = (OutcomeKind.RETRY_REQUESTED, OutcomeKind.SNOOZED)


class ChildTraceback(Exception):
    """The traceback of an exception that a task raised in a child process."""


def exception_of(outcome: Outcome, decision: Decision, task: Any) -> BaseException | None:
    """Return the exception to show for an attempt; None if it did not fail.

    If the task has sensitive arguments, the variables in the exception's traceback are cleared.
    """
    shown: BaseException | None = None
    if outcome.kind in _RUN_REQUESTED and decision.action is Action.RETRY:
        # The exception behind a request is worth a traceback, the request is not.
        shown = None if isinstance(outcome.raised, REQUESTS) else outcome.raised
    elif decision.action is Action.DEAD_LETTER or (decision.action is Action.RETRY and decision.counted):
        shown = outcome.raised or _made(outcome)
    if shown is not None and task is not None and task.sensitive:
        clear_variables(shown)
    return shown


def _made(outcome: Outcome) -> BaseException:
    if not outcome.exception:
        return error_class(outcome.kind)(outcome.error)
    module, _, name = outcome.exception.rpartition(".")
    message = JobError.of(outcome.error, outcome.exception).message
    # Trackers of errors group by the name of the class and by the message.
    error: BaseException = type(name, (Exception,), {"__module__": module})(message)
    error.__cause__ = ChildTraceback(f"\n{outcome.error}")
    return error


def clear_variables(error: BaseException) -> None:
    """Clear the variables in the tracebacks of an exception and of those behind it: reports of errors show them.

    A traceback loses its frames up to the last one that still runs, whose variables cannot be cleared.
    """
    left, seen = [error], set[int]()
    while left:
        each = left.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        traceback = each.__traceback__
        while traceback is not None:
            try:
                traceback.tb_frame.clear()
            except RuntimeError:
                each.__traceback__ = traceback.tb_next
            traceback = traceback.tb_next
        left += filter(None, (each.__cause__, each.__context__))
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
