"""The overview: tiles, alerts, charts, queues and the newest failed jobs."""

import re
from html import unescape
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from django.test import Client
from redis import Redis

from django_delayq import runtime
from django_delayq.clock import DAY_US, HOUR_US, SECOND_US, moment
from django_delayq.processes.reporter import claims_status
from django_delayq.testing.fake_clock import FakeClock
from tests.admin.conftest import page
from tests.admin.page_content import link, words
from tests.admin.reports import tell
from tests.shard_apis import ShardApis

MINUTE_US = 60 * SECOND_US


def shown(browser: Client, **query: object) -> str:
    """Return the page's text without tags."""
    return words(browser.get(page("overview", **query)).content.decode())


def alerts(browser: Client) -> list[str]:
    """Return the alerts of the page."""
    html = browser.get(page("overview")).content.decode()
    return [words(text) for text in re.findall(r'<li class="delayq-note [^>]*>.*?</li>', html, re.DOTALL)]


def both_at_work(stock: ShardApis, **worker: Any) -> None:
    """Let a dispatcher and a worker of all queues report."""
    tell(stock, kind="dispatcher", code=b"D" * 8, name="web1:4410")
    tell(stock, **worker)


def age(stock: ShardApis, key: str, code: bytes, us: int) -> None:
    """Make a process silent for a span."""
    stock.client.zincrby(stock.keys(key), -us, code)


def test_an_empty_store_explains_what_to_do(browser: Client) -> None:
    text = shown(browser)
    assert "Scheduled 0 none to come" in text
    assert ".after(minutes=1).enqueue(" in text
    assert "No job has failed for good." in text
    assert "Nothing ran within the last hour." in text


def test_tiles_count_the_jobs_in_each_state(browser: Client, stock: ShardApis) -> None:
    both_at_work(
        stock, done=995, dead=5, slots=8, running={"default": 1}, oldest_us=stock.clock.now_us - 12 * SECOND_US
    )
    for _ in range(1_200):
        stock.add(delay=DAY_US, queue="mail")
    stock.add_dead()
    stock.add()
    claimed = stock.add()
    assert claimed
    stock.worker().take(1)
    text = shown(browser)
    assert "Scheduled 1,200 next in 24 h" in text
    assert "Overdue 0 Ready" in text
    assert re.search(r"Ready 1 oldest \d+", text)
    assert re.search(r"Running 1 of 8 slots longest (1[2-9]|[2-5]\d) s", text)
    assert re.search(r"Failed 1 \+1/h newest \d+", text)
    assert "Done, 1 h 995 99.5% run time p95" in text


def test_nearly_all_is_not_100_percent(browser: Client, stock: ShardApis) -> None:
    tell(stock, done=9_999, dead=1)
    assert "99.9%" in shown(browser)
    stock.client.flushall()
    tell(stock, done=3)
    assert "100%" in shown(browser)


def test_tabs_count_and_link(browser: Client, stock: ShardApis) -> None:
    stock.add(delay=DAY_US)
    stock.add_dead()
    html = browser.get(page("overview")).content.decode()
    assert re.search(rf'<a href="{page("overview")}" aria-current="page">Overview', html)
    assert re.search(r'data-count="scheduled">1<', html)
    assert re.search(r'class="delayq-count bad" data-count="failed">1<', html)


def test_the_footer_names_server_and_clocks(browser: Client) -> None:
    text = shown(browser)
    assert re.search(r"Server \d\d:\d\d:\d\d Redis \d\d:\d\d:\d\d \(skew [\d.]+ ms\)", text)
    assert re.search(r"(Redis|Valkey) \d+\.\d+\.\d+ policy noeviction ✓ memory [\d.]+", text)
    assert "prefix delayq" in text


# Alerts


def test_no_dispatcher_at_all(browser: Client) -> None:
    (alert,) = alerts(browser)
    assert alert == "Problem: No dispatcher is running. Due jobs do not become ready. Workers & dispatchers What helps"


def test_a_dispatcher_last_seen_long_ago(browser: Client, stock: ShardApis) -> None:
    tell(stock, kind="dispatcher", code=b"D" * 8)
    assert alerts(browser) == []
    age(stock, "dispatchers", b"D" * 8, 2 * MINUTE_US)
    assert alerts(browser) == [
        "Problem: No dispatcher has been seen for 2 min. Due jobs do not become ready. Workers & dispatchers What helps"
    ]


