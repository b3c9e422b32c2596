"""The buttons of rows and of messages, and the confirm page in the browser's history."""

from collections.abc import Callable

from playwright.sync_api import expect

from tests.admin.conftest import page
from tests.admin.jobs import state
from tests.browser.fixtures import Fixtures
from tests.browser.page_session import PageSession
from tests.browser.test_every_page import look_over


def test_a_job_is_run_from_its_row_and_set_back(window: PageSession, stock: Fixtures) -> None:
    stock.fill(scheduled=40)
    window.open(page("scheduled", n=50))
    button = window.page.get_by_role("row").nth(36).get_by_role("button", name="Run now")
    text_id = (button.get_attribute("value") or "").split(".")[0]
    button.scroll_into_view_if_needed()
    place = window.page.evaluate("scrollY")
    assert place > 0
    button.click()
    message = window.page.locator(".messagelist .success")
    expect(message).to_contain_text("1 job will run now.")
    # The page is where it was, and the message is in sight.
    window.page.wait_for_function("place => Math.abs(scrollY - place) <= 60", arg=place)
    expect(message).to_be_in_viewport()
    assert state(stock.apis, text_id) == "ready"
    look_over(window)
    window.page.get_by_role("button", name="Undo").click()
    expect(message).to_contain_text("1 job set back to its time.")
    assert state(stock.apis, text_id) == "scheduled"
    window.assert_calm()


def test_each_button_names_its_job(window: PageSession, stock: Fixtures) -> None:
    stock.fill(scheduled=3)
    for list_name, label in (("scheduled", "Run now"), ("failed", "Retry now")):
        window.open(page(list_name))
        buttons = window.page.locator("button[name=one]")
        expect(buttons).to_have_count(window.page.locator("input[name=row]").count())
        names = [button.get_attribute("aria-label") or "" for button in buttons.all()]
        assert len(set(names)) == len(names)
        assert all(name.startswith(f"{label}: ") for name in names)
    for list_name in ("running", "finished"):
        window.open(page(list_name))
        expect(window.page.locator("button[name=one]")).to_have_count(0)


def test_a_live_update_brings_rows_with_buttons(window: PageSession, stock: Fixtures) -> None:
    stock.fill(scheduled=1)
    window.page.clock.install()
    window.open(page("scheduled"))
    rows = window.page.locator("input[name=row]")
    before = rows.count()
    live = window.page.get_by_role("button", name="Live")
    if live.get_attribute("aria-pressed") != "true":
        live.click()
    stock.add()
    window.page.clock.run_for(6_000)
    expect(rows).to_have_count(before + 1)
    expect(window.page.locator("button[name=one]")).to_have_count(before + 1)
    window.assert_calm()


def test_the_buttons_have_room_on_a_phone(window: PageSession, stock: Fixtures) -> None:
    stock.fill(scheduled=3)
    for list_name in ("scheduled", "failed"):
        window.open(page(list_name))
        window.assert_tidy(1280, 375)
        window.assert_accessible()


def test_back_leads_to_the_confirm_page(new_window: Callable[..., PageSession], stock: Fixtures) -> None:
    stock.fill(scheduled=1)
    for java_script_enabled in (True, False):
        window = new_window(java_script_enabled=java_script_enabled)
        window.open(page("failed"))
        window.page.locator("[name=row]").first.check()
        window.request_action("delete")
        asked = window.page.get_by_role("heading", name="Delete 1 failed job?")
        expect(asked).to_be_visible()
        window.page.get_by_role("button", name="Delete 1 failed job").click()
        expect(window.page.locator(".messagelist .success")).to_contain_text("1 job deleted.")
        # Going back aborts requests of a page that is still loading.
        window.page.wait_for_load_state()
        window.page.go_back()
        expect(asked).to_be_visible()
        window.page.get_by_role("button", name="Delete 1 failed job").click()
        expect(window.page.locator(".messagelist .warning")).to_contain_text("Already gone: nothing was changed.")
        window.assert_calm()
