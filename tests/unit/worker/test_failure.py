"""The exception that the log shows for an attempt, and the class that a task result names: they agree."""

import pytest

from django_delayq.backend.task_result import _error
from django_delayq.exceptions import BadBody, JobCrashed, UnknownTask
from django_delayq.job.outcome import Action, Decision, Outcome, OutcomeKind
from django_delayq.job.retry import class_path
from django_delayq.worker.failure import exception_of
from django_delayq.worker.outcomes import failed

DEAD = Decision(action=Action.DEAD_LETTER)


@pytest.mark.parametrize("kind", OutcomeKind)
def test_log_and_task_result_name_the_same_class_if_the_task_raised_nothing(kind: OutcomeKind) -> None:
    shown = exception_of(Outcome(kind=kind, error="a sentence"), DEAD, None)
    told = _error({"ending": kind.value, "error": "a sentence"})
    assert shown is not None and class_path(type(shown)) == told.exception_class_path
    assert str(shown) == "a sentence"


def test_each_ending_has_the_class_that_says_what_happened() -> None:
    classes = {
        OutcomeKind.CRASHED: JobCrashed,
        OutcomeKind.INTERRUPTED: JobCrashed,
        OutcomeKind.UNKNOWN_TASK: UnknownTask,
        OutcomeKind.UNREADABLE: BadBody,
    }
    for kind, expected in classes.items():
        assert type(exception_of(Outcome(kind=kind), DEAD, None)) is expected


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ExceptionGroup("several", [ValueError("a"), KeyError("b")]), "several (2 sub-exceptions)"),
        (ValueError("one\nValueError: two"), "one\nValueError: two"),
    ],
)
def test_an_exception_of_a_child_process_keeps_class_and_message(error: Exception, message: str) -> None:
    sent = failed(error)
    shown = exception_of(Outcome(kind=sent.kind, error=sent.error, exception=sent.exception), DEAD, None)
    assert (type(shown).__name__, str(shown)) == (type(error).__name__, message)
