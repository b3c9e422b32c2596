"""Frame: what stands around every page: by whose clock it tells times."""

from html import unescape

import pytest
from django.test import Client

from tests.admin.conftest import page
from tests.admin.test_pending import text

PAGES = ("overview", "pending", "queues", "running", "dead", "functions", "processes")


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("chosen", "zone"), [("", "Europe/Berlin"), ("utc", "UTC"), ("Asia/Tokyo", "Asia/Tokyo")])
def test_zone_of_the_times_is_named_at_the_foot(name: str, chosen: str, zone: str, browser: Client) -> None:
    browser.cookies["delayq_zone"] = chosen
    assert f"times in {zone} " in text(browser.get(page(name)))


def test_local_says_which_zone_that_is_whichever_is_chosen(browser: Client) -> None:
    for chosen in ("", "utc", "Asia/Tokyo"):
        browser.cookies["delayq_zone"] = chosen
        html = unescape(browser.get(page("pending")).content.decode())
        assert 'title="Europe/Berlin">Local</a>' in html
        assert ('title="Asia/Tokyo"' in html) == (chosen == "Asia/Tokyo")