def test_workers_stand_in_for_a_dispatcher(browser: Client, stock: ShardApis) -> None:
    tell(stock)
    assert alerts(browser) == [
        "Note: No dispatcher is running. Workers make due jobs ready in its place, but later. Workers & dispatchers "
        "What helps"
    ]


@pytest.mark.parametrize("silent", [False, True])
def test_no_worker_for_a_queue_with_ready_jobs(silent: bool, browser: Client, stock: ShardApis) -> None:
    both_at_work(stock, queues=["mail"])
    stock.add(queue="mail")
    assert alerts(browser) == []
    if silent:
        age(stock, "workers", b"W" * 8, 2 * MINUTE_US)
    else:
        stock.add(queue="reports")
    (alert,) = alerts(browser)
    name = "mail" if silent else "reports"
    assert (
        alert == f"Problem: Jobs are ready in queue {name}, but no worker takes them. Workers & dispatchers What helps"
    )


def test_no_worker_matches_a_queue_with_ready_jobs(browser: Client, stock: ShardApis) -> None:
    both_at_work(stock, **claims_status([], queues=["mail*", "-mail.slow"], filtered=True))
    stock.add(queue="mail.new")
    assert alerts(browser) == []
    stock.add(queue="mail.slow")
    assert alerts(browser) == [
        "Problem: Jobs are ready in queue mail.slow, but no worker takes them. Workers & dispatchers What helps"
    ]


def test_quiet_workers_take_nothing(browser: Client, stock: ShardApis) -> None:
    stock.add()
    both_at_work(stock, quiet=True)
    assert "Jobs are ready in queue default, but no worker takes them." in alerts(browser)[0]


def test_a_paused_queue_with_jobs(browser: Client, stock: ShardApis) -> None:
    both_at_work(stock)
    stock.add(queue="mail")
    stock.operations.pause("mail", by="ann")
    stock.operations.pause("empty", by="ann")
    assert alerts(browser) == ["Note: Queue mail is paused by ann, and 1 job waits in it. Queues"]


def test_oldest_overdue(browser: Client, stock: ShardApis) -> None:
    both_at_work(stock)
    raw_id = stock.add(delay=HOUR_US)
    member = stock.client.zrange(stock.keys.scheduled("default"), 0, -1)[0]
    assert member.startswith(raw_id)
    stock.client.zadd(stock.keys.scheduled("default"), {member: stock.clock.now_us - 30 * SECOND_US})
    assert alerts(browser) == []
    stock.client.zadd(stock.keys.scheduled("default"), {member: stock.clock.now_us - 5 * MINUTE_US})
    assert alerts(browser) == ["Problem: The oldest overdue job was due 5 min ago. Overdue jobs What helps"]
    assert "Overdue 1 oldest 5 min" in shown(browser)


def test_a_memory_policy_that_may_delete_jobs(
    browser: Client, stock: ShardApis, start_redis: Any, settings: Any
) -> None:
    server = start_redis(options={"maxmemory-policy": "allkeys-lru"})
    settings.DELAYQ = {"REDIS": server.url}
    assert "its maxmemory-policy is allkeys-lru, not noeviction" in alerts(browser)[1]


def test_facts_that_the_server_refuses_are_left_out(browser: Client, start_redis: Any, settings: Any) -> None:
    server = start_redis(options={"maxmemory-policy": "allkeys-lru"})
    with server.client() as plain:
        plain.execute_command("ACL", "SETUSER", "default", "-info", "-config")
    settings.DELAYQ = {"REDIS": server.url}
    text = shown(browser)
    assert "prefix delayq" in text
    assert "policy" not in text
    assert "memory" not in text


@pytest.mark.parametrize("apart", [-5 * SECOND_US, 5 * SECOND_US])
def test_clocks_that_differ(apart: int, browser: Client, stock: ShardApis) -> None:
    both_at_work(stock)
    # It goes on, as that of Redis does.
    clock = FakeClock()
    clock.advance(apart)
    with runtime.override(clock=clock):
        (alert,) = alerts(browser)
        assert re.match(r"Note: The clocks of Redis and this server differ by \d\.\d s", alert)
        assert "too much" in shown(browser)


