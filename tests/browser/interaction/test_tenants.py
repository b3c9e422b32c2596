"""The page of the tenants of a fair queue: tidy, accessible, and usable by the keyboard and without JavaScript."""

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.admin.conftest import page
from tests.browser.fixtures import Fixtures
from tests.browser.interaction.test_keyboard import tab_to
from tests.browser.page_session import PageSession
from tests.browser.test_every_page import look_over
from tests.shard_apis import HOUR


@pytest.fixture
def tenants(stock: Fixtures, settings: Any) -> str:
    """The address of the page of a queue with tenants, two of them paused, one of these without jobs."""
    settings.DELAYQ = {**settings.DELAYQ, "QUEUES": {"fair": {"fair": True, "weights": {"acme": 3}}}}
    for number, name in enumerate(["acme", None, "x" * 200, "<b>bold</b>\x00"]):
        for _ in range(4 - number):
            stock.apis.add(queue="fair", tenant=name)
    stock.apis.add(queue="fair", tenant="later", delay=HOUR)
    for name in ("later", "without jobs"):
        stock.apis.store.operations(0).workers.pause_tenant("fair", name, by="ann")
    return page("queue_tenants", "fair")


def test_the_page_is_tidy_and_accessible(window: PageSession, tenants: str) -> None:
    window.open(tenants)
    expect(window.page.locator("#delayq tbody tr")).to_have_count(6)
    look_over(window)


def test_the_page_without_tenants_is_tidy_and_accessible(window: PageSession, stock: Fixtures) -> None:
    window.open(page("queue_tenants", "fair"))
    expect(window.page.locator(".delayq-empty")).to_have_text("No tenant has waiting jobs.")
    look_over(window)


def test_the_page_from_right_to_left_is_tidy(new_window: Callable[..., PageSession], tenants: str) -> None:
    window = new_window(locale="ar")
    window.open(tenants)
    window.assert_tidy(1280, 390)
    window.assert_calm()


def test_a_tenant_is_paused_by_the_keyboard(window: PageSession, stock: Fixtures, tenants: str) -> None:
    window.open(page("queue_detail", "fair"))
    tab_to(window, f"#delayq a[href='{tenants}']")
    window.page.keyboard.press("Enter")
    window.page.wait_for_url(f"**{tenants}")
    tab_to(window, "tr:first-child button[value^='action=pause_tenant']")
    window.page.keyboard.press("Enter")
    expect(window.page.locator(".messagelist .success")).to_contain_text("Paused tenant acme of queue fair.")
    expect(window.page.get_by_role("row", name="acme")).to_contain_text("paused by")
    assert stock.apis.store.tenants(0).find("fair", "acme").paused
    look_over(window)
    tab_to(window, ".delayq-undo button")
    window.page.keyboard.press("Enter")
    expect(window.page.locator(".messagelist .success")).to_contain_text("Resumed tenant acme of queue fair.")
    assert not stock.apis.store.tenants(0).find("fair", "acme").paused
    window.assert_calm()


def test_the_jobs_of_a_tenant_are_cancelled_by_the_keyboard(window: PageSession, stock: Fixtures, tenants: str) -> None:
    window.open(tenants)
    tab_to(window, "tr:first-child button[value^='action=cancel_tenant']")
    window.page.keyboard.press("Enter")
    expect(window.page.get_by_role("heading", name="Cancel 4 waiting jobs?")).to_be_visible()
    look_over(window)
    tab_to(window, ".delayq-confirm button[type=submit]")
    window.page.keyboard.press("Enter")
    expect(window.page.locator(".messagelist .success")).to_contain_text("4 jobs cancelled.")
    expect(window.page.get_by_role("row", name="acme")).to_have_count(0)
    assert stock.apis.store.tenants(0).find("fair", "acme").waiting == 0
    window.assert_calm()


def test_many_jobs_of_a_tenant_are_cancelled_without_javascript(
    new_window: Callable[..., PageSession], stock: Fixtures, tenants: str, bounds: Callable[..., None]
) -> None:
    bounds(action_seconds=0, changed_jobs=1)
    window = new_window(java_script_enabled=False)
    window.open(tenants)
    window.page.get_by_role("row", name="acme").get_by_role("button", name="Cancel its jobs").click()
    window.page.locator(".delayq-confirm button[type=submit]").click()
    for done in range(1, 4):
        expect(window.page.locator("[data-continue] [role=status]")).to_contain_text(f"{done} of 4 done.")
        window.page.get_by_role("button", name="Continue").click()
    expect(window.page.locator(".messagelist .success")).to_contain_text("4 jobs cancelled.")
    window.assert_calm()


def test_a_paused_tenant_without_jobs_is_resumed(window: PageSession, stock: Fixtures, tenants: str) -> None:
    window.open(tenants)
    window.page.get_by_role("row", name="without jobs").get_by_role("button", name="Resume").click()
    expect(window.page.locator(".messagelist .success")).to_contain_text("Resumed tenant without jobs of queue fair.")
    expect(window.page.get_by_role("row", name="without jobs")).to_have_count(0)
    assert not stock.apis.store.tenants(0).find("fair", "without jobs").paused
    window.assert_calm()


def test_tenants_are_paused_and_resumed_without_javascript(
    new_window: Callable[..., PageSession], stock: Fixtures, tenants: str
) -> None:
    window = new_window(java_script_enabled=False)
    window.open(tenants)
    row = window.page.get_by_role("row", name="acme")
    for button, paused in (("Pause", True), ("Resume", False)):
        row.get_by_role("button", name=button).click()
        expect(row).to_contain_text("Resume" if paused else "Pause")
        assert bool(stock.apis.store.tenants(0).find("fair", "acme").paused) is paused
    window.assert_calm()
