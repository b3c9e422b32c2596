"""Actions on waiting jobs: run now, reschedule, move, cancel."""

from typing import Any

import pytest
from django.test import Client

from tests.admin.conftest import page
from tests.admin.forms import form_to
from tests.admin.jobs import HOUR, POSTED, SUMMER_NOON, SUMMER_NOON_US, add, add_dead, claim, due_us, state
from tests.admin.page_content import ids, text
from tests.admin.reports import tell
from tests.admin.steps import confirm, request_action, result
from tests.shard_apis import SECOND, ShardApis

MINUTE = HOUR // 60


def test_jobs_run_now(browser: Client, stock: ShardApis) -> None:
    mine = [add(stock, number) for number in range(2)]
    running = add(stock, queue="r", delay=None)
    assert "2 jobs will run now." in result(
        browser, confirm(browser, request_action(browser, page("scheduled"), "run_now", *mine))
    )
    assert {state(stock, each) for each in mine} == {"ready"}
    assert state(stock, running) == "ready"


def test_jobs_are_rescheduled_to_a_moment_in_the_chosen_zone(browser: Client, stock: ShardApis) -> None:
    mine = [add(stock, number, delay=HOUR * (number + 1)) for number in range(4)]
    response = request_action(browser, page("scheduled"), "reschedule", all="yes")
    assert "Times are in Europe/Berlin." in text(response)
    result(browser, confirm(browser, response, moment=SUMMER_NOON))
    # Noon of a summer's day in Berlin.
    assert {due_us(stock, each) for each in mine} == {SUMMER_NOON_US}
    browser.cookies["delayq_zone"] = "utc"
    response = request_action(browser, page("scheduled"), "reschedule", mine[0])
    result(browser, confirm(browser, response, moment=f"{SUMMER_NOON}:01"))
    assert due_us(stock, mine[0]) == SUMMER_NOON_US + 2 * HOUR + SECOND


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"moment": SUMMER_NOON, "shift": "5"},
        {"moment": "soon"},
        {"moment": "9999-12-31T23:59"},
        {"shift": "1e400"},
        {"shift": "9" * 5_000},
        {"shift": "999999", "unit": "86400"},
        {"shift": "5", "unit": "x"},
        {"shift": "\x00"},
        {"moment": POSTED},
        {"moment": "x" * 1_000_000},
    ],
)
def test_an_invalid_time_is_refused(browser: Client, stock: ShardApis, fields: dict[str, str]) -> None:
    mine = add(stock)
    due = due_us(stock, mine)
    response = confirm(browser, request_action(browser, page("scheduled"), "reschedule", mine), **fields)
    assert "errorlist" in response.content.decode()
    assert due_us(stock, mine) == due


@pytest.mark.parametrize(("list_name", "action"), [("scheduled", "reschedule"), ("failed", "retry_later")])
def test_a_moment_that_is_past_is_refused(browser: Client, stock: ShardApis, list_name: str, action: str) -> None:
    mine = add(stock) if list_name == "scheduled" else add_dead(stock)
    before_us = due_us(stock, mine)
    response = confirm(browser, request_action(browser, page(list_name), action, mine), moment="2020-01-01T12:00")
    assert "That moment is past." in text(response)
    assert due_us(stock, mine) == before_us


def test_jobs_move_to_another_queue_once(browser: Client, stock: ShardApis) -> None:
    mine = [add(stock, number, queue=f"q{number}", delay=HOUR + number) for number in range(4)]
    response = request_action(browser, page("scheduled"), "move", all="yes")
    assert "q1" in response.content.decode()
    # One is there already and stays untouched.
    assert "3 jobs moved to queue " in result(browser, confirm(browser, response, queue="q2"))
    assert ids(browser.get(page("scheduled", queue="q2"))) == mine


def test_jobs_move_to_declared_queues_only(browser: Client, stock: ShardApis, delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "QUEUES": {"mail": {}, "default": {}}}
    mine = add(stock)
    for queue in ("", "mial", "x" * 300, "\x00"):
        response = confirm(browser, request_action(browser, page("scheduled"), "move", mine), queue=queue)
        assert "errorlist" in response.content.decode()
    result(browser, confirm(browser, request_action(browser, page("scheduled"), "move", mine), queue="mail"))
    assert ids(browser.get(page("scheduled", queue="mail"))) == [mine]


def test_moving_jobs_to_a_queue_without_a_worker_shows_a_remark(browser: Client, stock: ShardApis) -> None:
    tell(stock, queues=["mail"])
    add(stock, queue="mial")
    for queue, alone in (("mial", True), ("mail", False)):
        message = result(
            browser, confirm(browser, request_action(browser, page("scheduled"), "move", add(stock)), queue=queue)
        )
        assert f"1 job moved to queue {queue}." in message
        assert ("No worker takes jobs from queue mial now." in message) is alone


def test_a_queue_that_is_probably_mistyped_has_to_be_confirmed(browser: Client, stock: ShardApis) -> None:
    add(stock, queue="mail")
    mine = add(stock)
    asked = request_action(browser, page("scheduled"), "move", mine)
    assert '<option value="mail">' in asked.content.decode()
    for name in ("mial", "a/b", "mial"):
        asked = confirm(browser, asked, queue=name, new_queue="other")
        assert f"No worker serves “{name}”, and there is no such queue yet." in text(asked)
        assert "Move to this new queue" in text(asked)
    assert state(stock, mine) == "scheduled"
    box = next(box for box in form_to(asked, "/action/").boxes if box[0] == "new_queue")
    assert "1 job moved to queue mial." in result(browser, form_to(asked, "/action/").post(browser, box, queue="mial"))


def test_jobs_that_run_are_no_longer_waiting(browser: Client, stock: ShardApis) -> None:
    mine = add(stock)
    response = request_action(browser, page("scheduled"), "cancel", mine)
    stock.operations.reschedule(bytes.fromhex(mine[:24]), delay_us=0)
    claim(stock, mine)
    assert "No longer waiting: nothing was changed." in result(browser, confirm(browser, response))
    assert state(stock, mine) == "claimed"