@pytest.mark.parametrize("noun", ["jobs", "dead_bodies"])
def test_unregistered_tasks(noun: str, browser: Client, stock: ShardApis, client: Redis, settings: Any) -> None:
    both_at_work(stock)
    if noun == "jobs":
        stock.add(delay=HOUR_US)
    else:
        stock.add_dead()
    assert alerts(browser) == []
    key = f"delayq:{{0}}:{noun}"
    for raw_id, stored in client.hgetall(key).items():
        client.hset(key, raw_id, stored.replace(b"tests.sample_app.tasks.noop", b"tests.sample_app.tasks.gone"))
    # The examined jobs are cached for a minute, but not across configurations.
    settings.DELAYQ = {**settings.DELAYQ}
    assert alerts(browser) == [
        "Note: Waiting or failed jobs have a task that is not registered in this process: "
        "tests.sample_app.tasks.gone. Tasks What helps"
    ]


def test_alerts_come_worst_first(browser: Client, stock: ShardApis) -> None:
    stock.add(queue="mail")
    stock.operations.pause("mail", by="ann")
    found = alerts(browser)
    assert [alert.split()[1] for alert in found] == ["No", "Jobs", "Queue"]


# Due jobs ahead


def coming(browser: Client, **query: object) -> list[tuple[str, str, int]]:
    """Return the rows of the table of upcoming jobs: label, address, number."""
    html = browser.get(page("overview", **query)).content.decode()
    figure = re.search(r'<figure class="delayq-chart coming".*?</figure>', html, re.DOTALL)
    assert figure
    rows = re.findall(r'<th scope="row"><a href="([^"]*)">([^<]*)</a></th><td class="num">([^<]*)</td>', figure[0])
    return [(label, unescape(url), int(number)) for url, label, number in rows]


@pytest.mark.parametrize(
    ("due", "inside", "outside", "bars"),
    [
        ("hour", 59 * MINUTE_US, 2 * HOUR_US, 30),
        ("day", 23 * HOUR_US, 25 * HOUR_US, 48),
        ("month", 28 * DAY_US, 32 * DAY_US, 30),
    ],
)
def test_upcoming_jobs_are_counted_within_the_span(
    due: str, inside: int, outside: int, bars: int, browser: Client, stock: ShardApis
) -> None:
    now_us = stock.clock.now_us
    for delay in (10 * SECOND_US, inside, inside, outside):
        stock.add(due=now_us + delay)
    rows = coming(browser, due=due)
    # The first and the last bar are partial if the clock is between two steps.
    assert len(rows) in (bars, bars + 1)
    assert sum(number for _, _, number in rows) == 3
    assert sum(number for _, _, number in rows[:2]) == 1
    assert max(number for _, _, number in rows) == 2
    assert "3 due within the next" in shown(browser, due=due)
    assert ", 1 later." in shown(browser, due=due)


@pytest.mark.parametrize("due", ["hour", "day", "month"])
def test_bars_link_to_the_jobs_that_they_count(due: str, browser: Client, stock: ShardApis) -> None:
    for hours in range(1, 24):
        stock.add(delay=hours * HOUR_US - 30 * MINUTE_US, queue="mail" if hours % 2 else "default")
    for _, url, number in coming(browser, due=due):
        if number:
            listed = browser.get(url).content.decode()
            assert len(set(re.findall(r"job/([0-9a-f]{24}-0)/", listed))) == number, url


def test_bars_of_a_month_begin_at_midnight_in_the_chosen_zone(browser: Client, stock: ShardApis, settings: Any) -> None:
    settings.TIME_ZONE = "America/New_York"
    rows = coming(browser, due="month")
    edges = [int(url.split("from=")[1].split("&")[0]) for _, url, _ in rows[1:]]
    assert {f"{moment(us).astimezone(ZoneInfo('America/New_York')):%H:%M:%S.%f}" for us in edges} == {"00:00:00.000000"}


def test_an_unknown_span_is_a_day(browser: Client) -> None:
    assert len(coming(browser, due="<script>")) in (48, 49)


# The last hour


def test_the_last_hour_has_figures(browser: Client, stock: ShardApis) -> None:
    tell(stock, done=90, retried=7, dead=3, lag_us=6_000, run_us=300_000)
    text = shown(browser)
    assert "Last hour: 90 done, 7 retried, 3 failed." in text
    assert "Last hour: half within 6 ms, 95% within 8 ms." in text
    text = shown(browser, charts="delay")
    assert "Last hour: half within 6 ms, 95% within 8 ms." in text
    assert "Last hour: 100 runs, most often 4 ms–8 ms." in text
    assert "Last hour: 100 runs, most often 256 ms–512 ms." in shown(browser, charts="run")


