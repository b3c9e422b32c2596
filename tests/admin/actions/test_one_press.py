"""One press: an action on one job that can be undone is done at once, and its message has a button that undoes it."""

import os
import random
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_delayq.job.ids import next_id
from django_delayq.job.outcome import Action
from tests.admin.conftest import page
from tests.admin.forms import form_to, forms
from tests.admin.jobs import HOUR, SUMMER_NOON, add, add_dead, claim, due_us, state
from tests.admin.page_content import text
from tests.admin.steps import confirm, request_action, result, undo
from tests.shard_apis import ShardApis


def press(browser: Client, address: str, job_id: str, **fields: Any) -> Any:
    """Press the button that the script adds to the row of a job."""
    form = form_to(browser.get(address), "/action/")
    [token] = [value for name, value in form.boxes if name == "row" and value.startswith(job_id)]
    return form.post(browser, ("one", token), **fields)


def test_run_now_is_undone(browser: Client, stock: ShardApis) -> None:
    mine, other = add(stock), add(stock)
    due = due_us(stock, mine)
    address = page("scheduled", task="noop", n=25)
    done = press(browser, address, mine)
    assert done.url == address
    said = browser.get(done.url)
    assert "1 job will run now." in text(said)
    assert (state(stock, mine), state(stock, other)) == ("ready", "scheduled")
    back = undo(browser, said)
    assert back.url == address
    assert "1 job set back to its time." in result(browser, back)
    assert (state(stock, mine), due_us(stock, mine)) == ("scheduled", due)
    assert [entry.change_message for entry in LogEntry.objects.order_by("pk")] == [
        "Set to run now",
        "Set back to its time",
    ]


def test_what_has_begun_cannot_be_set_back(browser: Client, stock: ShardApis) -> None:
    mine = add(stock)
    said = browser.get(press(browser, page("scheduled"), mine).url)
    claim(stock, mine)
    assert "It has changed since: nothing was undone." in result(browser, undo(browser, said))
    assert state(stock, mine) == "claimed"


def test_what_has_run_since_is_not_set_back(browser: Client, stock: ShardApis) -> None:
    mine = add(stock)
    said = browser.get(press(browser, page("scheduled"), mine).url)
    worker, claimed = claim(stock, mine)
    worker.settle(claimed, Action.RETRY, delay=HOUR)
    due = due_us(stock, mine)
    assert "It has changed since: nothing was undone." in result(browser, undo(browser, said))
    assert due_us(stock, mine) == due


def test_what_somebody_else_moved_since_is_not_set_back(browser: Client, stock: ShardApis) -> None:
    mine = add(stock)
    said = browser.get(press(browser, page("scheduled"), mine).url)
    stock.operations.reschedule(bytes.fromhex(mine[:24]), delay_us=5 * HOUR)
    due = due_us(stock, mine)
    assert "It has changed since: nothing was undone." in result(browser, undo(browser, said))
    assert due_us(stock, mine) == due


def test_a_retry_is_undone(browser: Client, stock: ShardApis) -> None:
    mine, other = add_dead(stock), add_dead(stock)
    address = page("failed", task="noop", n=25)
    before = browser.get(address)
    said = browser.get(press(browser, address, mine).url)
    assert "1 job retried." in text(said)
    assert (state(stock, mine), state(stock, other)) == ("ready", "dead")
    back = undo(browser, said)
    assert back.url == address
    after = browser.get(address)
    assert "1 retry undone." in text(after)
    assert {state(stock, each) for each in (mine, other)} == {"dead"}
    # It is the same row.
    rows = [[box for box in form_to(each, "/action/").boxes if box[0] == "row"] for each in (before, after)]
    assert rows[0] == rows[1]
    assert [entry.change_message for entry in LogEntry.objects.order_by("pk")] == ["Retried", "Retry undone"]


def test_a_retry_that_has_begun_is_not_undone(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock)
    said = browser.get(press(browser, page("failed"), mine).url)
    claim(stock, mine)
    assert "It has changed since: nothing was undone." in result(browser, undo(browser, said))
    assert state(stock, mine) == "claimed"


