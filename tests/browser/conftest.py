"""Fixtures of the tests in a real browser: one Chromium, one server and one login for all, a window for each.

Without a browser they are skipped; with CI=true or DELAYQ_TEST_BROWSER=1 they fail.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext

from django_delayq.testing.local_redis import LocalRedisServer
from tests.browser import chromium
from tests.browser.fixtures import Fixtures
from tests.browser.live_server import Site, served
from tests.browser.page_session import PageSession


@pytest.fixture(scope="package")
def site(redis_server: LocalRedisServer, django_db_setup: None, django_db_blocker: Any) -> Iterator[Site]:
    """The project behind a web server, with one database for all these tests: the pages show what is in Redis."""
    with django_db_blocker.unblock(), served(redis_server.url) as running:
        yield running


@pytest.fixture(scope="package")
def browser(site: Site) -> Iterator[Browser]:
    """The browser. Meanwhile tests cannot use the database: beside an event loop Django opens another connection."""
    program = chromium.find()
    if program is None:
        told = f"there is no browser on PATH (looked for {', '.join(chromium.NAMES)})"
        told += "; on Debian: apt install chromium-headless-shell"
        (pytest.fail if chromium.is_demanded() else pytest.skip)(told)
    with chromium.launched(program) as started:
        yield started


@pytest.fixture(autouse=True)
def _no_hurry(bounds: Callable[..., None]) -> None:
    """Let the pages take their time: on a busy machine a page may take longer than a person would wait for."""
    bounds()


@pytest.fixture
def new_window(browser: Browser, site: Site) -> Iterator[Callable[..., PageSession]]:
    """Open windows: `new_window(java_script_enabled=False)`; the options are those of Playwright's `new_context`."""
    contexts: list[BrowserContext] = []

    def make(**options: Any) -> PageSession:
        options = {"viewport": {"width": 1280, "height": 900}, "locale": "en-GB", **options}
        contexts.append(browser.new_context(**options))
        contexts[-1].add_cookies([site.cookie])
        return PageSession(contexts[-1], site.url)

    yield make
    for context in contexts:
        context.close()


@pytest.fixture
def window(new_window: Callable[..., PageSession]) -> PageSession:
    """A window with the usual options."""
    return new_window()


@pytest.fixture
def stock(redis_url: str) -> Iterator[Fixtures]:
    """The store, emptied, with methods that fill it."""
    filled = Fixtures(redis_url)
    yield filled
    filled.close()