def test_what_comes_and_two_charts_are_shown_and_tabs_lead_to_the_others(browser: Client, stock: ShardApis) -> None:
    tell(stock, done=90)

    def titles(answer: Any) -> list[str]:
        return re.findall(r"<figcaption><h2>([^<]*)<", answer.content.decode())

    first = browser.get(page("overview", due="hour"))
    assert titles(first) == ["Coming due", "Finished per minute", "Start delay"]
    assert titles(browser.get(link(first, "Start delay"))) == ["Coming due", "Start delay", "Start delay, how often"]
    run = browser.get(link(first, "Run time"))
    assert titles(run) == ["Coming due", "Run time", "Run time, how often"]
    assert link(run, "30 days") == page("overview", due="month", charts="run")
    assert titles(browser.get(page("overview", charts="no such"))) == titles(first)


def test_a_healthy_page_says_so_and_its_zeros_are_quiet(browser: Client, stock: ShardApis) -> None:
    both_at_work(stock)
    assert "All clear. Jobs start in time, and none has failed for good. Scheduled 0" in shown(browser)
    html = browser.get(page("overview")).content.decode()
    assert len(re.findall('<strong class="quiet">0</strong>', html)) == 6
    stock.add_dead()
    assert "Jobs start in time" not in shown(browser)


def test_severe_problems_come_first(browser: Client, stock: ShardApis) -> None:
    stock.add(queue="mail")
    stock.operations.pause("mail", by="ann")
    words_of = [alert.split(":")[0] for alert in alerts(browser)]
    assert words_of == sorted(words_of, key=["Problem", "Note"].index) and set(words_of) == {"Problem", "Note"}


def test_expired_jobs_are_counted_if_there_are_any(browser: Client, stock: ShardApis) -> None:
    tell(stock, done=9, dead=1)
    assert "expired" not in shown(browser)
    tell(stock, expired=4)
    assert "Last hour: 9 done, 0 retried, 1 failed. 4 expired." in shown(browser)


def test_queues_and_newest_failed_jobs_are_listed(browser: Client, stock: ShardApis) -> None:
    tell(stock, queue="mail", done=4, dead=1)
    stock.add(queue="mail")
    raw_id = stock.add_dead()
    html = browser.get(page("overview")).content.decode()
    assert page("job_detail", f"{raw_id.hex()}-0") in html
    assert page("queue_detail", "mail") in html
    assert "as asked" in html


def test_hostile_names_and_errors_stay_text(browser: Client, stock: ShardApis) -> None:
    evil = "<script>alert(1)</script>\"'&"
    tell(stock, queue=evil, done=1, name=evil, version=evil, queues=[evil])
    stock.add(queue=evil)
    stock.operations.pause(evil, by=evil)
    for name in ("overview", "queues", "processes", "tasks"):
        assert "<script>alert" not in browser.get(page(name)).content.decode()


def test_charts_of_a_week_are_by_the_hour(browser: Client, stock: ShardApis) -> None:
    hour = stock.clock.now_us // HOUR_US
    rows = {f"{hour - 100} all": "done 40 lag3 40 run9 40", f"{hour - 300} all": "done 500"}
    stock.client.hset(stock.keys("metrics_by_hour"), mapping=rows)
    tell(stock, done=2)
    text = shown(browser, span="week", due="month")
    assert "Finished per hour" in text and "Last 7 days: 42 done, 0 retried, 0 failed." in text
    assert "Last 7 days: half within" in text
    assert "Last 7 days: 42 runs" in shown(browser, span="week", charts="run")
    for query in ({}, {"span": "century"}):
        assert "Last hour: 2 done" in shown(browser, **query)
    html = browser.get(page("overview", span="week", due="month")).content.decode()
    assert f'<a href="{page("overview", due="month")}">1 hour</a>' in html
    assert f'<a href="{page("overview", span="week")}">24 hours</a>' in html


def test_the_choice_of_a_span_says_which_is_shown(browser: Client) -> None:
    html = browser.get(page("overview", span="week")).content.decode()
    assert re.search(r'<a href="[^"]*span=week[^"]*" aria-current="true">7 days</a>', html)
    assert "Nothing ran within the last 7 days." in words(html)
