"""Sensitive arguments of a schedule are in its stored form and nowhere else."""

import asyncio
import sys
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import transaction
from django.views.debug import ExceptionReporter

from django_delayq import delayed_task
from django_delayq.exceptions import DelayQError
from django_delayq.task.task import Task
from django_delayq.testing import DelayQ

HOUR, CANARY = timedelta(hours=1), "4111-canary"


def charge(user: int, card: Any) -> None:
    """Charge a card."""


@pytest.fixture
def task(registered: Any, delayq: DelayQ) -> Task[..., None]:
    """A task with a sensitive argument."""
    registered()
    return delayed_task(name="shop.charge", sensitive=("card",))(charge)


def secret() -> str:
    """Return the canary, so that no frame of the test has it in a local variable."""
    return CANARY


def report(call: Callable[[], Any]) -> str:
    """Return the report that Django mails to the admins about an error, without this test's own frame."""
    try:
        call()
    except (DelayQError, TypeError, ValueError, AttributeError):
        kind, error, trace = sys.exc_info()
    else:
        raise AssertionError("no error to report")
    assert trace is not None
    text = ExceptionReporter(None, kind, error, trace.tb_next, is_email=True).get_traceback_html()
    assert "recurring/schedules.py" in text or "recurring/handle.py" in text or "planting.py" in text
    return text


def test_no_frame_of_a_wrong_call_shows_them(task: Task[..., None]) -> None:
    for call in (
        lambda: task.schedules.set("a", every=0, args=[1, secret()]),
        lambda: task.schedules.set("a", every=HOUR, args=[1, {secret(): object()}]),
        lambda: task.schedules.set("a", every=HOUR, args=[1], kwargs={"card": secret(), "more": 1}),
        lambda: task.schedules.set("a", every=HOUR, args=secret()),
        lambda: task.schedules.set_many([{"name": "a", "every": HOUR, "args": [1, secret()], "x": 1}]),
        lambda: asyncio.run(task.schedules.aset("a", every=0, args=[1, secret()])),
        lambda: asyncio.run(task.schedules.aset_many([{"name": "a", "every": 0, "args": [1, secret()]}])),
        lambda: task.schedules.set_many({"name": "a", "evry": HOUR, "args": [1, secret()]} for _ in "a"),
    ):
        assert CANARY not in report(call)


def test_no_frame_of_an_outage_shows_them(task: Task[..., None], delayq: DelayQ) -> None:
    task.schedules.set("a", every=HOUR, args=[1, secret()])
    found = task.schedules.get("a")
    assert found
    with delayq.unavailable():
        for call in (
            lambda: task.schedules.set("b", every=HOUR, args=[1, secret()]),
            lambda: task.schedules.set_many({"name": "b", "every": HOUR, "args": [1, secret()]} for _ in "b"),
            found.run_now,
            found.pause,
            found.refresh,
            lambda: task.schedules.get("a"),
        ):
            assert CANARY not in report(call)


@pytest.mark.django_db(transaction=True)
def test_no_frame_of_an_error_after_the_commit_shows_them(
    task: Task[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def commit() -> None:
        with transaction.atomic():
            task.schedules.set("a", every=HOUR, args=[1, secret()])

    # An error in the last call above the client.
    monkeypatch.setattr("django_delayq.store.schedules.schedules._SET", None)
    text = report(commit)
    assert CANARY not in text and "outbox.py" in text


def test_no_frame_of_an_error_of_planting_shows_them(
    task: Task[..., None], delayq: DelayQ, monkeypatch: pytest.MonkeyPatch
) -> None:
    task.schedules.set("a", every=HOUR, args=[1, secret()])
    monkeypatch.setattr("django_delayq.store.schedules.planting._PLANT", None)
    text = report(delayq.run_due)
    assert CANARY not in text and "planting.py" in text


def test_no_repr_shows_them(task: Task[..., None], delayq: DelayQ) -> None:
    task.schedules.set("a", every=HOUR, args=[1, secret()])
    found = task.schedules.get("a")
    assert found and CANARY.encode() in found._stored.record.definition
    definition = task.schedules.define({"name": "a", "every": HOUR, "args": [1, CANARY]})
    for value in (found, found._stored, found._definition, definition, task.schedules, found.run_now()):
        assert CANARY not in f"{value!r} {[value]!r} {value!s}", type(value)


def test_the_log_of_a_schedule_that_cannot_be_read_does_not_show_them(
    task: Task[..., None], delayq: DelayQ, settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    task.schedules.set("a", every=HOUR, args=[1, secret()])
    settings.DELAYQ = {**settings.DELAYQ, "SIGN": True}
    delayq.run_due()
    assert "is not planted" in caplog.text and CANARY not in caplog.text
