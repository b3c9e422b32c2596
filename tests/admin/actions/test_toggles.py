"""Pausing and resuming a queue, quieting and resuming a worker."""

from datetime import UTC, datetime

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_delayq.clock import moment
from tests.admin.conftest import page
from tests.admin.forms import form_to
from tests.admin.jobs import HOUR, POSTED, add, claim
from tests.admin.page_content import text
from tests.admin.steps import confirm, result
from tests.shard_apis import ShardApis

MINUTE = HOUR // 60


def test_a_queue_is_paused_and_resumed(browser: Client, stock: ShardApis) -> None:
    add(stock, queue="a/b", delay=None)
    address = page("queue_detail", "a/b")
    response = form_to(browser.get(address), "/action/", button="pause").post(browser, action="pause")
    assert "Pause queue a/b?" in text(response)
    assert stock.store.dashboard(0).snapshot().queues["a/b"].paused is None
    assert "Paused queue a/b." in result(browser, confirm(browser, response))
    assert "Queue a/b was paused already." in result(browser, confirm(browser, response))
    paused = stock.store.dashboard(0).snapshot().queues["a/b"].paused
    assert paused is not None
    assert paused.by == "superuser"
    said = browser.get(address)
    assert "paused by superuser" in text(said)
    response = form_to(said, "/action/", button="resume").post(browser, action="resume")
    assert "Resumed queue a/b." in result(browser, confirm(browser, response))
    assert [entry.change_message for entry in LogEntry.objects.order_by("pk")] == [
        "Paused queue a/b",
        "Resumed queue a/b",
    ]


def test_a_queue_is_paused_until_a_moment_in_the_chosen_zone(browser: Client, stock: ShardApis) -> None:
    add(stock, queue="mail", delay=None)
    form = form_to(browser.get(page("queues")), "/action/", button="pause").post(browser, action="pause")
    assert "Times are in Europe/Berlin." in text(form)
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


@pytest.mark.parametrize(
    ("until", "error"),
    [
        ("2001-01-01T00:00", "until must be later than now; to end a pause, resume the queue."),
        ("soon", "Enter a valid date/time."),
        (POSTED, "Enter a valid date/time."),
    ],
)
def test_a_pause_cannot_end_then(browser: Client, stock: ShardApis, until: str, error: str) -> None:
    add(stock, queue="mail", delay=None)
    form = form_to(browser.get(page("queues")), "/action/", button="pause").post(browser, action="pause")
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
        {"action": "unquiet", "confirmed": "yes", "worker": "00" * 8},
        {"action": "quiet", "confirmed": "yes"},
    ],
)
def test_an_unknown_subject_cannot_be_toggled(browser: Client, fields: dict[str, str]) -> None:
    assert "It is not there any more. Nothing was done." in result(browser, browser.post(page("action"), fields))


def test_a_worker_is_asked_to_take_no_more(browser: Client, stock: ShardApis) -> None:
    mine = add(stock, delay=None)
    worker, _ = claim(stock, mine)
    code = worker.code.hex()
    response = browser.post(page("action"), {"action": "quiet", "worker": code})
    assert "Quiet worker" in text(response)
    assert "to take no more jobs." in result(browser, confirm(browser, response))
    (process,) = [each for each in stock.store.dashboard(0).snapshot().processes if each.code == worker.code]
    assert process.asked_quiet
    response = browser.post(page("action"), {"action": "unquiet", "worker": code})
    assert "take jobs again." in result(browser, confirm(browser, response))
