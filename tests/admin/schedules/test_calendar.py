"""The calendar: how many jobs the coming week has in each hour, and how long they run."""

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from django_delayq.admin.views.schedules.calendar import short_number, short_time
from django_delayq.clock import moment, moment_us
from django_delayq.recurring.run import RunOutcome
from django_delayq.store.schedules.stored_schedule import PAUSED, UNREADABLE
from tests.admin.conftest import page
from tests.admin.jobs import NOOP
from tests.admin.page_content import link, rows, text
from tests.admin.schedule_records import add_schedule, done
from tests.admin.schedules.conftest import NOW_US
from tests.shard_apis import DAY, SECOND, ShardApis


def calendar(browser: Client, **query: str) -> dict[str, list[str]]:
    """Return the cells of each day."""
    return rows(browser, "recurring_calendar") if not query else _rows(browser.get(page("recurring_calendar", **query)))


def _rows(response: Any) -> dict[str, list[str]]:
    body = response.content.decode().split("<tbody>")[1].split("</tbody>")[0]
    found = {}
    for row in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL):
        first, *rest = [
            re.sub("<[^>]*>", "", cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)
        ]
        found[first] = rest
    return found


def by_task(response: Any) -> list[list[str]]:
    """Return the rows of the table by task."""
    body = response.content.decode().split("<tbody>")[2].split("</tbody>")[0]
    return [
        [re.sub("<[^>]*>", "", cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)]
        for row in re.findall(r"<tr>(.*?)</tr>", body, re.DOTALL)
    ]


def test_the_jobs_of_each_hour(browser: Client, stock: ShardApis) -> None:
    add_schedule(stock, "hourly")
    add_schedule(stock, "often", every=300)
    add_schedule(stock, "morning", cron="0,30 9 * * mon-fri", tz="Europe/Berlin")
    response = browser.get(page("recurring_calendar"))
    found = _rows(response)
    assert list(found) == ["Mon 4", "Tue 5", "Wed 6", "Thu 7", "Fri 8", "Sat 9", "Sun 10", "Mon 11"]
    # It is 10:30. What is due now has a job already.
    assert found["Mon 4"] == [""] * 10 + ["6"] + ["13"] * 13
    assert found["Tue 5"] == ["13"] * 9 + ["15"] + ["13"] * 14
    assert found["Sat 9"] == ["13"] * 24
    assert found["Mon 11"] == ["13"] * 9 + ["15"] + [""] * 14
    number = 167 + (167 * 12 + 6) + 10
    assert f"{number:,} jobs in the coming week" in text(response)
    assert "The fullest hour begins 2027-01-05 09:00:00 : 15 jobs" in text(response)
    assert 'title="Tue 5 Jan, 09:00: jobs 15, run time ' in response.content.decode()
    assert "An estimate." not in text(response)


