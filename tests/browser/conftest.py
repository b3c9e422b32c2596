"""Fixtures of the tests in a real browser: one Chromium, one server and one login for all, one window per test.

Where there is no browser they are skipped, or fail where one is demanded: by CI=true or DELAYQ_TEST_BROWSER=1.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext

from django_delayq.testing.local_redis import LocalRedisServer
from tests.browser import chromium
from tests.browser.fixtures import Fixtures
from tests.browser.live_server import Site, served
from tests.browser.page_session import PageSession

_HERE = Path(__file__).parent


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run these tests last and together: while Playwright runs, its event loop occupies the whole thread."""
    items.sort(key=lambda item: _HERE in item.path.parents)


@pytest.fixture(scope="package")
def site(redis_url: str, django_db_setup: None, django_db_blocker: Any) -> Iterator[Site]:
    """The project behind a server, with one database for all tests here, because the jobs are in Redis."""
    with django_db_blocker.unblock(), served(redis_url) as running:
        yield running


@pytest.fixture(scope="package")
def browser(site: Site) -> Iterator[Browser]:
    """The browser. Tests after it cannot use the database: under an event loop Django opens another one."""
    program = chromium.find()
    if program is None:
        told = f"there is no browser on PATH (looked for {', '.join(chromium.NAMES)})"
        (pytest.fail if chromium.is_demanded() else pytest.skip)(f"{told}; on Debian: apt install chromium")
    with chromium.launched(program) as started:
        yield started


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
    """One window with default options."""
    return new_window()


@pytest.fixture
def stock(redis_server: LocalRedisServer, redis_url: str) -> Iterator[Fixtures]:
    """An empty store, and the jobs to fill it with."""
    with redis_server.client() as client:
        client.flushall()
    filled = Fixtures(redis_url)
    yield filled
    filled.close()
