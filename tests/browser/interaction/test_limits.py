"""The page of limits and paused tasks: tidy, accessible, and usable by the keyboard and without JavaScript."""

from collections.abc import Callable
from typing import Any

import pytest
from django.http import QueryDict
from playwright.sync_api import expect

from django_delayq.job.ids import to_text
from django_delayq.job.job import LimitUse
from tests.admin.conftest import page
from tests.admin.jobs import NOOP
from tests.browser.fixtures import Fixtures
from tests.browser.interaction.test_keyboard import tab_to
from tests.browser.page_session import PageSession
from tests.browser.test_every_page import look_over
from tests.shard_apis import SECOND

LONG = "x" * 200
LIMITS = {
    "stripe": {"rate": "100/s", "burst": 20, "max_running": 5},
    "<b>bold</b>": {"rate": "1/d"},
    LONG: {"max_running": 1},
}


@pytest.fixture
def parked(stock: Fixtures, settings: Any) -> str:
    """Limits in use, and two paused tasks; the id of a job that waits for a limit of a long name and value."""
    settings.DELAYQ = {**settings.DELAYQ, "LIMITS": LIMITS}
    limits = stock.apis.store.operations(0).limits
    stock.apis.operations.limits.back_off(LimitUse("stripe"), 3_600 * SECOND)
    stock.apis.add(limits=[LimitUse("stripe")])
    raw_id = stock.apis.add(limits=[LimitUse("stripe", LONG)])
    limits.back_off(LimitUse("stripe", LONG), 3_600 * SECOND)
    stock.apis.worker().take(8)
    # Later: a job of a paused task would wait for that task.
    for name in (NOOP, f"shop.{LONG}"):
        limits.pause_task(name, by="ann")
    return to_text(raw_id, 0)


@pytest.mark.usefixtures("parked")
def test_the_page_is_tidy_and_accessible(window: PageSession) -> None:
    window.open(page("limits"))
    expect(window.page.locator("#delayq tbody tr")).to_have_count(5)
    look_over(window)


def test_pages_of_a_parked_job_are_tidy_and_accessible(window: PageSession, parked: str) -> None:
    for address in (page("job_detail", parked), page("queue_detail", "default")):
        window.open(address)
        expect(window.page.locator(".delayq-chip", has_text="waits for the limit").first).to_be_visible()
        window.assert_accessible()
        window.assert_tidy(1280, 390)
    window.assert_calm()


@pytest.mark.usefixtures("parked")
def test_the_page_from_right_to_left_is_tidy(new_window: Callable[..., PageSession]) -> None:
    window = new_window(locale="ar")
    window.open(page("limits"))
    window.assert_tidy(1280, 390)
    window.assert_calm()


def test_a_task_is_paused_by_the_keyboard(window: PageSession, stock: Fixtures) -> None:
    window.open(page("tasks"))
    row = "#delayq tbody tr:first-child"
    value = window.page.locator(f"{row} button").get_attribute("value")
    name = QueryDict(value)["task"]
    tab_to(window, f"{row} button[value^='action=pause_task']")
    window.page.keyboard.press("Enter")
    expect(window.page.locator(".messagelist .success")).to_contain_text(f"Paused task {name}.")
    expect(window.page.locator(row)).to_contain_text("paused")
    assert name in stock.apis.store.limits(0).paused_tasks()
    look_over(window)


@pytest.mark.usefixtures("parked")
def test_a_task_is_resumed_without_javascript(new_window: Callable[..., PageSession], stock: Fixtures) -> None:
    window = new_window(java_script_enabled=False)
    window.open(page("limits"))
    window.page.get_by_role("row", name=NOOP).get_by_role("button", name="Resume").click()
    expect(window.page.locator(".messagelist .success")).to_contain_text(f"Resumed task {NOOP}.")
    expect(window.page.get_by_role("row", name=NOOP)).to_have_count(0)
    assert list(stock.apis.store.limits(0).paused_tasks()) == [f"shop.{LONG}"]
    window.assert_calm()