def test_how_long_they_run(browser: Client, stock: ShardApis) -> None:
    outcomes = [(RunOutcome.SKIPPED, 0), (RunOutcome.FAILED, 3_000), (RunOutcome.CANCELLED, 9_000), *done(1_000)]
    add_schedule(stock, "known", cron="0 12 * * *", tz="UTC", record={"outcomes": outcomes})
    # It takes as long as the other one of its task.
    add_schedule(stock, "new", cron="0 12 * * *", tz="UTC")
    add_schedule(stock, "unknown", task="shop.new", every=DAY // SECOND)
    add_schedule(stock, "long", task="shop.long", cron="0 12 * * *", tz="UTC", record={"outcomes": done(3_600_000)})
    response = browser.get(page("recurring_calendar", show="time"))
    assert _rows(response)["Tue 5"][13] == "1.0h"
    assert _rows(response)["Tue 5"][1] == "0s"
    assert _rows(response)["Tue 5"][2] == "·"
    assert by_task(response) == [
        ["shop.long", "7", "60 min", "7 h"],
        [NOOP, "14", "2.0 s", "28 s"],
        ["shop.new", "7", "–", "–"],
    ]
    assert "28 jobs in the coming week, 7 h of run time." in text(response)
    assert "7 jobs count without run time, because none of their tasks has ended yet." in text(response)
    assert link(response, "shop.long") == page("recurring", task="shop.long")
    assert link(response, "Jobs") == page("recurring_calendar")


def test_those_that_plant_nothing_are_left_out(browser: Client, stock: ShardApis) -> None:
    add_schedule(stock, "paused", record={"flags": PAUSED})
    add_schedule(stock, "unreadable", record={"flags": UNREADABLE})
    add_schedule(stock, "next month", start=moment(NOW_US + 30 * DAY))
    response = browser.get(page("recurring_calendar"))
    assert "No recurring schedule has a job in the coming week." in text(response)
    assert "1 paused schedule is left out. 1 schedule that cannot be read is left out." in text(response)
    add_schedule(stock, "campaign", start=moment(NOW_US + DAY), end=moment(NOW_US + 2 * DAY))
    assert "25 jobs in the coming week" in text(browser.get(page("recurring_calendar")))


def test_an_hour_that_comes_twice_is_one_cell(browser: Client, stock: ShardApis) -> None:
    stock.clock.now_us = moment_us(datetime(2027, 10, 30, 10, tzinfo=UTC))
    add_schedule(stock)
    found = calendar(browser)
    # 03:00 becomes 02:00.
    assert found["Sun 31"] == ["1", "1", "2", *["1"] * 21]
    stock.clock.now_us = moment_us(datetime(2027, 3, 27, 10, tzinfo=UTC))
    # 02:00 becomes 03:00.
    assert calendar(browser)["Sun 28"] == ["1", "1", "", *["1"] * 21]


def test_the_hours_are_those_of_the_reader(browser: Client, stock: ShardApis) -> None:
    add_schedule(stock, cron="15 9 * * *", tz="Europe/Berlin")
    assert calendar(browser)["Tue 5"].index("1") == 9
    browser.cookies["delayq_zone"] = "utc"
    assert calendar(browser)["Tue 5"].index("1") == 8
    browser.cookies["delayq_zone"] = "Asia/Kolkata"
    # 13:45 there, where hours begin half an hour later.
    assert calendar(browser)["Tue 5"].index("1") == 13


def test_many_schedules_are_a_sample(browser: Client, stock: ShardApis, bounds: Callable[..., None]) -> None:
    for number in range(40):
        add_schedule(stock, f"name {number}", record={"outcomes": done(2_000)})
    bounds(count_seconds=-1.0)
    response = browser.get(page("recurring_calendar"))
    assert "An estimate. 1 of 40 schedules were looked at." in text(response)
    assert f"{40 * 167:,} jobs in the coming week" in text(response)
    assert _rows(response)["Tue 5"] == ["40"] * 24
    assert by_task(response) == [[NOOP, f"{40 * 167:,}", "2.0 s", "4 h"]]


def test_a_thousand_schedules_are_looked_at_and_more_of_them_on_request(
    browser: Client, stock: ShardApis, bounds: Callable[..., None]
) -> None:
    bounds(count_seconds=60.0)
    for number in range(1_300):
        add_schedule(stock, f"name {number}")
    response = browser.get(page("recurring_calendar", show="time"))
    found = re.search(r"An estimate\. ([\d,]+) of 1,300 schedules were looked at", text(response))
    assert found and 1_000 <= int(found[1].replace(",", "")) < 1_300
    more = link(response, "Look at up to 10,000")
    assert more == page("recurring_calendar", show="time", read="most")
    response = browser.get(more)
    assert "An estimate." not in text(response) and f"{1_300 * 167:,} jobs in the coming week" in text(response)
    assert link(response, "Jobs") == page("recurring_calendar", read="most")


def test_schedules_of_all_shards_count(browser: Client, shards: list[ShardApis]) -> None:
    for apis in shards:
        add_schedule(apis)
    response = browser.get(page("recurring_calendar"))
    assert f"{3 * 167} jobs in the coming week" in text(response)
    assert "An estimate." not in text(response)


def test_a_damaged_entry_does_not_make_an_estimate(browser: Client, stock: ShardApis) -> None:
    add_schedule(stock)
    stock.client.hset(stock.keys("schedules"), "short", "x")
    assert "An estimate." not in text(browser.get(page("recurring_calendar")))


def test_an_empty_calendar(browser: Client, stock: ShardApis) -> None:
    assert "No recurring schedule has a job in the coming week." in text(browser.get(page("recurring_calendar")))


def test_only_twenty_tasks_are_listed(browser: Client, stock: ShardApis) -> None:
    for number in range(22):
        add_schedule(stock, task=f"shop.task{number:02}")
    response = browser.get(page("recurring_calendar"))
    assert len(by_task(response)) == 20
    assert "2 more tasks are not listed." in text(response)


@pytest.mark.parametrize(
    ("number", "words"),
    [(0, "0"), (940, "940"), (9_999, "9,999"), (10_000, "10k"), (12_345, "12k"), (1_000_000, "1.0M"), (34e6, "34M")],
)
def test_a_number_in_few_characters(number: float, words: str) -> None:
    assert short_number(number) == words


@pytest.mark.parametrize(
    ("span", "words"),
    [
        (timedelta(0), "0s"),
        (timedelta(milliseconds=300), "0.3s"),
        (timedelta(seconds=12), "12s"),
        (timedelta(minutes=39, seconds=20), "39m"),
        (timedelta(minutes=102), "1.7h"),
        (timedelta(hours=20), "20h"),
        (timedelta(days=3), "3.0d"),
    ],
)
def test_a_time_in_few_characters(span: timedelta, words: str) -> None:
    assert short_time(span / timedelta(microseconds=1)) == words
