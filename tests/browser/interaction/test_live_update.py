"""Live update: new numbers without a reload, and never while the person uses the panel."""

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from playwright.sync_api import Locator, Request, Response, expect

from tests.admin.conftest import page
from tests.browser.fixtures import Fixtures
from tests.browser.page_session import PageSession
from tests.subprocesses import until

#: Milliseconds between two updates.
EVERY = 5_000


class Watched:
    """A window whose clock the test controls, and how often the page requests updates."""

    def __init__(self, window: PageSession, address: str) -> None:
        self.page, self._window, self._asked = window.page, window, 0
        self.statuses: list[int] = []
        self.page.on("request", self._seen)
        self.page.on("response", self._answered)
        # The clock stands before the page opens: a page whose clock runs may be past the moment of the pause.
        begun = datetime.now(UTC)
        self.page.clock.install(time=begun)
        self.page.clock.pause_at(begun + timedelta(minutes=1))
        window.open(address)
        self.button = self.page.get_by_role("button", name="Live")
        self.scheduled = self.page.locator("[data-count=scheduled]")

    def asks_within(self, ms: int) -> int:
        """Advance the page's clock, and return the number of requests in that time."""
        before = self._asked
        self.page.clock.run_for(ms)
        # Once the page has this response, its earlier requests are recorded.
        self.page.evaluate("() => fetch(document.querySelector('link[rel=stylesheet]').href).then(() => null)")
        return self._asked - before

    def assert_on(self, on: bool) -> None:
        """Assert the state of the button."""
        expect(self.button).to_have_attribute("aria-pressed", "true" if on else "false")

    def calm(self) -> None:
        """Assert that the browser reported no error."""
        self._window.assert_calm()

    def _seen(self, request: Request) -> None:
        self._asked += "/live/" in request.url

    def _answered(self, response: Response) -> None:
        if "/live/" in response.url:
            self.statuses.append(response.status)


@pytest.fixture
def overview(window: PageSession, stock: Fixtures) -> Watched:
    """The overview of a shop with many jobs."""
    stock.fill(scheduled=10)
    return Watched(window, page("overview"))


def tile(watched: Watched) -> Locator:
    """The number in the panel."""
    return watched.page.locator(".delayq-tiles li", has_text="Scheduled").locator("strong")


def test_numbers_change_without_a_reload(overview: Watched, stock: Fixtures) -> None:
    overview.assert_on(True)
    overview.page.evaluate("() => { document.body.dataset.marker = 'still here'; }")
    expect(overview.scheduled).to_have_text("13")
    stock.add()
    overview.page.clock.run_for(EVERY)
    expect(overview.scheduled).to_have_text("14")
    expect(tile(overview)).to_have_text("14")
    expect(overview.page.locator("body")).to_have_attribute("data-marker", "still here")
    overview.calm()


def test_summary_is_spoken_politely_and_seldom(overview: Watched, stock: Fixtures) -> None:
    said = overview.page.locator("#delayq-announcement[role=status]")
    stock.add()
    overview.page.clock.run_for(EVERY)
    expect(tile(overview)).to_have_text("14")
    expect(said).to_have_text("")
    stock.add()
    overview.page.clock.run_for(25_000)
    expect(tile(overview)).to_have_text("15")
    overview.page.clock.run_for(EVERY)
    stock.add()
    overview.page.clock.run_for(EVERY)
    expect(said).to_contain_text("Scheduled 1")


def test_no_change_is_not_an_error(window: PageSession, stock: Fixtures) -> None:
    watched = Watched(window, page("overview"))
    # The time to the next update begins when the page has read the last one: one advance may be too early. And the
    # charts change when a minute is over.
    until(
        lambda: watched.asks_within(EVERY) and watched.statuses[-2:] == [304, 304], what="two updates without a change"
    )
    assert set(watched.statuses) == {200, 304}
    watched.calm()


def test_switched_off_it_stays_off_after_a_reload(overview: Watched) -> None:
    assert overview.asks_within(EVERY)
    overview.button.click()
    overview.assert_on(False)
    assert overview.asks_within(120_000) == 0
    overview.page.reload()
    overview.assert_on(False)
    assert overview.asks_within(120_000) == 0
    overview.button.click()
    overview.assert_on(True)
    assert overview.asks_within(EVERY)


def test_it_waits_while_the_panel_has_the_focus(overview: Watched, stock: Fixtures) -> None:
    overview.page.locator(".delayq-tiles a").first.focus()
    stock.add()
    assert overview.asks_within(60_000) == 0
    overview.button.focus()
    overview.page.clock.run_for(EVERY)
    expect(overview.scheduled).to_have_text("14")


def test_lists_update_only_when_switched_on_and_no_row_is_selected(window: PageSession, stock: Fixtures) -> None:
    stock.fill(scheduled=10)
    watched = Watched(window, page("scheduled"))
    watched.assert_on(False)
    assert watched.asks_within(60_000) == 0
    watched.button.click()
    row = watched.page.locator("[name=row]").first
    row.check()
    watched.button.focus()
    stock.add()
    assert watched.asks_within(60_000) == 0
    row.uncheck()
    watched.button.focus()
    watched.page.clock.run_for(EVERY)
    expect(watched.scheduled).to_have_text("14")
    expect(watched.page.locator("[name=row]")).to_have_count(14)
    watched.calm()


def test_without_redis_it_backs_off_and_shows_the_last_update(
    overview: Watched, stock: Fixtures, settings: Any
) -> None:
    told, known = overview.page.locator("[data-failed]"), settings.DELAYQ
    settings.DELAYQ = {"REDIS": "redis://127.0.0.1:1"}
    overview.page.clock.run_for(EVERY)
    expect(told).to_have_text(re.compile(r"Not updating since \d\d:\d\d:\d\d"))
    assert overview.asks_within(EVERY) == 0
    settings.DELAYQ = known
    stock.add()
    overview.page.clock.run_for(EVERY)
    expect(overview.scheduled).to_have_text("14")
    expect(told).to_have_text("")


def test_open_tables_stay_open(overview: Watched, stock: Fixtures) -> None:
    details = overview.page.locator("#delayq-data-due, .delayq-chart details").first
    details.locator("summary").click()
    overview.button.focus()
    stock.add()
    overview.page.clock.run_for(EVERY)
    expect(overview.scheduled).to_have_text("14")
    expect(details).to_have_attribute("open", "")
