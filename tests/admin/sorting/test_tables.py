"""The headings of small tables sort them."""

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client

from django_delayq.clock import DAY_US
from django_delayq.display.text import short
from tests.admin.conftest import RedisClock, page
from tests.admin.reports import tell
from tests.sample_app.tasks import catch_all, noop
from tests.shard_apis import ShardApis

_HEADING = re.compile(r"<th scope=\"col\"([^>]*)>(.*?)</th>", re.DOTALL)


def headings(browser: Client, address: str) -> dict[str, tuple[str, str]]:
    """Return text of a heading -> its `aria-sort` and its address."""
    found = {}
    for attributes, inner in _HEADING.findall(browser.get(address).content.decode()):
        direction, link = re.search(r'aria-sort="(\w+)"', attributes), re.search(r'href="([^"]*)"', inner)
        words = re.sub(r"<[^>]*>", " ", inner).split()
        found[" ".join(words)] = (direction[1] if direction else "", unescape(link[1]) if link else "")
    return found


def order(browser: Client, address: str) -> list[str]:
    """Return the first cells of the rows at an address."""
    html = browser.get(address).content.decode().replace("<wbr>", "").split("<tbody>")[1]
    return re.findall(r'<th scope="row"[^>]*>(?:<a [^>]*>)?([^<]*)', html)


@pytest.fixture
def queues(stock: ShardApis) -> list[str]:
    """Three queues; their names in their default order."""
    for name, ready, scheduled in (("a", 1, 2), ("B", 3, 0), ("c", 2, 2)):
        for _ in range(ready):
            stock.add(queue=name)
        for _ in range(scheduled):
            stock.add(queue=name, delay=DAY_US)
    return ["B", "a", "c"]


def test_a_heading_sorts_from_the_largest_on_and_then_the_other_way(browser: Client, queues: list[str]) -> None:
    assert order(browser, page("queues")) == queues
    plain = headings(browser, page("queues"))
    assert not any(direction for direction, _ in plain.values())
    direction, address = plain["Ready"]
    assert order(browser, address) == ["B", "c", "a"]
    direction, address = headings(browser, page("queues", sort="-ready"))["Ready ▼ descending"]
    assert direction == "descending"
    assert order(browser, address) == ["a", "c", "B"]
    direction, address = headings(browser, page("queues", sort="ready"))["Ready ▲ ascending"]
    assert (direction, address) == ("ascending", page("queues", sort="-ready"))


def test_names_are_sorted_from_the_first_on_whatever_their_case(browser: Client, queues: list[str]) -> None:
    _, address = headings(browser, page("queues"))["Queue"]
    assert address == page("queues", sort="queue")
    assert order(browser, address) == ["a", "B", "c"]


def test_equal_rows_keep_their_order_and_rows_without_a_value_are_last(
    browser: Client, queues: list[str], stock: ShardApis
) -> None:
    assert order(browser, page("queues", sort="-scheduled")) == ["a", "c", "B"]
    assert order(browser, page("queues", sort="scheduled")) == ["B", "a", "c"]
    stock.add(queue="d", delay=DAY_US)
    for sort in ("oldest", "-oldest"):
        assert order(browser, page("queues", sort=sort))[-1] == "d"


@pytest.mark.parametrize("sort", ["", "nothing", "-", "--ready", "state", "READY", "ready\0", "<b>"])
@pytest.mark.parametrize("name", ["queues", "tasks", "servers"])
def test_an_unknown_value_is_the_default_order(name: str, sort: str, browser: Client, queues: list[str]) -> None:
    assert order(browser, page(name)) == order(browser, page(name, sort=sort))
    assert not any(direction for direction, _ in headings(browser, page(name, sort=sort)).values())


def test_links_keep_the_other_parameters_and_live_update_the_order(browser: Client, queues: list[str]) -> None:
    given = f"{page('queues')}?name=x&self=y+%26+z"
    _, address = headings(browser, given)["Ready"]
    assert address == f"{given}&sort=-ready"
    html = browser.get(address).content.decode()
    live = re.search(r'data-url="([^"]*)"', html)
    assert live
    assert order(browser, unescape(live[1])) == ["B", "c", "a"]
    assert "data-label=Ready" in html
    assert "Ready ▼" not in re.findall(r'data-label="?([^">]*)', html)


def test_the_overview_has_no_links_in_the_headings_of_queues(browser: Client, queues: list[str]) -> None:
    assert {address for _, address in headings(browser, page("overview")).values()} == {""}


@pytest.mark.usefixtures("few_tasks")
def test_tasks_are_sorted_by_what_ran(browser: Client, stock: ShardApis) -> None:
    tell(stock, task=catch_all.name, done=3, dead=1)
    tell(stock, code=b"V" * 8, task=noop.name, done=5)
    names = [short(each) for each in order(browser, page("tasks", sort="-done"))]
    assert names == ["noop", "catch_all"]
    assert [short(each) for each in order(browser, page("tasks", sort="done"))] == ["catch_all", "noop"]
    assert [short(each) for each in order(browser, page("tasks", sort="-failed"))] == ["catch_all", "noop"]
    assert [short(each) for each in order(browser, page("tasks", sort="task"))] == ["catch_all", "noop"]
    assert {"Task", "Queue", "Attempts", "Done, 1 h", "Failed attempts, 1 h", "p50 / p95"} == {
        text for text, (_, address) in headings(browser, page("tasks")).items() if address
    }


def test_shards_are_sorted_if_there_are_several(
    browser: Client, stock: ShardApis, redis_url: str, settings: Any
) -> None:
    assert not any(address for _, address in headings(browser, page("servers")).values())
    settings.DELAYQ = {**settings.DELAYQ, "SHARDS": 2}
    second = ShardApis(redis_url, clock=RedisClock(), shard=1, SHARDS=2)
    second.add(delay=DAY_US)
    assert order(browser, page("servers", sort="-scheduled")) == ["1", "0"]
    second.close()
