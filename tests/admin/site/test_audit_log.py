"""The audit log: each action writes rows of the admin's log and a log line, and sends a signal."""

import logging
from datetime import UTC
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.auth.models import AnonymousUser
from django.test import Client, RequestFactory

from django_delayq.admin import audit_log
from django_delayq.admin.lists.filters import url_name
from tests.admin.conftest import page
from tests.admin.forms import form_to
from tests.admin.jobs import HOSTILE, HOUR, SUMMER_NOON, add, add_dead, state
from tests.admin.page_content import text
from tests.admin.steps import confirm, request_action
from tests.shard_apis import ShardApis


@pytest.fixture
def signals_sent() -> Any:
    """The arguments of each signal."""
    facts: list[dict[str, Any]] = []

    def receive(sender: Any, **sent: Any) -> None:
        facts.append(sent)

    audit_log.admin_action.connect(receive)
    yield facts
    audit_log.admin_action.disconnect(receive)


def test_each_job_has_a_row_a_line_and_a_signal(
    browser: Client, stock: ShardApis, signals_sent: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    mine = [add_dead(stock, number) for number in range(2)]
    with caplog.at_level(logging.INFO, "django_delayq.audit"):
        confirm(browser, request_action(browser, page("failed"), "retry", *mine))
    entries = LogEntry.objects.order_by("object_id")
    assert [(each.object_id, each.change_message, each.action_flag, each.content_type) for each in entries] == [
        (text_id, "Retried", CHANGE, None) for text_id in mine
    ]
    (record,) = caplog.records
    assert record.name == "django_delayq.audit"
    assert all(part in record.getMessage() for part in ("retry by 'superuser'", *mine))
    (sent,) = signals_sent
    assert (sent["action"], sent["count"], set(sent["job_ids"])) == ("retry", 2, set(mine))
    assert sent["request"].user.username == "superuser"


def test_more_than_a_hundred_jobs_have_one_row_with_filter_and_count(
    browser: Client, stock: ShardApis, signals_sent: list[dict[str, Any]]
) -> None:
    for number in range(101):
        add(stock, number, queue="mail")
    answer = request_action(browser, page("scheduled", queue="mail"), "cancel", all="yes")
    confirm(browser, answer, typed_confirmation="101")
    (entry,) = LogEntry.objects.all()
    assert entry.change_message == "101 jobs cancelled, queue mail"
    assert entry.object_repr == entry.change_message
    assert entry.action_flag == DELETION
    assert signals_sent[0]["job_ids"] == []
    assert signals_sent[0]["count"] == 101


def test_an_action_that_changed_nothing_is_not_recorded(
    browser: Client, stock: ShardApis, signals_sent: list[dict[str, Any]]
) -> None:
    answer = request_action(browser, page("failed"), "retry", add_dead(stock), add_dead(stock))
    confirm(browser, answer)
    confirm(browser, answer)
    assert LogEntry.objects.count() == 2
    assert len(signals_sent) == 1


def test_the_row_names_the_parameters(browser: Client, stock: ShardApis) -> None:
    mine = add(stock)
    for action, fields, sentence in (
        ("reschedule", {"shift": "-10", "unit": "60"}, "Rescheduled by −10 min"),
        ("reschedule", {"moment": SUMMER_NOON}, f"Rescheduled for {SUMMER_NOON[:10]} 10:00:00 UTC"),
        ("move", {"queue": "mail", "new_queue": "mail"}, "Moved to queue mail"),
    ):
        confirm(browser, request_action(browser, page("scheduled"), action, mine), **fields)
        assert LogEntry.objects.order_by("-pk")[0].change_message == sentence
    page_text = text(browser.get(page("job_detail", mine)))
    assert page_text.index("superuser Moved to queue mail") < page_text.index("superuser Rescheduled by −10 min")


def test_rows_and_lines_take_any_text(browser: Client, stock: ShardApis, caplog: pytest.LogCaptureFixture) -> None:
    add(stock, queue=HOSTILE)
    mine = add(stock, queue="x")
    with caplog.at_level(logging.INFO, "django_delayq.audit"):
        name = "\x1b[31m\u202e\nforged line"
        asked = request_action(browser, page("scheduled"), "move", mine)
        assert confirm(browser, asked, queue=name, new_queue=url_name(name)).status_code == 302
    (entry,) = LogEntry.objects.all()
    assert entry.change_message.isprintable()
    assert caplog.records[0].getMessage().isprintable()
    # The admin's own index shows the rows.
    assert browser.get("/admin/").status_code == 200


def test_a_failing_receiver_changes_nothing(browser: Client, stock: ShardApis) -> None:
    def fails(**_: Any) -> None:
        raise ValueError("as asked")

    audit_log.admin_action.connect(fails)
    try:
        answer = request_action(browser, page("failed"), "retry", add_dead(stock))
    finally:
        audit_log.admin_action.disconnect(fails)
    assert answer.status_code == 302
    assert LogEntry.objects.count() == 1


def test_rows_are_in_the_language_of_the_project(browser: Client, stock: ShardApis) -> None:
    stock.add(queue="mail")
    mine = add_dead(stock)
    browser.post(page("action"), {"action": "pause", "queue": "mail"}, headers={"accept-language": "de"})
    form = form_to(browser.get(page("failed"), headers={"accept-language": "de"}), "/action/")
    [row] = [value for name, value in form.boxes if name == "row"]
    browser.post(page("action"), {**dict(form.fields), "one": row}, headers={"accept-language": "de"})
    assert state(stock, mine) == "ready"
    written = LogEntry.objects.order_by("pk")
    assert [each.change_message for each in written] == ["Paused queue mail", "Retried"]


def test_who_has_no_account_is_still_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    request = RequestFactory().post("/")
    request.user = AnonymousUser()
    with caplog.at_level(logging.INFO, "django_delayq.audit"):
        assert audit_log.record(request, "retry", lambda: "Retried", job_ids=["a"]) is None
    assert not LogEntry.objects.exists()
    assert "retry by ''" in caplog.text


def test_an_action_on_many_jobs_is_on_the_page_of_each(browser: Client, stock: ShardApis) -> None:
    mine = [add(stock, number, delay=HOUR) for number in range(101)]
    confirm(browser, request_action(browser, page("scheduled"), "cancel", all="yes"), typed_confirmation="101")
    browser.post(page("action"), {"action": "pause", "queue": "default", "confirmed": "yes"})
    # The next page shows the messages of both.
    browser.get(page("scheduled"))
    gone = browser.get(page("job_detail", mine[1]))
    assert gone.status_code == 404
    assert "superuser On many jobs at once: 101 jobs cancelled" in text(gone)
    assert "Paused" not in text(gone)
    later = add(stock, "after")
    assert "many jobs" not in text(browser.get(page("job_detail", later)))


def test_times_of_the_audit_log_are_in_the_chosen_zone(browser: Client, stock: ShardApis) -> None:
    mine = add(stock, delay=HOUR)
    request_action(browser, page("scheduled"), "run_now", mine)
    at = LogEntry.objects.get().action_time
    for zone, name in (("utc", UTC), ("local", ZoneInfo("Europe/Berlin"))):
        browser.get(page("overview", zone=zone))
        page_text = text(browser.get(page("job_detail", mine)))
        assert f"{at.astimezone(name):%H:%M:%S} superuser Set to run now" in page_text
