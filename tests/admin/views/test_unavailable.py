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
from tests.admin.page_content import PAGES

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
    text = answer.content.decode()
    assert answer.status_code == 503
    assert 'role="alert"' in text
    assert "Redis does not answer, so nothing can be shown or changed here." in text
    assert "127.0.0.1:1/3" in text
    assert "hunter2" not in text


def test_action_says_it_too(browser: Client, no_redis: None) -> None:
    answer = browser.post(page("action"), {"action": "pause", "queue": "mail"})
    assert answer.status_code == 503
    assert f'href="{page("overview")}"' in answer.content.decode()


def test_the_rest_of_the_admin_works(browser: Client, no_redis: None) -> None:
    index = browser.get(reverse("admin:index"))
    assert index.status_code == 200
    assert page("overview") in index.content.decode()


def test_tabs_are_links_without_counts(browser: Client, no_redis: None) -> None:
    text = browser.get(page("failed")).content.decode()
    assert page("scheduled") in text
    assert "data-count" not in text
    assert "data-url" not in text


def test_a_silent_server_times_out(browser: Client, settings: Any, mute: str) -> None:
    settings.DELAYQ = {"REDIS": mute}
    assert browser.get(page("overview")).status_code == 503
    # Not measured, because a busy machine is slow: a page must respond within three seconds.
    assert admin_store().config.enqueue_timeout < 3


def test_a_refusal_is_shown_as_one(
    browser: Client, settings: Any, start_redis: Callable[..., LocalRedisServer]
) -> None:
    server = start_redis(options={"requirepass": "hunter2"})
    settings.DELAYQ = {"REDIS": server.url}
    answer = browser.get(page("overview"))
    assert answer.status_code == 503
    assert "Redis refused to answer." in answer.content.decode()


def test_pages_are_back_with_redis(browser: Client, settings: Any, redis_url: str, no_redis: None) -> None:
    assert browser.get(page("overview")).status_code == 503
    settings.DELAYQ = {"REDIS": redis_url}
    assert browser.get(page("overview")).status_code == 200
