"""Hostile text from every source stays text, and the pages keep their layout."""

import json
import re

import pytest

from django_delayq.exceptions import address_of
from django_delayq.job.ids import from_text
from tests.admin.conftest import page
from tests.admin.jobs import add, add_dead, claim
from tests.admin.reports import tell
from tests.admin.schedule_records import add_schedule, rewrite
from tests.browser.fixtures import Fixtures
from tests.browser.page_session import PageSession
from tests.browser.pages import GONE, TABS

MARK = "boo"
HOSTILE = (
    f"</pre></title></textarea><script>document.body.dataset.{MARK}=1;alert(1)</script>"
    f"<img src=x onerror=document.body.dataset.{MARK}=1>\"'`&lt;javascript:alert(1) ../../ \x00\x1b[31m\u202e\ud800"
    "{{ 7*7 }}{% x %}%s%(n)s\u2028\ufeff"
)
LONG = "w" * 1_000_000
HELP = re.compile(re.escape(address_of("troubleshooting")) + r"#[a-z-]+")
# What the text could have become: elements, or attributes of other elements.
INJECTED = f"""() => [...document.querySelectorAll(
    "#delayq script, #delayq img, #delayq iframe, #delayq style, #delayq [onerror], #delayq [style], [data-{MARK}]"
)].map((each) => each.outerHTML.slice(0, 200))
    .concat([...document.querySelectorAll("#delayq a[href]")].map((each) => each.getAttribute("href"))
        .filter((href) => !/^([/?#]|(\\.\\.\\/)+job\\/|[0-9a-f]{{16}}-[0-9]+\\/$)/.test(href)
            || new URL(href, location.href).origin !== location.origin))"""


def look_over(window: PageSession) -> None:
    """Assert that no script ran, no element was injected, and nothing overlaps."""
    found = window.page.evaluate(INJECTED)
    # What helps is in the documentation.
    assert [each for each in found if not HELP.fullmatch(each)] == []
    window.assert_tidy(1280, 390)
    window.assert_calm()


@pytest.fixture
def hostile(stock: Fixtures) -> dict[str, str]:
    """Store the text in every field; return the ids of jobs in every state."""
    apis = stock.apis
    apis.clock.now_us = stock.now_us
    error = f'Traceback\n  File "{HOSTILE}", line 1\n{HOSTILE}: {HOSTILE}\n'

    def kwargs() -> dict[str, str]:
        return {HOSTILE: HOSTILE, "token": HOSTILE}

    ids = {"failed": add_dead(apis, HOSTILE, task=HOSTILE, queue=HOSTILE, error=error, **kwargs())}
    ids["running"] = add(apis, HOSTILE, task=HOSTILE, queue=HOSTILE, delay=None, **kwargs())
    worker, _ = claim(apis, ids["running"], queue=HOSTILE)
    worker.take(0, HOSTILE, description=HOSTILE.encode("utf-8", "replace").decode())
    ids["ready"] = add(apis, HOSTILE, task=HOSTILE, queue=HOSTILE, delay=None, **kwargs())
    ids["scheduled"] = add(apis, HOSTILE, task=HOSTILE, queue=HOSTILE, **kwargs())
    ids["long"] = add(apis, LONG, queue="q" * 200, text=LONG)
    ids["long name"] = add(apis, task="w" * 1_000)
    ids["long, failed"] = add_dead(apis, LONG, queue="q" * 200, error=f"{'E' * 4_000}: {LONG}")
    for kind in ("dispatcher", "worker"):
        tell(
            apis,
            kind=kind,
            code=kind.encode()[:8],
            queue=HOSTILE,
            task=HOSTILE,
            done=2,
            dead=1,
            name=HOSTILE,
            version=HOSTILE,
            queues=[HOSTILE, "q" * 200],
            slots=4,
            running={HOSTILE: 1},
            rss=10**15,
            oldest_us=1,
        )
    apis.operations.pause(HOSTILE, by=HOSTILE)
    name, text = HOSTILE[-120:], {"args": [HOSTILE], "kwargs": kwargs()}
    ids["schedule"] = add_schedule(apis, name, task=HOSTILE, queue=HOSTILE, **text)
    add_schedule(
        apis, "w" * 200, task="w" * 1_000, cron="*/1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17 * * * *", tz="UTC"
    )
    unreadable = add_schedule(apis, "every")
    rewrite(apis, unreadable, b"every 3600", b"<b>y 3600\xff")
    return ids


