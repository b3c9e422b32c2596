"""Every page, light and dark, wide and narrow, in both directions: no errors, accessible, nothing overlaps."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.admin.conftest import page
from tests.browser.fixtures import Fixtures
from tests.browser.page_session import PageSession
from tests.browser.pages import GONE, PAGES, TABS

WIDTHS = (1280, 390)


def look_over(window: PageSession) -> None:
    """Run all checks, light and dark."""
    window.assert_calm()
    window.assert_accessible()
    window.darken()
    window.assert_accessible(only_colours=True)
    window.assert_tidy(*WIDTHS)
    window.assert_calm()


@pytest.mark.parametrize("name", PAGES)
def test_page_with_many_jobs(name: str, window: PageSession, stock: Fixtures) -> None:
    window.open(PAGES[name](stock.fill().ids))
    look_over(window)


@pytest.mark.parametrize("tab", TABS)
def test_empty_page(tab: str, window: PageSession, stock: Fixtures) -> None:
    window.open(page(tab))
    look_over(window)


def test_page_of_a_missing_job(window: PageSession, stock: Fixtures) -> None:
    window.open(page("job_detail", GONE), status=404)
    look_over(window)


@pytest.mark.parametrize("tab", TABS)
def test_page_without_redis(tab: str, window: PageSession, settings: Any) -> None:
    settings.DELAYQ = {"REDIS": "redis://:secret@127.0.0.1:1"}
    window.open(page(tab), status=503)
    look_over(window)


@pytest.mark.parametrize(
    ("list_name", "action", "focused"),
    [
        ("scheduled", "run_now", ""),
        ("scheduled", "reschedule", "moment"),
        ("scheduled", "move", "queue"),
        ("failed", "retry_later", "moment"),
        ("failed", "delete", ""),
    ],
)
def test_confirm_page_and_progress_page(
    list_name: str, action: str, focused: str, window: PageSession, stock: Fixtures, bounds: Callable[..., None]
) -> None:
    bounds(action_seconds=-1.0, changed_jobs=1)
    stock.fill(scheduled=200)
    # Keeps the progress page from continuing by itself.
    window.page.add_init_script("HTMLFormElement.prototype.requestSubmit = () => null")
    window.open(page(list_name))
    window.page.locator("input[name=all]").check()
    window.request_action(action)
    back = window.page.get_by_role("link", name="Go back", exact=True)
    expect(window.page.locator(f"[name={focused}]") if focused else back).to_be_focused()
    look_over(window)
    for name, value in {"shift": "5", "queue": "email", "minutes": "30"}.items():
        for field in window.page.locator(f".delayq-form [name={name}]").all():
            field.fill(value)
    window.page.locator(".delayq-confirm button[type=submit]").click()
    expect(window.page.get_by_role("button", name="Continue")).to_be_visible()
    look_over(window)


def test_page_that_offers_to_continue_an_action(
    window: PageSession, stock: Fixtures, bounds: Callable[..., None]
) -> None:
    bounds(action_seconds=-1.0, changed_jobs=1)
    stock.fill(scheduled=200)
    window.page.add_init_script("HTMLFormElement.prototype.requestSubmit = () => null")
    window.open(page("scheduled"))
    window.page.locator("input[name=all]").check()
    window.request_action("run_now")
    window.page.locator(".delayq-confirm button[type=submit]").click()
    window.page.get_by_role("button", name="Continue").wait_for()
    window.open(page("overview"))
    expect(window.page.locator(".delayq-unfinished")).to_contain_text("Run 203 jobs now: 1 of 203 done.")
    look_over(window)
    window.page.get_by_role("button", name="Continue").click()
    expect(window.page.locator("#delayq")).to_contain_text("2 of 203 done.")


@pytest.mark.parametrize("name", PAGES)
def test_page_from_right_to_left(name: str, new_window: Callable[..., PageSession], stock: Fixtures) -> None:
    window = new_window(locale="ar")
    window.open(PAGES[name](stock.fill(scheduled=60).ids))
    assert window.page.evaluate("() => getComputedStyle(document.querySelector('#delayq')).direction") == "rtl"
    window.assert_tidy(*WIDTHS)
    window.assert_calm()
