"""execute_later: every option that a job by its name takes, and the errors that name the argument."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from django_delayq import execute_later
from django_delayq.exceptions import DelayTypeError, DelayValueError, InvalidMoment, KeyHeld
from tests.sample_app.tasks import catch_all, noop

NAME = noop.name
LATER = datetime(2030, 1, 2, 3, 4, 5, 678_901, tzinfo=UTC)


def test_a_job_by_name_takes_keyword_arguments_a_moment_a_key_and_a_priority(delayq_settings: Any) -> None:
    handle = execute_later(
        "mail", NAME, [1], kwargs={"to": "ann"}, at=LATER, key="k", priority=7, expires=60, on_expiry="dead"
    )
    job = handle.refresh().job
    assert job is not None and job.expiry is not None
    assert (job.args, job.kwargs, job.queue, job.key, job.priority) == ([1], {"to": "ann"}, "mail", "k", 7)
    assert handle.due == LATER
    assert (job.expiry.span_us, job.expiry.dead) == (60_000_000, True)
    assert execute_later("mail", NAME, [2], key="k").id == handle.id
    with pytest.raises(KeyHeld):
        execute_later("mail", NAME, [2], key="k", unique="reject")


def test_the_order_of_the_first_four_arguments_stays(delayq_settings: Any) -> None:
    assert execute_later("mail", NAME, [], timedelta(hours=1)).state == "scheduled"
    assert execute_later("mail", NAME).state == "ready"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"kwargs": [1]}, TypeError, "kwargs must be a dict of keyword arguments, got list"),
        ({"args": {"to": "ann"}}, TypeError, "args must be a list of positional arguments, got dict; .* kwargs="),
        ({"at": LATER, "delay": 5}, TypeError, "either a delay or a moment"),
        ({"at": datetime(2030, 1, 1)}, InvalidMoment, "at must be an aware datetime, got a naive one"),
        ({"at": LATER, "delay": None}, DelayTypeError, "delay must be a number of seconds or a timedelta, got None"),
        ({"priority": 101}, ValueError, "priority must be -100 to 100"),
        ({"key": 5}, ValueError, "key must be"),
        ({"expires": -1}, DelayValueError, "expires must not be negative.*leave it out for a job that never expires"),
        ({"expires": timedelta(-1)}, DelayValueError, "expires must not be negative.*leave it out"),
        ({"on_expiry": "fail"}, ValueError, "on_expiry must be 'drop' or 'dead'"),
    ],
)
def test_a_wrong_argument_is_refused_by_its_name(
    delayq_settings: Any, client: Any, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        execute_later("mail", NAME, **options)
    assert client.keys("*") == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"args": [1, 2, 3]}, "too many positional arguments"),
        ({"kwargs": {"to": "ann"}}, "got an unexpected keyword argument 'to'"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_the_name_of_the_task(
    delayq_settings: Any, client: Any, arguments: dict[str, Any], words: str
) -> None:
    for act in (
        lambda: execute_later("mail", catch_all.name, **arguments),
        lambda: catch_all.enqueue(*arguments.get("args", ()), **arguments.get("kwargs", {})),
    ):
        with pytest.raises(TypeError, match=rf"^The arguments do not fit the task {catch_all.name}: {words}$"):
            act()
    assert client.keys("*") == []