@pytest.fixture
def noise(stock: Fixtures) -> list[str]:
    """Write bytes that are neither text nor a job into Redis; return the ids."""
    apis = stock.apis
    made = [add(apis, number) for number in range(4)] + [add_dead(apis, number) for number in range(4)]
    bodies = (b"\xff\xfe" * 40, b"", b"\x00" * 300_000, json.dumps({"args": "<img src=x>"}).encode())
    for number, text_id in enumerate(made):
        raw_id, _ = from_text(text_id) or (b"", 0)
        apis.client.hset(apis.keys("jobs" if number < 4 else "dead_bodies"), raw_id, bodies[number % 4])
        apis.client.hset(apis.keys("attempts"), raw_id, b"\x00\x05\x01\xff<script>")
    for noun in ("worker_names", "process_reports", "metrics", "paused"):
        apis.client.hset(apis.keys(noun), b"\xff<script>alert(1)</script>", b"\xfe\x00<script>alert(1)</script>")
    return made


@pytest.mark.parametrize("tab", TABS)
def test_tabs_show_hostile_text_as_text(tab: str, window: PageSession, hostile: dict[str, str]) -> None:
    window.open(page(tab))
    look_over(window)


def test_pages_of_jobs_and_queues_show_hostile_text_as_text(window: PageSession, hostile: dict[str, str]) -> None:
    for address in (
        page("queue_detail", HOSTILE),
        page("failed", group="error"),
        page("failed", group="task"),
        *(page("job_detail", text_id) for name, text_id in hostile.items() if name != "schedule"),
        page("recurring_schedule", hostile["schedule"]),
        page("recurring_calendar"),
    ):
        window.open(address)
        look_over(window)


def test_confirm_pages_and_messages_show_hostile_text_as_text(window: PageSession, hostile: dict[str, str]) -> None:
    for place, action in (("scheduled", "cancel"), ("failed", "delete")):
        window.open(page(place))
        for row in window.page.locator("[name=row]").all():
            row.check()
        window.request_action(action)
        window.page.locator(".delayq-confirm").wait_for()
        look_over(window)
        window.page.locator(".delayq-confirm button[type=submit]").click()
        window.page.locator(".messagelist").wait_for()
        look_over(window)
    for action in ("edit_schedule", "pause_schedule"):
        window.open(page("recurring_schedule", hostile["schedule"]))
        window.page.locator(f"button[value={action}]").click()
        window.page.locator(".delayq-confirm").wait_for()
        look_over(window)
    window.page.locator(".delayq-confirm button[type=submit]").click()
    window.page.locator(".messagelist").wait_for()
    look_over(window)
    # The audit log on the page of a missing job.
    window.open(page("job_detail", hostile["scheduled"]), status=404)
    look_over(window)


def test_hostile_addresses_are_text(window: PageSession, stock: Fixtures) -> None:
    query = dict.fromkeys(("queue", "task", "error", "q", "within", "from", "to", "at", "n", "sort", "group", "after"))
    for name in ("scheduled", "failed", "running"):
        window.open(page(name, **{key: HOSTILE.replace("\ud800", "") for key in query}))
        look_over(window)
    for text_id in (GONE, "%3Cscript%3Ealert(1)%3C%2Fscript%3E", "w" * 2_000):
        window.open(page("overview") + f"job/{text_id}/", status=404)
        look_over(window)


@pytest.mark.parametrize("tab", TABS)
def test_tabs_survive_bytes_that_are_not_text(tab: str, window: PageSession, noise: list[str]) -> None:
    window.open(page(tab))
    look_over(window)


def test_unreadable_jobs_have_pages(window: PageSession, noise: list[str]) -> None:
    addresses = []
    for place in ("scheduled", "failed"):
        window.open(page(place))
        links = window.page.locator("#delayq tbody a[href*='/job/']")
        addresses += links.evaluate_all("(links) => links.map((each) => each.pathname + each.search)")
    assert {text_id for text_id in noise for address in addresses if text_id in address} == set(noise)
    for address in dict.fromkeys(addresses):
        window.open(address)
        look_over(window)


def test_a_megabyte_of_arguments_can_be_shown(window: PageSession, stock: Fixtures) -> None:
    half = LONG[:500_000]
    window.open(page("job_detail", add(stock.apis, half, text=half)))
    assert len(window.page.content()) < 200_000
    window.page.locator("#delayq").get_by_text("Show all").first.click()
    window.page.wait_for_function("() => document.querySelector('#delayq')?.textContent.length > 1000000")
    look_over(window)
