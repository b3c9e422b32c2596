"""Pausing and resuming a queue, quieting and resuming a worker: at once, with an undo."""

import re
from datetime import UTC, datetime
from html import unescape
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_delayq.clock import moment
from tests.admin.conftest import page
from tests.admin.forms import form_to
from tests.admin.jobs import HOUR, POSTED, add, claim
from tests.admin.page_content import text
from tests.admin.steps import confirm, result, undo
from tests.shard_apis import ShardApis

MINUTE = HOUR // 60


def test_a_queue_is_paused_and_resumed(browser: Client, stock: ShardApis) -> None:
    add(stock, queue="a/b", delay=None)
    address = page("queue_detail", "a/b")
    form = form_to(browser.get(address), "/action/", button="pause")
    assert "Paused queue a/b." in result(browser, form.post(browser, action="pause"))
    assert "Queue a/b was paused already." in result(browser, form.post(browser, action="pause"))
    paused = stock.store.dashboard(0).snapshot().queues["a/b"].paused
    assert paused is not None
    assert paused.by == "superuser"
    said = browser.get(address)
    assert "paused by superuser" in text(said)
    response = form_to(said, "/action/", button="resume").post(browser, action="resume")
    assert "Resumed queue a/b." in result(browser, response)
    assert [entry.change_message for entry in LogEntry.objects.order_by("pk")] == [
        "Paused queue a/b",
        "Resumed queue a/b",
    ]


def test_a_queue_is_paused_until_a_moment_in_the_chosen_zone(browser: Client, stock: ShardApis) -> None:
    form = until_form(browser, stock)
    assert "Pause queue mail?" in text(form)
    assert "Times are in Europe/Berlin." in text(form)
    assert stock.store.dashboard(0).snapshot().queues["mail"].paused is None
    said = result(browser, confirm(browser, form, until="2100-06-01T12:00"))
    assert "Paused queue mail until 2100-06-01 12:00:00 CEST." in said
    paused = stock.store.dashboard(0).snapshot().queues["mail"].paused
    assert paused is not None and paused.until_us is not None
    assert moment(paused.until_us) == datetime(2100, 6, 1, 10, tzinfo=UTC)
    [entry] = LogEntry.objects.all()
    assert entry.change_message == "Paused queue mail until 2100-06-01 10:00:00 UTC"
    assert "Queue mail was paused already." in result(browser, confirm(browser, form, until="2100-06-01T12:00"))
    assert "until 2100-06-01 13:00:00 CEST" in result(browser, confirm(browser, form, until="2100-06-01T13:00"))
    assert LogEntry.objects.count() == 2
    # A later end than Redis takes is the latest one.
    assert "Paused queue mail until 2255-" in result(browser, confirm(browser, form, until="9999-12-31T23:59"))


def until_form(browser: Client, stock: ShardApis) -> Any:
    """Follow the link of a queue's page to the form of a pause."""
    add(stock, queue="mail", delay=None)
    [link] = re.findall(r'href="([^"]*action=pause[^"]*)"', browser.get(page("queue_detail", "mail")).content.decode())
    return browser.get(unescape(link))


def test_the_undo_of_a_resumption_restores_the_end_of_the_pause(browser: Client, stock: ShardApis) -> None:
    form = until_form(browser, stock)
    confirm(browser, form, until="2100-06-01T12:00")
    before = stock.store.dashboard(0).snapshot().queues["mail"].paused
    resumed = form_to(browser.get(page("queues")), "/action/", button="resume").post(browser, action="resume")
    undo(browser, browser.get(resumed.url))
    after = stock.store.dashboard(0).snapshot().queues["mail"].paused
    assert before is not None and after is not None
    assert after.until_us == before.until_us


def test_the_button_of_a_stale_page_keeps_the_end_of_a_pause(browser: Client, stock: ShardApis) -> None:
    form = until_form(browser, stock)
    stale = form_to(browser.get(page("queues")), "/action/", button="pause")
    confirm(browser, form, until="2100-06-01T12:00")
    answer = stale.post(browser, action="pause")
    said = browser.get(answer.url)
    assert "Queue mail was paused already." in text(said)
    paused = stock.store.dashboard(0).snapshot().queues["mail"].paused
    assert paused is not None and paused.until_us is not None
    # The form removes it. That is no pause that a resumption would undo.
    answer = confirm(browser, form, until="")
    assert "delayq-undo" not in browser.get(answer.url).content.decode()
    paused = stock.store.dashboard(0).snapshot().queues["mail"].paused
    assert paused is not None and paused.until_us is None


def test_a_pause_and_its_end_are_undone_with_one_press_each(browser: Client, stock: ShardApis) -> None:
    add(stock, queue="mail", delay=None)
    paused = form_to(browser.get(page("queues")), "/action/", button="pause").post(browser, action="pause")
    resumed = undo(browser, browser.get(paused.url))
    assert stock.store.dashboard(0).snapshot().queues["mail"].paused is None
    assert "Paused queue mail." in result(browser, undo(browser, browser.get(resumed.url)))
    assert stock.store.dashboard(0).snapshot().queues["mail"].paused is not None
    # Nothing changed, so nothing can be undone.
    again = browser.post(page("action"), {"action": "pause", "queue": "mail"})
    assert "delayq-undo" not in browser.get(again.url).content.decode()


@pytest.mark.parametrize(
    ("until", "error"),
    [
        ("2001-01-01T00:00", "until must be later than now; to end a pause, resume the queue."),
        ("soon", "Enter a valid date/time."),
        (POSTED, "Enter a valid date/time."),
    ],
)
def test_a_pause_cannot_end_then(browser: Client, stock: ShardApis, until: str, error: str) -> None:
    form = until_form(browser, stock)
    answer = confirm(browser, form, until=until)
    assert answer.status_code == 200
    assert error in text(answer)
    assert stock.store.dashboard(0).snapshot().queues["mail"].paused is None
    assert LogEntry.objects.count() == 0
    # The page that names the error is the same form.
    assert "Paused queue mail." in result(browser, confirm(browser, answer, until=""))


@pytest.mark.parametrize(
    "fields",
    [
        {"action": "pause", "queue": "none"},
        {"action": "pause"},
        {"action": "resume", "queue": "~zz"},
        {"action": "quiet", "worker": POSTED},
        {"action": "unquiet", "worker": "00" * 8},
        {"action": "quiet"},
    ],
)
def test_an_unknown_subject_cannot_be_toggled(browser: Client, fields: dict[str, str]) -> None:
    assert "It is not there any more. Nothing was done." in result(browser, browser.post(page("action"), fields))


def test_a_worker_is_asked_to_take_no_more(browser: Client, stock: ShardApis) -> None:
    mine = add(stock, delay=None)
    worker, _ = claim(stock, mine)
    code = worker.code.hex()
    assert "Quiet worker" in text(browser.get(page("action", action="quiet", worker=code)))
    response = browser.post(page("action"), {"action": "quiet", "worker": code})
    assert "to take no more jobs." in result(browser, response)
    (process,) = [each for each in stock.store.dashboard(0).snapshot().processes if each.code == worker.code]
    assert process.asked_quiet
    response = browser.post(page("action"), {"action": "unquiet", "worker": code})
    assert "take jobs again." in result(browser, response)