def test_the_button_of_a_row_ignores_what_is_selected(browser: Client, stock: ShardApis) -> None:
    mine, other = add_dead(stock), add_dead(stock)
    form = form_to(browser.get(page("failed")), "/action/")
    tokens = {value[:26]: value for name, value in form.boxes if name == "row"}
    form.post(browser, ("row", tokens[other]), ("one", tokens[mine]), action="delete", all="yes")
    assert (state(stock, mine), state(stock, other)) == ("ready", "dead")


@pytest.mark.parametrize("list_name", ["scheduled", "failed"])
def test_the_table_tells_the_script_its_action(list_name: str, browser: Client, visitor: Any, stock: ShardApis) -> None:
    add(stock), add_dead(stock)
    label = {"scheduled": "Run now", "failed": "Retry now"}[list_name]
    assert f'data-row-action="{label}"' in browser.get(page(list_name)).content.decode()
    viewed = visitor("viewer").get(page(list_name)).content.decode()
    assert "data-row-action" not in viewed
    assert "rows.js" not in viewed


def test_a_reschedule_of_one_job_is_undone(browser: Client, stock: ShardApis) -> None:
    mine = add(stock)
    due = due_us(stock, mine)
    done = confirm(browser, request_action(browser, page("scheduled"), "reschedule", mine), shift="90")
    assert due_us(stock, mine) == due + 90 * HOUR // 60
    assert "1 job set back to its time." in result(browser, undo(browser, browser.get(done.url)))
    assert due_us(stock, mine) == due


def test_a_ready_job_that_is_rescheduled_has_no_undo(browser: Client, stock: ShardApis) -> None:
    # Its place among the ready jobs would not come back.
    mine = add(stock, queue="mail", delay=None)
    asked = request_action(browser, page("queue_detail", "mail"), "reschedule", mine)
    done = confirm(browser, asked, shift="90")
    assert not [form for form in forms(browser.get(done.url)) if form.is_undo]


def test_a_retry_at_a_time_is_undone(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock)
    asked = request_action(browser, page("failed"), "retry_later", mine)
    done = confirm(browser, asked, moment=SUMMER_NOON)
    assert state(stock, mine) == "scheduled"
    assert "1 retry undone." in result(browser, undo(browser, browser.get(done.url)))
    assert state(stock, mine) == "dead"


@pytest.mark.parametrize(
    "changes",
    [{"left_us": ""}, {"left_us": "x"}, {"left_us": "9" * 20}, {"left_counts": "zz"}, {"row": ["a", "b"]}],
)
def test_an_undo_that_makes_no_sense_does_nothing(changes: dict[str, Any], browser: Client, stock: ShardApis) -> None:
    mine, other = add_dead(stock), add_dead(stock)
    said = browser.get(press(browser, page("failed"), mine).url)
    [form] = [form for form in forms(said) if form.is_undo]
    if "row" in changes:
        row = dict(form.fields)["row"]
        changes = {"row": [row, row.replace(mine, other)]}
    answer = browser.post(form.action, {**dict(form.fields), **changes})
    assert "Nothing was selected, so nothing was done." in result(browser, answer)
    assert state(stock, mine) == "ready"


def test_what_changed_several_jobs_or_none_has_no_undo(browser: Client, stock: ShardApis) -> None:
    mine, other = add(stock), add(stock)
    done = confirm(browser, request_action(browser, page("scheduled"), "run_now", mine, other))
    assert not [form for form in forms(browser.get(done.url)) if form.is_undo]
    claim(stock, mine)
    again = browser.post(page("action"), {"list": "scheduled", "one": f"{mine}.5", "seen_us": "5"})
    assert not [form for form in forms(browser.get(again.url)) if form.is_undo]


def test_an_undo_needs_its_token(account: Any, stock: ShardApis) -> None:
    mine, browser = add(stock), Client(enforce_csrf_checks=True)
    browser.force_login(account("superuser"))
    said = browser.get(press(browser, page("scheduled"), mine).url)
    [form] = [form for form in forms(said) if form.is_undo]
    without = {name: value for name, value in form.fields if name != "csrfmiddlewaretoken"}
    assert browser.post(form.action, without).status_code == 403
    assert undo(browser, said).status_code == 302
    assert state(stock, mine) == "scheduled"


