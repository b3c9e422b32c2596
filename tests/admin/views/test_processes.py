"""The page of dispatchers and workers: which are active, which are lost."""

import re
from typing import Any

import pytest
from django.test import Client

from django_delayq.clock import DAY_US
from django_delayq.processes.reporter import claims_status
from tests.admin.conftest import page
from tests.admin.forms import form_to
from tests.admin.page_content import words
from tests.admin.reports import tell
from tests.shard_apis import ShardApis


def listed(browser: Client) -> str:
    """Return the page without its tags."""
    return words(browser.get(page("processes")).content.decode())


def test_no_process_at_all(browser: Client) -> None:
    text = listed(browser)
    assert "Start one: manage.py run_dispatcher" in text
    assert "Start one: manage.py run_worker" in text


def test_a_dispatcher_has_a_row(browser: Client, stock: ShardApis) -> None:
    tell(
        stock,
        kind="dispatcher",
        code=b"D" * 8,
        name="web1:4410",
        version="1.2.3",
        started_us=stock.clock.now_us - 2 * DAY_US,
        rss=84 << 20,
        promoted=18_210,
        lag_p95_us=38_000,
    )
    assert re.search(
        r"web1:4410 active (now|\d s ago) \d\d:\d\d:\d\d 2 d ago [\d-]{10} \d\d:\d\d:\d\d "
        r"18,210 38 ms 84\.0.MB 1\.2\.3",
        listed(browser),
    )


def test_a_worker_has_a_row(browser: Client, stock: ShardApis) -> None:
    tell(stock, queues=["mail", "default"], slots=4, running={"mail": 1, "default": 1}, rss=84 << 20)
    assert re.search(
        r"web1:4411 active Quiet mail , default 2 of 4 (now|\d s ago) \d\d:\d\d:\d\d – 84", listed(browser)
    )


def test_a_worker_of_a_filter_shows_it_as_it_was_given(browser: Client, stock: ShardApis) -> None:
    tell(stock, slots=4, **claims_status([], queues=["mail*", "-mail.%2A"], filtered=True))
    assert "web1:4411 active Quiet mail* , -mail.%2A 0 of 4" in listed(browser)


def test_a_worker_of_weighted_queues_shows_the_weights(browser: Client, stock: ShardApis) -> None:
    tell(stock, slots=4, **claims_status([], queues=["mail", "<b>"], weights=[6, 1]))
    assert "web1:4411 active Quiet mail=6 , <b>=1 0 of 4" in listed(browser)


def test_worker_of_all_queues_says_so(browser: Client, stock: ShardApis) -> None:
    tell(stock, slots=4)
    assert "web1:4411 active Quiet all 0 of 4" in listed(browser)


def test_a_lost_worker_shows_since_when_its_jobs_may_be_tried_again(browser: Client, stock: ShardApis) -> None:
    tell(stock, slots=4, running={"mail": 1})
    stock.client.zincrby(stock.keys("workers"), -65_000_000, b"W" * 8)
    html = browser.get(page("processes")).content.decode()
    assert re.search(r"web1:4411 lost its 1 job may run again since \d\d:\d\d:\d\d", words(html))
    assert "Quiet" not in html


def test_a_button_quiets_a_worker_and_resumes_it(browser: Client, stock: ShardApis) -> None:
    tell(stock)
    for action, quiet in (("quiet", True), ("unquiet", False)):
        answer = form_to(browser.get(page("processes")), "action/", button=action).post(browser, action=action)
        assert (answer.status_code, answer["Location"]) == (302, page("processes"))
        (worker,) = stock.store.dashboard(0).snapshot().processes
        assert worker.asked_quiet == quiet
    tell(stock, quiet=True)
    assert "web1:4411 quiet Take jobs again all" in listed(browser)


@pytest.mark.parametrize(
    "said", [{"queues": 7}, {"running": [1]}, {"slots": "x"}, {"name": ["a"]}, {"started_us": 1e400}]
)
def test_an_invalid_report_does_no_harm(said: Any, browser: Client, stock: ShardApis) -> None:
    tell(stock, **said)
    for name in ("processes", "overview", "queues"):
        assert browser.get(page(name)).status_code == 200


def test_moments_beyond_the_calendar_are_shown(browser: Client, stock: ShardApis) -> None:
    tell(stock, started_us=2**62, oldest_us=-(2**62))
    tell(stock, code=b"V" * 8, started_us=-(2**62))
    assert browser.get(page("processes")).status_code == 200


def test_the_shard_is_shown_if_there_are_several(browser: Client, stock: ShardApis, settings: Any) -> None:
    tell(stock)
    assert "Shard" not in listed(browser)
    settings.DELAYQ = {**settings.DELAYQ, "SHARDS": 2}
    assert "Process Shard State" in listed(browser)
