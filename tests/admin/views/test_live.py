"""Live update: the changing part of a page, or 304 if nothing changed."""

import re
from typing import Any

import pytest
from django.test import Client

from django_delayq.clock import DAY_US
from tests.admin.conftest import SITES, page
from tests.admin.page_content import PAGES
from tests.admin.reports import tell
from tests.shard_apis import ShardApis

#: The times on a page that count down, without those of the footer.
RELATIVE = re.compile(rb"<td><time [^>]*>([^<]+)</time>")
MINUTE_US = 60_000_000


@pytest.mark.parametrize("site", SITES)
@pytest.mark.parametrize("panel", PAGES)
def test_a_fragment_is_part_of_its_page(panel: str, site: str, browser: Client, stock: ShardApis) -> None:
    tell(stock, queue="mail", done=3)
    stock.add(queue="mail", delay=DAY_US)
    stock.add_dead(queue="mail")
    fragment = browser.get(page("live", panel, site=site)).content.decode()
    assert "<html" not in fragment
    assert '<div id="delayq-live">' in fragment
    assert 'data-count="scheduled">1<' in fragment
    assert f"/{site}/django_delayq/queue/" in fragment
    assert "/live/" not in fragment
    full = browser.get(page(panel, site=site)).content.decode()
    assert f'data-url="{page("live", panel, site=site)}"' in full


def twice(browser: Client, panel: str) -> tuple[Any, Any]:
    """Return a response, and the one to a request with its ETag."""
    first = browser.get(page("live", panel))
    return first, browser.get(page("live", panel), headers={"If-None-Match": first["ETag"]})


@pytest.mark.parametrize("panel", PAGES)
def test_nothing_is_sent_again_while_nothing_changed(panel: str, browser: Client, stock: ShardApis) -> None:
    stock.add(queue="mail", delay=10 * DAY_US)
    first, again = twice(browser, panel)
    if again.status_code == 200:
        # A new minute began in between, and the charts moved.
        first, again = twice(browser, panel)
    assert (again.status_code, again.content, again["ETag"]) == (304, b"", first["ETag"])
    stock.add(queue="mail", delay=10 * DAY_US)
    changed = browser.get(page("live", panel), headers={"If-None-Match": first["ETag"]})
    assert changed.status_code == 200
    assert changed["ETag"] != first["ETag"]


def test_the_passing_of_time_alone_is_no_change(browser: Client, stock: ShardApis) -> None:
    stock.add(queue="mail", delay=MINUTE_US)
    first = browser.get(page("live", "scheduled"))
    later = first
    for _ in range(10_000):
        later = browser.get(page("live", "scheduled"))
        # The relative time of the job counts down every second.
        if RELATIVE.findall(later.content) != RELATIVE.findall(first.content):
            break
    assert RELATIVE.findall(later.content) != RELATIVE.findall(first.content)
    assert later["ETag"] == first["ETag"]


def test_filter_is_kept(browser: Client, stock: ShardApis) -> None:
    ids = {queue: f"{stock.add(queue=queue, delay=DAY_US).hex()}-0" for queue in ("mail", "reports")}
    text = browser.get(page("scheduled", queue="mail")).content.decode()
    assert f'data-url="{page("live", "scheduled", queue="mail")}"' in text
    fragment = browser.get(page("live", "scheduled", queue="mail")).content.decode()
    assert ids["mail"] in fragment
    assert ids["reports"] not in fragment


def test_unknown_panel_is_not_found(browser: Client) -> None:
    assert browser.get(page("live", "nothing")).status_code == 404


def test_pages_without_a_list_are_not_updated(browser: Client, stock: ShardApis) -> None:
    raw_id = stock.add(queue="mail")
    for address in (page("queue_detail", "mail"), page("job_detail", f"{raw_id.hex()}-0")):
        assert "data-url" not in browser.get(address).content.decode()


def test_overview_updates_itself_and_lists_do_not(browser: Client) -> None:
    assert 'aria-pressed="true"' in browser.get(page("overview")).content.decode()
    for name in PAGES[1:]:
        assert 'class="delayq-live-button" aria-pressed="false"' in browser.get(page(name)).content.decode()


def test_the_summary_for_screen_readers_has_the_numbers(browser: Client, stock: ShardApis) -> None:
    stock.add(delay=DAY_US)
    assert 'data-announce="Scheduled 1, Overdue 0,' in browser.get(page("live", "overview")).content.decode()