@pytest.mark.parametrize("list_name", ["running", "ready", "finished", "", "x"])
def test_a_list_without_a_button_does_nothing(list_name: str, browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock)
    fields = {"list": list_name, "one": f"{mine}.5", "seen_us": "5", "action": "retry"}
    assert "Nothing was selected, so nothing was done." in result(browser, browser.post(page("action"), fields))
    assert state(stock, mine) == "dead"


# The confirm page has an address.


def test_arguments_to_edit_are_on_no_page_with_an_address(browser: Client, stock: ShardApis) -> None:
    mine = add_dead(stock, token="hidden-value", task="tests.sample_app.tasks.noop")
    form = form_to(browser.get(page("job_detail", mine)), "/action/", button="edit")
    asked = browser.post(form.action, {**dict(form.fields), "action": "edit"})
    assert "hidden-value" in asked.content.decode()
    signed = dict(form_to(asked, "/action/").fields)["signed_request"]
    assert "Nothing was done." in result(browser, browser.get(page("action", signed_request=signed)))
    assert LogEntry.objects.count() == 1


def test_a_confirm_page_can_be_opened_again(browser: Client, stock: ShardApis) -> None:
    mine = [add_dead(stock, number) for number in range(3)]
    form = form_to(browser.get(page("failed")), "/action/")
    rows = [value for name, value in form.boxes if name == "row" and value[:26] in mine[:2]]
    response = browser.post(form.action, {**dict(form.fields), "row": rows, "action": "delete"})
    assert response.status_code == 302
    for _ in range(2):
        asked = browser.get(response.url)
        assert "Delete 2 failed jobs?" in text(asked)
        assert all(f"…{each[18:]}" in text(asked) for each in mine[:2])
    assert {state(stock, each) for each in mine} == {"dead"}
    assert "2 jobs deleted." in result(browser, confirm(browser, asked))
    # A person who goes back then reads what is left, and changes nothing by another press.
    assert "Already gone: nothing was changed." in result(browser, confirm(browser, browser.get(response.url)))
    assert state(stock, mine[2]) == "dead"


def test_the_page_of_many_rows_is_the_response_itself(browser: Client, stock: ShardApis) -> None:
    # Ids in a row compress well: the address of 250 of them would be about as long as the longest.
    year_ms, now_ms = 366 * 86_400_000, int.from_bytes(next_id()[:6])
    made_ms = [now_ms - random.randrange(year_ms) for _ in range(250)]
    mine = [add_dead(stock, each, raw_id=each.to_bytes(6) + os.urandom(6)) for each in made_ms]
    form = form_to(browser.get(page("failed", n=250)), "/action/")
    rows = [value for name, value in form.boxes if name == "row"]
    fields = {**dict(form.fields), "action": "delete"}
    small = browser.post(form.action, {**fields, "row": rows[:50]})
    assert (small.status_code, len(small.url) < 3_000) == (302, True)
    response = browser.post(form.action, {**fields, "row": rows})
    assert "Delete 250 failed jobs?" in text(response)
    assert "250 jobs deleted." in result(browser, confirm(browser, response, typed_confirmation="250"))
    assert {state(stock, each) for each in mine} == {"gone"}


def test_nobody_else_opens_a_confirm_page(browser: Client, visitor: Any, stock: ShardApis) -> None:
    add_dead(stock)
    form = form_to(browser.get(page("failed")), "/action/")
    response = browser.post(form.action, {**dict(form.fields), "action": "delete", "all": "yes"})
    other = visitor("manager")
    assert "This form is too old or not yours. Nothing was done." in result(other, other.get(response.url))
    assert visitor("viewer").get(response.url).status_code == 403
    for broken in ("", "x", "a:b:c"):
        answer = browser.get(page("action", x="y") + f"&signed_request={broken}")
        assert "This form is too old or not yours. Nothing was done." in result(browser, answer)


def test_a_get_never_continues_an_action(browser: Client, stock: ShardApis, bounds: Any) -> None:
    bounds(action_seconds=0, changed_jobs=1)
    mine = [add_dead(stock, number) for number in range(3)]
    running = confirm(browser, request_action(browser, page("failed"), "retry", all="yes"))
    signed = dict(form_to(running, "/action/").fields)["signed_request"]
    assert "Nothing was done." in result(browser, browser.get(page("action", signed_request=signed)))
    assert sorted(state(stock, each) for each in mine) == ["dead", "dead", "ready"]
