"""Recurring schedules: their forms by the keyboard and without JavaScript, and the calendar on a narrow screen."""

from collections.abc import Callable

from playwright.sync_api import expect

from tests.admin.conftest import page
from tests.admin.schedule_records import stored
from tests.browser.fixtures import Fixtures
from tests.browser.interaction.test_keyboard import tab_to
from tests.browser.page_session import PageSession
from tests.browser.test_every_page import look_over


def test_a_schedule_is_paused_and_run_by_the_keyboard(window: PageSession, stock: Fixtures) -> None:
    ids = stock.fill(scheduled=10).ids
    window.open(page("recurring", prefix="nightly"))
    tab_to(window, "button[value^='action=pause_schedule']")
    window.page.keyboard.press("Enter")
    expect(window.page.get_by_role("link", name="Go back", exact=True)).to_be_focused()
    look_over(window)
    tab_to(window, ".delayq-confirm button[type=submit]")
    window.page.keyboard.press("Enter")
    expect(window.page.locator(".messagelist .success")).to_contain_text("Paused the schedule nightly")
    expect(window.page.get_by_role("row", name="nightly")).to_contain_text("paused")
    tab_to(window, "#delayq tbody th a")
    window.page.keyboard.press("Enter")
    window.page.wait_for_url(f"**{page('recurring_schedule', ids['schedule'])}")
    tab_to(window, "button[value=run_schedule]")
    window.page.keyboard.press("Enter")
    expect(window.page.get_by_role("link", name="Go back", exact=True)).to_be_focused()
    expect(window.page.get_by_role("heading", name="Run a job of the schedule nightly")).to_be_visible()
    look_over(window)
    tab_to(window, ".delayq-confirm button[type=submit]")
    window.page.keyboard.press("Enter")
    expect(window.page.locator(".messagelist .success")).to_contain_text("Enqueued a job of the schedule nightly")
    look_over(window)


def test_a_schedule_is_edited_and_its_errors_are_at_their_fields(
    new_window: Callable[..., PageSession], stock: Fixtures
) -> None:
    ids = stock.fill(scheduled=10).ids
    window = new_window(java_script_enabled=False)
    window.open(page("recurring_schedule", ids["schedule"]))
    window.page.get_by_role("button", name="Edit").click()
    window.page.get_by_label("or cron fields").fill("0 25 * * *")
    window.page.get_by_role("button", name="Save").click()
    expect(window.page.get_by_role("alert")).to_contain_text("cron='0 25 * * *' cannot be read")
    expect(window.page.get_by_label("or cron fields")).to_have_value("0 25 * * *")
    window.page.get_by_label("or cron fields").fill("0 4 * * *")
    window.page.get_by_role("button", name="Save").click()
    expect(window.page.locator(".messagelist .success")).to_contain_text("0 3 * * * (Europe/Berlin) → 0 4 * * *")
    found = stored(stock.apis, ids["schedule"])
    assert found is not None
    assert found.definition is not None
    assert found.definition.schedule.rule.text == "0 4 * * * in Europe/Berlin"
    window.assert_calm()


def test_the_form_is_tidy_and_accessible(window: PageSession, stock: Fixtures) -> None:
    ids = stock.fill(scheduled=10).ids
    window.open(page("recurring_schedule", ids["schedule"]))
    window.page.get_by_role("button", name="Edit").click()
    window.page.get_by_label("Jitter").wait_for()
    look_over(window)
    window.page.get_by_label("Jitter").fill("1d")
    window.page.get_by_role("button", name="Save").click()
    expect(window.page.get_by_role("alert")).to_contain_text("must be shorter than the shortest time")
    look_over(window)


def test_a_schedule_that_is_gone_says_so(window: PageSession, stock: Fixtures) -> None:
    window.open(page("recurring_schedule", "0123456789abcdef-0"), status=404)
    look_over(window)
    window.page.locator(".delayq-empty").get_by_role("link", name="Recurring schedules").click()
    window.page.wait_for_url(f"**{page('recurring')}")


def test_the_calendar_scrolls_by_itself_on_a_narrow_screen(window: PageSession, stock: Fixtures) -> None:
    stock.fill(scheduled=10)
    window.open(page("recurring_calendar"))
    window.assert_tidy(375)
    tab_to(window, ".delayq-scroll:has(.delayq-calendar)")
    moved = "() => document.querySelector('.delayq-scroll').scrollLeft > 0"
    for _ in range(20):
        window.page.keyboard.press("ArrowRight")
    window.page.wait_for_function(moved)
    window.page.get_by_role("link", name="Run time").click()
    expect(window.page.locator(".delayq-calendar")).to_contain_text("m")
    look_over(window)
