"""The layout of every page: the time zone of its times."""

from html import unescape

import pytest
from django.test import Client

from tests.admin.conftest import page
from tests.admin.page_content import PAGES, text


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("chosen", "zone"), [("", "Europe/Berlin"), ("utc", "UTC"), ("Asia/Tokyo", "Asia/Tokyo")])
def test_the_footer_names_the_zone_of_the_times(name: str, chosen: str, zone: str, browser: Client) -> None:
    browser.cookies["delayq_zone"] = chosen
    assert f"times in {zone} " in text(browser.get(page(name)))


def test_local_names_its_zone_whichever_is_chosen(browser: Client) -> None:
    for chosen in ("", "utc", "Asia/Tokyo"):
        browser.cookies["delayq_zone"] = chosen
        html = unescape(browser.get(page("scheduled")).content.decode())
        assert 'title="Europe/Berlin">Local</a>' in html
        assert ('title="Asia/Tokyo"' in html) == (chosen == "Asia/Tokyo")
