"""Journeys: what people come to the pages for, from the overview on, with the most clicks that it may take.

Typing and the Enter key are no clicks; choosing from a menu is one. Who adds a step to a page meets its number here.
"""

from datetime import timedelta
from zoneinfo import ZoneInfo

import pytest
from playwright.sync_api import Locator, expect

from django_delayq.clock import moment, moment_us
from django_delayq.store.enqueue import BATCH
from tests.admin.conftest import page
from tests.browser.fixtures import Fixtures
from tests.browser.page_session import PageSession
from tests.shard_apis import HOUR


class Visitor:
    """Somebody who begins at the overview, and how often they have clicked."""

    def __init__(self, window: PageSession) -> None:
        window.open(page("overview"))
        self.window, self.page, self.clicks = window, window.page, 0

    def click(self, what: Locator) -> None:
        """Click once."""
        what.click()
        self.clicks += 1

    def choose(self, what: Locator, label: str) -> None:
        """Choose from a menu."""
        what.select_option(label=label)
        self.clicks += 1

    def find(self, text: str) -> None:
        """Type into the search field, and press Enter."""
        field = self.page.get_by_role("combobox", name="Find jobs")
        field.fill(text)
        field.press("Enter")


@pytest.fixture
def visitor(window: PageSession, stock: Fixtures) -> Visitor:
    """A visitor of a shop."""
    stock.fill(scheduled=40)
    return Visitor(window)


def test_a_job_with_a_known_key_is_moved_by_an_hour(visitor: Visitor, stock: Fixtures) -> None:
    raw_id = stock.apis.add("an order", key="order 4711", delay=2 * HOUR)
    mine = f"{raw_id.hex()}-0"
    due_us = stock.apis.scheduled()[raw_id]
    visitor.find('key:"order 4711"')
    visitor.page.wait_for_url(f"**/job/{mine}/**")
    visitor.click(visitor.page.get_by_role("button", name="Reschedule"))
    visitor.page.get_by_label("or earlier").fill("60")
    visitor.click(visitor.page.get_by_role("button", name="Reschedule 1 job"))
    expect(visitor.page.locator(".messagelist .success")).to_contain_text("1 job rescheduled by +60 min.")
    assert stock.apis.scheduled()[raw_id] == due_us + HOUR
    assert visitor.clicks <= 4


def test_the_failed_jobs_of_an_error_are_retried_over_ten_minutes(visitor: Visitor, stock: Fixtures) -> None:
    visitor.find("error:SMTPServerDisconnected failed:1h")
    visitor.page.wait_for_url("**/failed/?**")
    number = visitor.page.locator("[name=row]").count()
    assert number > 1
    ids = [str(row.get_attribute("value")).split(".")[0] for row in visitor.page.locator("[name=row]").all()]
    visitor.click(visitor.page.locator("input[name=all]"))
    visitor.choose(visitor.page.get_by_label("Action"), "Retry later…")
    visitor.click(visitor.page.get_by_role("button", name="Go").first)
    visitor.page.get_by_label("spread").fill("10")
    visitor.click(visitor.page.get_by_role("button", name=f"Retry {number} failed jobs later"))
    expect(visitor.page.locator(".messagelist .success")).to_contain_text(f"{number} retries scheduled")
    queues = stock.apis.store.dashboard(0).snapshot().queues
    scheduled = {raw_id: due_us for queue in queues for raw_id, due_us in stock.apis.scheduled(queue).items()}
    due = [scheduled[bytes.fromhex(each.split("-")[0])] for each in ids]
    assert max(due) - min(due) <= HOUR // 6
    assert len(set(due)) == number
    assert visitor.clicks <= 4


def test_whether_tomorrow_at_nine_will_be_late(window: PageSession, stock: Fixtures) -> None:
    stock.fill(scheduled=0)
    zone = ZoneInfo("Europe/Berlin")
    now = moment(stock.now_us).astimezone(zone)
    # Not the nine o'clock that is near: the page tells of the 24 hours from when it is read.
    nine = now.replace(hour=21 if 3 <= now.hour < 15 else 9, minute=0, second=0, microsecond=0)
    nine += timedelta(days=nine <= now)
    delay = moment_us(nine) - stock.now_us
    for _ in range(3_000 // BATCH):
        stock.apis.enqueue(*(stock.apis.draft(queue="email", delay=delay) for _ in range(BATCH)))
    visitor = Visitor(window)
    visitor.click(visitor.page.get_by_role("link", name="Will they start in time?"))
    expect(visitor.page.locator(".delayq-alerts")).to_contain_text(f"{nine:%H:%M}: 3,000 due, the last starts at")
    assert visitor.clicks <= 2


def test_why_a_job_ran_twice(visitor: Visitor, stock: Fixtures) -> None:
    mine = stock.ids["retried"]
    visitor.find(mine)
    visitor.page.wait_for_url(f"**/job/{mine}/**")
    history = visitor.page.locator(".delayq-scroll[aria-labelledby=history]")
    expect(history.get_by_role("row")).to_have_count(3)
    expect(history).to_contain_text("SMTPServerDisconnected")
    assert visitor.clicks <= 3


def test_a_queue_is_paused_and_seen_to_be(visitor: Visitor, stock: Fixtures) -> None:
    visitor.click(visitor.page.locator(".delayq-tabs").get_by_role("link", name="Queues"))
    row = visitor.page.get_by_role("row", name="email")
    visitor.click(row.get_by_role("button", name="Pause"))
    expect(row).to_contain_text("paused")
    assert visitor.clicks <= 2
