"""Redis is down, slow, or refuses: the pages say so, and the rest of the admin works."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from django_delayq.admin.page import admin_store
from django_delayq.testing.local_redis import LocalRedisServer
from tests.admin.conftest import page
from tests.admin.page_content import PAGES, text
from tests.chaos.network.proxy import Proxy
from tests.shard_apis import ShardApis

ADDRESSES = (
    *(page("overview") + path for path in ("", *(f"{name}/" for name in PAGES[1:]))),
    *(page("overview") + f"live/{name}/" for name in PAGES),
    page("overview") + "queues/mail/",
    page("overview") + "job/0123456789abcdef01234567-0/",
    page("overview") + "export/scheduled/",
)


@pytest.fixture
def no_redis(settings: Any) -> None:
    """Point the project at an address without a server."""
    settings.DELAYQ = {"REDIS": "redis://:hunter2@127.0.0.1:1/3"}


@pytest.fixture
def mute() -> Iterator[str]:
    """A server that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"redis://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("address", ADDRESSES)
def test_every_page_says_that_redis_is_down(address: str, browser: Client, no_redis: None) -> None:
    answer = browser.get(address)
    html = answer.content.decode()
    assert answer.status_code == 503
    assert 'role="alert"' in html
    assert "Redis does not answer, so nothing can be shown or changed here." in html
    assert "127.0.0.1:1/3" in html
    assert "hunter2" not in html


def test_action_says_it_too(browser: Client, no_redis: None) -> None:
    answer = browser.post(page("action"), {"action": "pause", "queue": "mail"})
    assert answer.status_code == 503
    assert f'href="{page("overview")}"' in answer.content.decode()


def test_the_rest_of_the_admin_works(browser: Client, no_redis: None) -> None:
    index = browser.get(reverse("admin:index"))
    assert index.status_code == 200
    assert page("overview") in index.content.decode()


def test_tabs_are_links_without_counts(browser: Client, no_redis: None) -> None:
    html = browser.get(page("failed")).content.decode()
    assert page("scheduled") in html
    assert "data-count" not in html
    assert "data-url" not in html


def test_a_silent_server_times_out(browser: Client, settings: Any, mute: str) -> None:
    settings.DELAYQ = {"REDIS": mute}
    assert browser.get(page("overview")).status_code == 503
    # Not measured, because a busy machine is slow: a page must respond within three seconds.
    assert admin_store().config.enqueue_timeout < 3


def test_slow_reads_end_with_the_time_of_their_page(
    browser: Client, settings: Any, redis_url: str, bounds: Callable[..., None], stock: ShardApis
) -> None:
    # Without a queue there is nothing to count.
    stock.add(queue="mail")
    with Proxy(redis_url) as network:
        settings.DELAYQ = {"REDIS": network.url}
        assert browser.get(page("overview")).status_code == 200
        needed = network.requests
        # Each call alone has enough time, two have not.
        bounds(page_seconds=1.0)
        network.delay(0.3)
        response = browser.get(page("overview"))
        network.restore()
        sent = network.requests - needed
    assert needed >= 3
    assert sent <= 2
    assert response.status_code == 503
    assert "Redis does not answer in time, so nothing can be shown or changed here." in text(response)


def test_an_action_has_bounds_of_its_own(
    browser: Client, settings: Any, redis_url: str, bounds: Callable[..., None], stock: ShardApis
) -> None:
    stock.add(queue="mail")
    bounds(page_seconds=0)
    assert browser.get(page("overview")).status_code == 503
    response = browser.post(page("action"), {"action": "pause", "queue": "mail", "confirmed": "yes"})
    assert response.status_code == 302
    bounds()
    assert "paused by superuser" in text(browser.get(page("queues")))


def test_a_refusal_is_shown_as_one(
    browser: Client, settings: Any, start_redis: Callable[..., LocalRedisServer]
) -> None:
    server = start_redis(options={"requirepass": "hunter2"})
    settings.DELAYQ = {"REDIS": server.url}
    answer = browser.get(page("overview"))
    assert answer.status_code == 503
    assert "Redis refused the password or a command" in text(answer)
    assert "Check the user and the password in DELAYQ[&quot;REDIS&quot;]." in text(answer)
    assert "Redis does not answer" not in text(answer)


def test_a_key_of_another_type_is_no_outage(browser: Client, stock: ShardApis) -> None:
    stock.client.set(stock.keys("dead_letters"), "not a sorted set")
    answer = browser.get(page("failed"))
    assert answer.status_code == 503
    assert "what it holds is not what these pages expect" in text(answer)
    assert "DELAYQ[&quot;REDIS&quot;] or the prefix may name a database that something else uses" in text(answer)
    assert "WRONGTYPE" in text(answer)
    assert "Redis does not answer" not in text(answer)


def test_pages_are_back_with_redis(browser: Client, settings: Any, redis_url: str, no_redis: None) -> None:
    assert browser.get(page("overview")).status_code == 503
    settings.DELAYQ = {"REDIS": redis_url}
    assert browser.get(page("overview")).status_code == 200
