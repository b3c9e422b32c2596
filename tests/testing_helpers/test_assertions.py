"""Assertions about enqueued jobs, and their messages when they fail."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import time_machine
from django.db import transaction
from django.utils import timezone

from django_delayq.exceptions import InvalidDelay, InvalidMoment
from django_delayq.testing import DelayQ
from tests.testing_helpers.docs.pages import runs, shown
from tests.testing_helpers.tasks import charge, close_sale, pay, send_reminder

NAME = "tests.testing_helpers.tasks.send_reminder"
#: The message that the page about testing shows.
SHOWN = shown("docs/tasks/testing.md", "text", "AssertionError")


@pytest.fixture(autouse=True)
def frozen_time() -> Iterator[None]:
    """Freeze time, so that messages do not depend on the machine's speed."""
    with time_machine.travel(datetime(2027, 1, 1, 9, tzinfo=UTC), tick=False):
        yield


@pytest.fixture
def failure(delayq: DelayQ) -> Any:
    """Return the message of a failing assertion: `failure(send_reminder, args=[1])`."""

    def fail(*args: Any, negated: bool = False, **expected: Any) -> str:
        check = delayq.assert_not_enqueued if negated else delayq.assert_enqueued
        with pytest.raises(AssertionError) as raised:
            check(*args, **expected)
        return str(raised.value)

    return fail


@pytest.mark.parametrize(
    "expected",
    [
        {},
        {"args": [7]},
        {"args": (7,)},
        {"kwargs": {"channel": "mail"}},
        {"args": (7,), "kwargs": {"channel": "mail"}, "queue": "mail", "priority": 10, "key": "r7", "count": 1},
        {"due_in": 600},
        {"due_in": timedelta(minutes=10)},
    ],
)
def test_a_job_is_found_by_the_given_arguments(delayq: DelayQ, expected: Any) -> None:
    job = send_reminder.using(delay=600, key="r7").enqueue(7, channel="mail")
    close_sale.enqueue(7)
    for task in (send_reminder, NAME):
        assert delayq.assert_enqueued(task, **expected).id == job.id


@pytest.mark.parametrize(
    "expected",
    [
        {"args": [8]},
        {"args": []},
        {"args": ["7"]},
        {"kwargs": {}},
        {"queue": "default"},
        {"priority": 0},
        {"key": "r8"},
        {"due_in": 0},
        {"due_in": 590},
        {"due_in": 610},
    ],
)
def test_a_job_that_differs_is_not_found(delayq: DelayQ, failure: Any, expected: Any) -> None:
    send_reminder.using(delay=600, key="r7").enqueue(7, channel="mail")
    delayq.assert_not_enqueued(send_reminder, **expected)
    [name] = expected
    message = failure(send_reminder, **expected)
    assert message.startswith(f"Not enqueued: {NAME}")
    assert f"    {name}: expected " in message


def test_tuples_in_arguments_equal_the_stored_lists(delayq: DelayQ) -> None:
    send_reminder.enqueue([1, [2]])  # type: ignore[arg-type]
    delayq.assert_enqueued(send_reminder, args=((1, (2,)),))


def test_due_in_counts_from_now_and_due_is_a_moment(delayq: DelayQ) -> None:
    moment = timezone.now() + timedelta(minutes=10)
    send_reminder.at(moment).enqueue(7)
    delayq.advance(minutes=4)
    delayq.assert_enqueued(send_reminder, due_in=timedelta(minutes=6), due=moment)
    delayq.assert_not_enqueued(send_reminder, due=moment + timedelta(minutes=1))
    delayq.advance(minutes=10)
    delayq.assert_enqueued(send_reminder, due_in=0, due=moment)


