"""Without JavaScript: every page works, and every action runs to its end."""

from collections.abc import Callable

import pytest
from playwright.sync_api import expect

from tests.admin.conftest import page
from tests.admin.jobs import state
from tests.browser.fixtures import Fixtures
from tests.browser.page_session import PageSession
from tests.browser.pages import PAGES

#: Controls that need the script.
FOR_SCRIPTS = "[data-copy]:visible, [data-select-all]:visible, [data-selected-count]:visible, #delayq-updating:visible"


@pytest.fixture
def plain(new_window: Callable[..., PageSession], stock: Fixtures) -> PageSession:
    """A window without JavaScript, with many jobs."""
    stock.fill(scheduled=10)
    return new_window(java_script_enabled=False)


def test_every_page_works_without_dead_controls(plain: PageSession, stock: Fixtures) -> None:
    for address in PAGES.values():
        plain.open(address(stock.ids))
        expect(plain.page.locator("#delayq h1")).to_be_visible()
        expect(plain.page.locator(FOR_SCRIPTS)).to_have_count(0)
    plain.assert_calm()


def test_a_row_is_selected_and_handled(plain: PageSession, stock: Fixtures) -> None:
    failed = stock.ids["failed"]
    plain.open(page("failed", queue="email"))
    plain.page.locator(f"[name=row][value^='{failed}']").check()
    plain.page.get_by_label("Action").select_option(label="Retry now")
    plain.page.get_by_role("button", name="Go").first.click()
    expect(plain.page.locator(".messagelist .success")).to_contain_text("1 job retried")
    assert "queue=email" in plain.page.url
    assert state(stock.apis, failed) == "ready"
    plain.assert_calm()


def test_parameters_are_asked_for_on_the_confirm_page(plain: PageSession, stock: Fixtures) -> None:
    before = stock.apis.inspection.counts().dead
    plain.open(page("failed"))
    plain.page.get_by_label("Action").select_option(label="Retry later…")
    plain.page.locator("input[name=all]").check()
    plain.page.get_by_role("button", name="Go").first.click()
    button = plain.page.get_by_role("button", name=f"Retry {before} failed jobs later")
    button.click()
    expect(button).to_be_visible()
    assert stock.apis.inspection.counts().dead == before
    plain.page.get_by_label("spread").fill("30")
    button.click()
    expect(plain.page.locator(".messagelist .success")).to_contain_text(f"{before} retries scheduled")
    assert stock.apis.inspection.counts().dead == 0


def test_go_back_does_nothing(plain: PageSession, stock: Fixtures) -> None:
    plain.open(page("scheduled", n=25))
    plain.page.locator("[name=row]").first.check()
    plain.page.get_by_label("Action").select_option(label="Cancel")
    plain.page.get_by_role("button", name="Go").first.click()
    expect(plain.page.get_by_text("This cannot be undone.")).to_be_visible()
    plain.page.get_by_role("link", name="Go back", exact=True).click()
    assert plain.page.url.endswith(page("scheduled", n=25))
    expect(plain.page.locator("[name=row]")).to_have_count(13)


def test_a_long_action_continues_by_its_button(
    plain: PageSession, stock: Fixtures, bounds: Callable[..., None]
) -> None:
    bounds(action_seconds=-1.0, changed_jobs=1)
    plain.open(page("failed", queue="reports"))
    rows = plain.page.locator("[name=row]")
    number = rows.count()
    assert number > 1
    for row in rows.all():
        row.check()
    plain.page.get_by_label("Action").select_option(label="Delete")
    plain.page.get_by_role("button", name="Go").first.click()
    plain.page.get_by_role("button", name=f"Delete {number} failed jobs").click()
    pressed, ended = 0, plain.page.locator(".messagelist")
    while not ended.count():
        plain.page.get_by_role("button", name="Continue").click()
        pressed += 1
        assert pressed <= 2 * number
    expect(ended).to_contain_text(f"{number} jobs deleted")
    assert pressed >= number - 1
    plain.assert_calm()


def test_queues_are_paused_and_resumed(plain: PageSession, stock: Fixtures) -> None:
    plain.open(page("queues"))
    row = plain.page.get_by_role("row", name="email")
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("paused")
    row.get_by_role("button", name="Resume").click()
    expect(row).to_contain_text("active")
    plain.page.get_by_role("button", name="Undo").click()
    expect(row).to_contain_text("paused")


def test_a_queue_is_paused_until_a_moment(plain: PageSession, stock: Fixtures) -> None:
    plain.open(page("queue_detail", "email"))
    plain.page.get_by_role("link", name="Pause until").click()
    row = plain.page.get_by_role("row", name="email")
    plain.page.get_by_label("Until").fill("2001-01-31T08:00")
    plain.page.locator(".delayq-confirm button[type=submit]").click()
    expect(plain.page.get_by_role("alert")).to_contain_text("until must be later than now")
    plain.page.get_by_label("Until").fill("2100-01-31T08:00")
    plain.page.locator(".delayq-confirm button[type=submit]").click()
    expect(plain.page.locator(".messagelist")).to_contain_text("Paused queue email until 2100-01-31 08:00:00")
    expect(row).to_contain_text("2100")
    plain.assert_calm()


def test_hidden_values_are_revealed(plain: PageSession, stock: Fixtures) -> None:
    plain.open(page("job_detail", stock.ids["scheduled"]))
    expect(plain.page.locator("#delayq")).not_to_contain_text("secret")
    plain.page.get_by_role("button", name="Reveal").click()
    expect(plain.page.locator("#delayq")).to_contain_text("secret")
    plain.assert_calm()


def test_bars_of_upcoming_jobs_link_to_their_list(plain: PageSession, stock: Fixtures) -> None:
    plain.open(page("overview"))
    chart = plain.page.locator("figure", has_text="Coming due")
    chart.locator("summary").click()
    link = chart.locator("tbody a").first
    expect(link).to_be_visible()
    link.click()
    expect(plain.page.locator("h1").last).to_have_text("Scheduled jobs")
    assert "from=" in plain.page.url
    plain.assert_calm()
