"""The page of queues."""

import re
from html import escape

from django.test import Client

from django_delayq.clock import DAY_US
from django_delayq.job.ids import to_text
from django_delayq.store.promotion import Reclaim
from tests.admin.conftest import page
from tests.admin.forms import form_to
from tests.admin.page_content import rows
from tests.admin.reports import tell
from tests.shard_apis import ShardApis, one_more


def test_no_queue_yet(browser: Client) -> None:
    assert "There is no queue yet" in browser.get(page("queues")).content.decode()


def test_each_queue_has_a_row(browser: Client, stock: ShardApis) -> None:
    tell(stock, queue="mail", done=1_200, retried=3, dead=1, running={"mail": 2}, queues=["mail"])
    tell(stock, code=b"V" * 8, queues=["mail", "reports"])
    for _ in range(3):
        stock.add(queue="mail")
    stock.add(queue="reports", delay=DAY_US)
    stock.add(queue="other")
    found = rows(browser)
    assert list(found) == ["mail", "other", "reports"]
    scheduled, ready, oldest, running, workers, done, failed, state, _ = found["mail"]
    assert [scheduled, ready, running, workers, done, failed, state] == ["0", "3", "2", "2", "1,200", "4", "active"]
    assert re.fullmatch(r"\d+(\.\d)? m?s", oldest)
    assert found["reports"][:5] == ["1", "0", "–", "0", "1"]
    assert found["other"][4:8] == ["0", "0", "0", "no worker"]


def test_an_idle_queue_is_not_an_error(browser: Client, stock: ShardApis) -> None:
    stock.add(delay=DAY_US)
    assert rows(browser)["default"][7] == "idle"


def test_a_paused_queue_shows_who_paused_it_and_when(browser: Client, stock: ShardApis) -> None:
    stock.add(queue="mail")
    stock.operations.pause("mail", by="ann")
    *_, state, action = rows(browser)["mail"]
    assert re.fullmatch(r"paused by ann (now|\d s ago) \d\d:\d\d:\d\d", state)
    assert action == "Resume mail"


def test_a_pause_shows_its_end(browser: Client, stock: ShardApis) -> None:
    stock.add(queue="mail")
    stock.operations.pause("mail", by="ann", until_us=stock.clock.now_us + DAY_US)
    *_, state, _action = rows(browser)["mail"]
    assert re.fullmatch(r"paused by ann (now|\d s ago) \d\d:\d\d:\d\d ?, until in (1 d|24 h|23 h 59 min)\b.*", state)
    assert "until" in browser.get(page("queue_detail", "mail")).content.decode()


def test_button_pauses_and_resumes(browser: Client, stock: ShardApis) -> None:
    stock.add(queue="a/b")
    for action, paused in (("pause", True), ("resume", False)):
        answer = form_to(browser.get(page("queues")), "action/", button=action).post(browser, action=action)
        assert (answer.status_code, answer["Location"]) == (302, page("queues"))
        assert bool(stock.store.dashboard(0).snapshot().queues["a/b"].paused) == paused


def test_numbers_link_to_their_jobs(browser: Client, stock: ShardApis) -> None:
    stock.add(queue="mail", delay=DAY_US)
    tell(stock, queue="mail", dead=1, running={"mail": 1})
    html = browser.get(page("queues")).content.decode()
    for name in ("scheduled", "running"):
        assert f'href="{page(name, queue="mail")}"' in html
    failed = escape(page("failed", queue="mail", within="1h"))
    assert f'href="{failed}" title="also attempts that were followed by another; the link lists failed jobs"' in html


def test_a_recovered_job_is_marked_among_the_ready_ones(browser: Client, stock: ShardApis) -> None:
    raw_id, behind = stock.add(queue="mail"), stock.add(queue="mail")
    claim = stock.worker().take(1, "mail").claims[0]
    stock.client.zadd(stock.keys("leases"), {claim.lease: 1})
    back = Reclaim(lease=claim.lease, attempts=one_more(claim.attempts, suspect=True), queue="mail")
    assert stock.promotion.reclaim([back]) == [True]
    assert stock.where(raw_id) == ["recovered:mail"]
    assert rows(browser)["mail"][1] == "2"
    text = browser.get(page("queue_detail", "mail")).content.decode()
    assert text.index(to_text(raw_id, 0)) < text.index(to_text(behind, 0))
    assert text.count(">recovered</span>") == 1
