"""Coming due: how late the jobs of the next day will start, and how good the model was within the last hour."""

import re
from html import unescape
from typing import Any

import pytest
from django.test import Client

from django_delayq.job.ending import EndingRow
from django_delayq.job.ids import next_id
from tests.admin.conftest import page
from tests.admin.jobs import HOUR, NOOP
from tests.admin.page_content import ids, link, words
from tests.admin.reports import tell
from tests.admin.views.test_overview import both_at_work
from tests.shard_apis import ShardApis

SECOND, MINUTE = 1_000_000, 60_000_000


def shown(browser: Client, **query: Any) -> str:
    return words(browser.get(page("coming", **query)).content.decode())


@pytest.fixture
def work(stock: ShardApis) -> ShardApis:
    """Two slots, and runs of about a second in the queue of mails."""
    both_at_work(stock, queue="mail", done=100, run_us=SECOND, slots=2, queues=["mail"])
    return stock


def test_a_day_without_jobs_is_clear(browser: Client, work: ShardApis) -> None:
    text = shown(browser)
    assert "All clear. Every job of the next 24 hours is expected to start within a minute." in text
    assert "2 slots of the workers that run now do it" in text


def test_many_jobs_at_one_moment_are_late_and_the_page_says_what_would_help(browser: Client, work: ShardApis) -> None:
    due = work.clock.now_us + 2 * HOUR
    for _ in range(1_000):
        work.add(queue="mail", due=due)
    answer = browser.get(page("coming"))
    text = words(answer.content.decode())
    # 1,000 s of work at one moment, for two slots.
    found = re.search(r"Late: (\d\d:\d\d): 1,000 due, the last starts at \d\d:\d\d with 2 slots; 17 would keep", text)
    assert found
    assert "All clear" not in text
    [address] = re.findall(rf'<th scope="row"><a href="([^"]*)">{found[1]}</a>', answer.content.decode())
    assert len(ids(browser.get(unescape(address)))) == 50


def test_the_same_jobs_spread_over_a_quarter_of_an_hour_are_not_late(browser: Client, work: ShardApis) -> None:
    due = work.clock.now_us + 2 * HOUR
    for number in range(1_000):
        work.add(queue="mail", due=due + number * SECOND)
    text = shown(browser)
    assert "All clear." in text
    assert "1,000 due within the next 24 hours." in text


def test_the_overview_warns_before_jobs_are_late(browser: Client, work: ShardApis) -> None:
    warning = "on are expected to start late."
    now = work.clock.now_us
    for number in range(1_000):
        work.add(queue="mail", due=now + 2 * HOUR + number * SECOND)
    assert warning not in words(browser.get(page("overview")).content.decode())
    for _ in range(5_000):
        work.add(queue="mail", due=now + 5 * HOUR)
    answer = browser.get(page("overview"))
    assert warning in words(answer.content.decode())
    assert link(answer, "Coming due") == page("coming")


def test_jobs_that_no_worker_takes_do_not_start(browser: Client, work: ShardApis) -> None:
    work.add(queue="pdf", delay=HOUR)
    text = shown(browser)
    assert re.search(r"\d\d:\d\d: 1 due, and not all of them start within a day with 2 slots.", text)
    assert "No run of these queues is known from the last hour, so the mean of all jobs is assumed: pdf." in text


def test_jobs_of_a_paused_queue_do_not_start(browser: Client, work: ShardApis) -> None:
    work.add(queue="mail", delay=HOUR)
    assert "All clear." in shown(browser)
    work.operations.pause("mail", by="ann")
    assert re.search(r"\d\d:\d\d: 1 due, and not all of them start within a day", shown(browser))


def test_jobs_that_wait_already_come_first(browser: Client, work: ShardApis) -> None:
    for _ in range(400):
        work.add(queue="mail")
    work.add(queue="mail", delay=30 * SECOND)
    # 400 runs of 0.77 s on two slots take 154 s.
    assert re.search(r"1 due, the last starts at \d\d:\d\d with 2 slots", shown(browser))
    assert "on are expected to start late." in words(browser.get(page("overview")).content.decode())


def test_the_last_hour_is_compared_with_the_model(browser: Client, work: ShardApis) -> None:
    assert "nothing to compare with" in shown(browser, compare=1)
    assert link(browser.get(page("coming")), "How good was it") == page("coming", compare="1")
    # 300 s of work come within a minute, for two slots: 90 s more than that minute.
    due_us = work.clock.now_us - 30 * MINUTE
    ends: list[EndingRow] = [
        (next_id(), NOOP, "mail", 1, "done", due_us, number * SECOND // 2, SECOND, 0, "") for number in range(300)
    ]
    tell(work, endings=ends, slots=2, queues=["mail"])
    text = shown(browser, compare=1)
    found = re.search(r"For the 300 jobs .* the model says (\d+) s for the longest start delay; it was 2 min.", text)
    assert found
    assert 80 <= int(found[1]) <= 95
