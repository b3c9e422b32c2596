"""The short summary of a stored error."""

import pytest
from django.utils.translation import override

from django_delayq.admin import errors
from django_delayq.admin.errors import ErrorSummary
from django_delayq.job.attempts import NO_ATTEMPTS
from django_delayq.job.outcome import OutcomeKind
from tests.admin.jobs import HOSTILE, TRACEBACK

#: No attempt ends so.
_NOT_RECORDED = {OutcomeKind.SUCCEEDED, OutcomeKind.UNSTARTED, OutcomeKind.PAUSED}


def failed(error: str) -> ErrorSummary:
    return ErrorSummary.read(ending="failed", error=error)


def test_a_traceback_gives_its_class_and_the_first_line_of_its_message() -> None:
    failure = failed(TRACEBACK)
    assert (failure.error, failure.name, failure.message) == ("shop.errors.Broken", "Broken", "could not send")
    assert str(failure) == "Broken: could not send"


def test_the_last_of_chained_errors_counts() -> None:
    chained = (
        TRACEBACK
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + (
            'Traceback (most recent call last):\n  File "/srv/x.py", line 1, in f\n    d["id"]\n    ~^^^^^^\n'
            "KeyError: 'id'\n"
        )
    )
    assert str(failed(chained)) == "KeyError: 'id'"


def test_an_error_without_a_message_is_its_class() -> None:
    assert str(failed('  File "x", line 1, in f\n    raise Stop\nStop\n')) == "Stop"


def test_a_traceback_without_its_beginning_still_gives_them() -> None:
    assert failed("…nd(x)\n" + TRACEBACK.split("\n", 1)[1]).error == "shop.errors.Broken"


@pytest.mark.parametrize("ending", ["crashed", "lease expired", "gave up", "unknown task", "of a newer release"])
def test_an_outcome_that_is_not_an_exception_has_its_own_name(ending: str) -> None:
    failure = ErrorSummary.read(ending=ending, error="No use: at all")
    assert (failure.error, failure.message) == (ending, "No use: at all")


@pytest.mark.parametrize("ending", sorted(set(OutcomeKind) - _NOT_RECORDED))
def test_every_recorded_outcome_has_words(ending: OutcomeKind) -> None:
    with override("de"):
        assert ErrorSummary.read(ending=ending).name
    assert ending in errors._OUTCOME_TEXTS


def test_the_words_of_an_outcome_precede_its_message() -> None:
    assert str(ErrorSummary.read(ending="unknown task", error="No task")) == "task not known: No task"
    assert str(ErrorSummary.read(ending="of a newer release", error="x")) == "of a newer release: x"


@pytest.mark.parametrize(
    "error", ["", "\n\n", HOSTILE, "x" * 100_000, '  File "', '  File "\n\n   \n', "no use\nat all"]
)
def test_any_text_is_read(error: str) -> None:
    failure = failed(error)
    assert failure.error == "failed"
    assert str(failure).isprintable()
    assert len(failure.message) <= 200


def test_no_attempt_has_no_error() -> None:
    assert str(ErrorSummary.of(NO_ATTEMPTS)) == ""
