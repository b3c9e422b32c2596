"""The confirm page: it names the number, shows the first rows, and asks for typed text before it destroys much."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import time_machine
from django.contrib.admin.models import LogEntry
from django.test import Client

from tests.admin.conftest import page
from tests.admin.forms import form_to, forms
from tests.admin.jobs import HOSTILE, HOUR, POSTED, add, add_dead, state
from tests.admin.page_content import text
from tests.admin.steps import confirm, request_action, result
from tests.shard_apis import ShardApis

MINUTE = HOUR // 60


def test_labels_and_buttons_name_the_number_of_jobs(browser: Client, stock: ShardApis) -> None:
    for number in range(3):
        add_dead(stock, "odd" if number % 2 else "even")
    assert "all 3 matching" in text(browser.get(page("failed")))
    response = request_action(browser, page("failed"), "delete", all="yes")
    assert [name for form in forms(response) for name, _ in form.fields if name == "signed_request"]
    assert "Delete 3 failed jobs" in text(response)
    assert "This cannot be undone." in text(response)
    assert "Export them first" in text(response)


def test_cancel_has_the_focus(browser: Client, stock: ShardApis) -> None:
    response = request_action(browser, page("failed"), "delete", add_dead(stock))
    (focused,) = re.findall(r"<[^>]*autofocus[^>]*>", response.content.decode())
    assert focused.startswith("<a ")
    assert page("failed") in focused


def test_the_field_that_must_be_filled_in_has_the_focus(
    browser: Client, stock: ShardApis, bounds: Callable[..., None]
) -> None:
    bounds(untyped_jobs=0)
    waiting, failed = add(stock), add_dead(stock)
    for list_name, action, job_id, field in (
        ("scheduled", "reschedule", waiting, "moment"),
        ("scheduled", "move", waiting, "queue"),
        ("failed", "delete", failed, "typed_confirmation"),
    ):
        asked = request_action(browser, page(list_name), action, job_id)
        assert focused(asked) == field
    # An error is corrected first.
    asked = confirm(browser, request_action(browser, page("scheduled"), "reschedule", waiting), shift="x")
    assert focused(asked) == "shift"
    edit = form_to(browser.get(page("job_detail", failed)), "/action/").post(browser, action="edit")
    assert focused(edit) == "args"


def test_a_form_for_one_job_does_not_speak_of_all(browser: Client, stock: ShardApis) -> None:
    mine = [add_dead(stock, number) for number in range(2)]
    assert "Retry at:" in text(request_action(browser, page("failed"), "retry_later", mine[0]))
    assert "Retry all at:" in text(request_action(browser, page("failed"), "retry_later", *mine))


def focused(response: Any) -> str:
    """Return the name of the field that has the focus."""
    (found,) = re.findall(r"<(?:input|textarea)[^>]*autofocus[^>]*>|<a[^>]*autofocus[^>]*>", response.content.decode())
    return re.search(r'name="(\w+)"', found)[1]  # type: ignore[index]


def test_more_than_a_hundred_are_deleted_only_with_their_number_typed(browser: Client, stock: ShardApis) -> None:
    for number in range(101):
        add_dead(stock, number)
    response = request_action(browser, page("failed"), "delete", all="yes")
    assert "Type 101 to continue:" in text(response)
    for typed in ("", "100", "yes", "1", POSTED):
        response = confirm(browser, response, typed_confirmation=typed)
        assert "Nothing was done." in text(response)
    assert stock.inspection.counts().dead == 101
    assert "101 jobs deleted." in result(browser, confirm(browser, response, typed_confirmation=" 101 "))
    assert stock.inspection.counts().dead == 0
    (entry,) = LogEntry.objects.all()
    assert "101 jobs deleted, failed up to" in entry.change_message


def test_all_ready_jobs_of_a_queue_are_cancelled_with_its_name_typed(browser: Client, stock: ShardApis) -> None:
    mine = [add(stock, number, queue="mail", delay=None) for number in range(3)]
    waiting, other = add(stock, queue="mail"), add(stock, delay=None)
    response = form_to(browser.get(page("queue_detail", "mail")), "/action/", button="cancel_all").post(
        browser, action="cancel_all"
    )
    assert "Cancel all 3 ready jobs?" in text(response)
    later = add(stock, queue="mail", delay=None)
    assert "Nothing was done." in text(confirm(browser, response, typed_confirmation="3"))
    assert "3 jobs cancelled." in result(browser, confirm(browser, response, typed_confirmation="mail"))
    assert {state(stock, each) for each in mine} == {"gone"}
    assert state(stock, waiting) == "scheduled"
    assert {state(stock, each) for each in (other, later)} == {"ready"}


def test_cancelling_all_leaves_what_became_ready_later(browser: Client, stock: ShardApis) -> None:
    mine, scheduled = add(stock, queue="mail", delay=None), add(stock, queue="mail")
    form = form_to(browser.get(page("queue_detail", "mail")), "/action/", button="cancel_all")
    survey = stock.store.dashboard(0)
    seen_us = int(dict(form.fields)["seen_us"])
    for _ in range(10_000):
        if survey.snapshot().now_us > seen_us + 5_000:
            break
    stock.operations.reschedule(bytes.fromhex(scheduled[:24]), delay_us=0)
    assert "1 job cancelled." in result(
        browser, confirm(browser, form.post(browser, action="cancel_all"), typed_confirmation="mail")
    )
    assert (state(stock, mine), state(stock, scheduled)) == ("gone", "ready")


def test_a_confirm_page_that_is_opened_again_is_as_old_as_its_form(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock)
    asked = request_action(browser, page("failed"), "delete", mine)
    address = asked.wsgi_request.get_full_path()
    with time_machine.travel(datetime.now(UTC) + timedelta(minutes=50)):
        asked = browser.get(address)
        assert "Delete 1 failed job?" in text(asked)
    with time_machine.travel(datetime.now(UTC) + timedelta(minutes=70)):
        assert "This form is too old" in result(browser, browser.get(address))
        assert "This form is too old" in result(browser, confirm(browser, asked))
    assert state(stock, mine) == "dead"


def test_a_confirm_page_shows_hostile_rows_as_text(browser: Client, stock: ShardApis) -> None:
    add_dead(stock, HOSTILE, task="tests.sample_app.tasks.noop", queue=HOSTILE)
    for action in ("retry", "retry_later", "delete"):
        body = request_action(browser, page("failed", q="alert"), action, all="yes").content.decode()
        assert "<script>alert" not in body
        assert "&lt;script&gt;" in body


def test_every_form_can_be_sent_without_a_script(browser: Client, stock: ShardApis) -> None:
    add(stock, queue="mail", delay=None)
    scheduled, failed = add(stock), add_dead(stock)
    pages = [page("scheduled"), page("failed"), page("failed", group="error"), page("queue_detail", "mail")]
    for address in (*pages, page("job_detail", scheduled), page("job_detail", failed)):
        posts = [form for form in forms(browser.get(address)) if form.action == page("action")]
        assert posts
        for form in posts:
            assert "csrfmiddlewaretoken" in dict(form.fields)
            assert "action" in dict(form.buttons)
