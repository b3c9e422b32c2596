"""Requests: RetryLater and DeadLetterNow that a task raises because of an exception, which says why its work failed."""

from collections.abc import Callable

import pytest

from django_delayq import DeadLetterNow, RetryLater, Snooze
from django_delayq.job.outcome import Outcome, OutcomeKind
from django_delayq.job.result import JobError
from tests.integration.worker.execution.claims import Run, raises


class Busy(ConnectionError):
    """An error of the project that leads to a request."""


def requests(error: BaseException, *, behind: BaseException | None = None, how: str = "context") -> Callable[[], None]:
    """Return a task that raises a request because of another exception."""

    def func() -> None:
        try:
            raise behind or Busy("no answer")
        except BaseException as busy:
            if how == "context":
                raise error  # noqa: B904
            raise error from (busy if how == "cause" else None)

    return func


def error_of(outcome: Outcome) -> JobError:
    return JobError.of(outcome.error, outcome.exception)


@pytest.mark.parametrize("how", ["context", "cause"])
@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("reason", ["", "the bank is busy\nValueError: not this"])
def test_the_exception_behind_retry_later_is_the_error(how: str, kind: str, reason: str, run_task: Run) -> None:
    error = RetryLater(5, reason)
    func = requests(error, how=how)

    async def coroutine() -> None:
        func()

    outcome = run_task(func if kind == "sync" else coroutine)
    assert (outcome.kind, outcome.delay_us, outcome.lineage) == (OutcomeKind.RETRY_REQUESTED, 5_000_000, ())
    assert (error_of(outcome).class_path, error_of(outcome).message) == (f"{__name__}.Busy", "no answer")
    request, _, cause = outcome.error.partition("\nThe exception behind it:\n\n")
    assert f"RetryLater: {(reason or 'the task requested to run again later').partition(chr(10))[0]}\n" in request
    for part in (request, cause):
        assert "Traceback (most recent call last):\n" in part and requests.__code__.co_filename in part
    assert isinstance(outcome.raised, Busy)


def test_its_reason_is_taken_for_no_error(run_task: Run) -> None:
    outcome = run_task(requests(RetryLater(5, f"waits\n{__name__}.Busy: a forged line")))
    assert error_of(outcome).message == "no answer"


@pytest.mark.parametrize(
    ("error", "text"),
    [(RetryLater(5), "the task requested to run again later"), (DeadLetterNow(), "the task gave up")],
    ids=repr,
)
def test_from_none_hides_the_exception_behind_a_request(error: Exception, text: str, run_task: Run) -> None:
    outcome = run_task(requests(error, how="none"))
    assert (error_of(outcome).message, outcome.raised) == (text, error)
    assert error_of(outcome).class_path == f"django_delayq.exceptions.{type(error).__name__}"


def test_the_exception_behind_dead_letter_now_is_the_error_if_it_has_no_reason(run_task: Run) -> None:
    outcome = run_task(requests(DeadLetterNow()))
    assert (outcome.kind, error_of(outcome).message) == (OutcomeKind.REJECTED, "no answer")
    assert outcome.exception == f"{__name__}.Busy"


def test_a_reason_of_dead_letter_now_stays_the_message_above_which_the_exception_behind_it_is(run_task: Run) -> None:
    outcome = run_task(requests(DeadLetterNow("refused\nfor good")))
    found = error_of(outcome)
    assert (found.class_path, found.message) == ("django_delayq.exceptions.DeadLetterNow", "refused\nfor good")
    assert "Busy: no answer\n\nDuring handling of the above exception" in found.traceback


@pytest.mark.parametrize("first", [RetryLater(), Snooze(1), DeadLetterNow()], ids=repr)
def test_behind_several_requests_is_an_exception_or_nothing(first: Exception, run_task: Run) -> None:
    first.__context__ = None
    nothing = run_task(requests(RetryLater(5), behind=first))
    assert error_of(nothing).message == "the task requested to run again later"
    first.__context__ = Busy("no answer")
    found = run_task(requests(RetryLater(5), behind=first))
    assert (found.exception, error_of(found).message) == (f"{__name__}.Busy", "no answer")


def test_an_exception_that_was_never_raised_is_found_by_its_request(run_task: Run) -> None:
    def func() -> None:
        raise RetryLater(5) from Busy("no answer")

    outcome = run_task(func)
    assert error_of(outcome).message == "no answer" and ", in func\n" in outcome.error


def test_requests_that_cause_each_other_end_the_attempt(run_task: Run) -> None:
    one, other = RetryLater(5), RetryLater(5)
    one.__cause__, other.__cause__ = other, one
    outcome = run_task(raises(one))
    assert (outcome.kind, outcome.error) == (OutcomeKind.RETRY_REQUESTED, "the task requested to run again later")


def test_a_computed_delay_depends_on_the_exception_behind_the_request(run_task: Run) -> None:
    outcome = run_task(
        requests(RetryLater()), retry_delay=lambda attempt, error: 7 if isinstance(error, Busy) else None
    )
    assert outcome.delay_us == 7_000_000


def test_an_exception_behind_a_request_that_cannot_be_printed_ends_the_attempt(run_task: Run) -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise SystemExit

    outcome = run_task(requests(RetryLater(5, "the bank is busy"), behind=Hostile()))
    assert outcome.kind is OutcomeKind.RETRY_REQUESTED and outcome.exception.endswith("Hostile")
    assert "RetryLater: the bank is busy\n" in outcome.error
