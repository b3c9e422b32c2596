"""A search in a long list: it goes on by itself, tells how far it is, and can be stopped."""

from collections.abc import Callable

import pytest
from playwright.sync_api import Route, expect

from tests.admin.conftest import page
from tests.admin.jobs import HOUR, add
from tests.browser.fixtures import Fixtures
from tests.browser.page_session import PageSession
from tests.subprocesses import until

#: Jobs of the list, and rows that one request examines.
JOBS, ROWS = 400, 50


@pytest.fixture
def needles(stock: Fixtures, bounds: Callable[..., None]) -> list[str]:
    """Two jobs among many: one that the third request finds, and one that the last one finds; every fourth is straw."""
    bounds(scanned_rows=ROWS, slice_rows=ROWS)
    stock.apis.client.flushall()
    at = (2 * ROWS + 5, JOBS - 5)
    made = [
        add(stock.apis, "needle" if number in at else "hay" if number % 4 else "straw", delay=HOUR + number)
        for number in range(JOBS)
    ]
    return [made[number] for number in at]


def test_a_search_goes_on_until_the_end_of_the_list(window: PageSession, needles: list[str]) -> None:
    window.open(page("scheduled", q="needle"))
    state = window.page.locator("#delayq-searching [role=status]")
    expect(state).to_have_text(f"2 found, {JOBS} of {JOBS} searched")
    rows = window.page.locator("[name=row]")
    assert [row.get_attribute("value").split(".")[0] for row in rows.all()] == needles  # type: ignore[union-attr]
    expect(window.page.get_by_role("button", name="Stop", exact=True)).to_be_hidden()
    expect(window.page.locator(".delayq-pager [rel=next]")).to_have_count(0)
    # What was found is selected and changed as on any page.
    rows.last.check()
    expect(window.page.locator("[data-selected-count]")).to_have_text("1")
    window.assert_accessible()
    window.assert_tidy(1280, 375)
    expect(window.page.locator("button[name=one]")).to_have_count(2)
    window.request_action("run_now")
    expect(window.page.locator(".messagelist .success")).to_contain_text("1 job will run now")
    window.assert_calm()


def test_a_search_that_finds_nothing_says_so(window: PageSession, needles: list[str]) -> None:
    window.open(page("scheduled", q="nothing of the kind"))
    expect(window.page.locator("#delayq-searching [role=status]")).to_have_text(f"0 found, {JOBS} of {JOBS} searched")
    expect(window.page.locator(".delayq-empty")).to_contain_text("Nothing here matches.")
    window.assert_calm()


def test_a_page_that_is_full_ends_the_search(window: PageSession, needles: list[str]) -> None:
    window.open(page("scheduled", q="straw", n=25))
    expect(window.page.locator("#delayq-searching [role=status]")).to_have_text(f"25 found, 100 of {JOBS} searched")
    expect(window.page.locator("[name=row]")).to_have_count(25)
    expect(window.page.locator(".delayq-pager [rel=next]")).to_have_count(1)
    window.assert_calm()


def test_a_search_stops_at_its_button(window: PageSession, needles: list[str]) -> None:
    held: list[Route] = []
    window.page.route("**/scheduled/?*after=*", lambda route: held.append(route))
    window.open(page("scheduled", q="nothing of the kind"))
    window.page.get_by_role("button", name="Stop", exact=True).click()

    def asks() -> bool:
        # Playwright delivers events only during a wait.
        window.page.wait_for_timeout(50)
        return bool(held)

    until(asks, what="the second request")
    held[0].continue_()
    expect(window.page.locator("#delayq-searching [role=status]")).to_have_text(
        f"0 found, {2 * ROWS} of {JOBS} searched"
    )
    expect(window.page.get_by_role("button", name="Stop", exact=True)).to_be_hidden()
    assert len(held) == 1
    window.assert_calm()