def test_the_message_shows_the_nearest_job_and_its_mismatches(failure: Any) -> None:
    close_sale.enqueue(1)
    send_reminder.after(minutes=5).enqueue(8)
    send_reminder.after(minutes=10).enqueue(8, channel="mail")
    message = failure(send_reminder, args=[7], due_in=600)
    assert message == (
        f"Not enqueued: {NAME}(7) due in 10 min\n"
        "Nearest:\n"
        f"    <{NAME}(8, channel='mail') due in 10 min in queue 'mail', priority 10>\n"
        "    args: expected [7], got [8]\n"
        "Also enqueued:\n"
        "    <tests.testing_helpers.tasks.close_sale(1) due now in queue 'default'>\n"
        f"    <{NAME}(8) due in 5 min in queue 'mail', priority 10>"
    )


@runs(SHOWN)
def test_the_page_shows_the_message_of_an_assertion(failure: Any) -> None:
    send_reminder.after(hours=1).enqueue(7)
    message = failure(send_reminder, args=[7], due_in=600)
    assert f"AssertionError: {message}\n" == SHOWN.replace("shop.tasks", "tests.testing_helpers.tasks")


def test_the_message_states_that_nothing_is_enqueued(failure: Any) -> None:
    assert failure(send_reminder) == f"Not enqueued: {NAME}\nNothing is enqueued."


def test_the_message_shows_jobs_of_other_tasks_and_how_many_more(failure: Any) -> None:
    for number in range(15):
        close_sale.enqueue(number)
    charge.after(hours=1).enqueue(1)
    lines = failure("tests.testing_helpers.tasks.charged").splitlines()
    assert lines[1] == "No job of this task. Enqueued:"
    assert "tests.testing_helpers.tasks.charge(1)" in lines[2]
    assert lines[-1] == "    … and 6 more"


def test_the_number_of_jobs_can_be_asserted(delayq: DelayQ, failure: Any) -> None:
    send_reminder.enqueue_many([(1,), (1,), (2,)])
    delayq.assert_enqueued(send_reminder, count=3)
    delayq.assert_enqueued(send_reminder, args=[1], count=2)
    message = failure(send_reminder, args=[1], count=1)
    assert message.startswith(f"Enqueued 2 times instead of 1: {NAME}(1)\n    <{NAME}(1) due now")
    with pytest.raises(ValueError, match="assert_not_enqueued"):
        delayq.assert_enqueued(send_reminder, count=0)


def test_the_message_shows_an_unexpected_job(failure: Any) -> None:
    send_reminder.after(minutes=1).enqueue(7)
    assert failure(send_reminder, negated=True) == (
        f"Unexpectedly enqueued: {NAME}\n    <{NAME}(7) due in 1 min in queue 'mail', priority 10>"
    )


@pytest.mark.django_db
def test_the_message_states_that_a_transaction_is_still_open(delayq: DelayQ) -> None:
    with transaction.atomic():
        send_reminder.enqueue(7)
        with pytest.raises(AssertionError, match="inside transaction.atomic"):
            delayq.assert_enqueued(send_reminder)
    delayq.assert_enqueued(send_reminder)


def test_sensitive_arguments_are_compared_but_not_shown(delayq: DelayQ, failure: Any) -> None:
    pay.enqueue("4111")
    delayq.assert_enqueued(pay, args=["4111"])
    assert "4111" not in failure(charge)
    assert "4112" not in failure(pay, args=["4112"])


@pytest.mark.parametrize(
    ("expected", "error"),
    [
        ({"args": 7}, TypeError),
        ({"args": "7"}, TypeError),
        ({"kwargs": [7]}, TypeError),
        ({"due_in": "soon"}, InvalidDelay),
        ({"due": 600}, InvalidMoment),
        ({"queues": "mail"}, TypeError),
    ],
)
def test_wrong_expectations_are_refused(delayq: DelayQ, expected: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        delayq.assert_enqueued(send_reminder, **expected)
    with pytest.raises(error):
        delayq.assert_not_enqueued(send_reminder, **expected)


@pytest.mark.parametrize("wrong", [7, None, lambda: None])
def test_an_object_that_is_no_task_is_refused(delayq: DelayQ, wrong: Any) -> None:
    with pytest.raises(TypeError, match="task must be a task or its name"):
        delayq.assert_enqueued(wrong)
