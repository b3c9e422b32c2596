"""Running jobs: which worker has each, and until when."""

import re
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from django.utils.translation import override

from django_delayq.job.outcome import Action
from django_delayq.job.progress import Progress
from tests.admin.conftest import page
from tests.admin.forms import forms
from tests.admin.jobs import HOUR, NOOP, add, claim, raw
from tests.admin.page_content import ids, text
from tests.admin.steps import confirm, request_action, result
from tests.shard_apis import SECOND, ShardApis

OTHER = '  File "x.py", line 1, in f\nsmtplib.Refused: no\n'


def test_an_empty_list_says_whether_jobs_are_ready(browser: Client, stock: ShardApis) -> None:
    assert "Nothing is running." in text(browser.get(page("running")))
    assert "is a worker running?" not in text(browser.get(page("running")))
    add(stock, delay=None)
    assert "is a worker running?" in text(browser.get(page("running")))


def test_running_jobs_show_their_worker_and_lease(browser: Client, stock: ShardApis) -> None:
    mine = add(stock, 42, token="t", delay=None)
    claim(stock, mine)
    answer = browser.get(page("running"))
    page_text = text(answer)
    assert "42, token=•••" in page_text
    assert "web1:4411" in page_text
    assert re.search(r"web1:4411 in (\d\d s|[\d.]+ min) ", page_text)
    assert mine in answer.content.decode()
    assert not any(form.offers("cancel") for form in forms(answer))
    page_text = text(browser.get(page("job_detail", mine)))
    assert f"Running {mine}" in page_text
    assert re.search(r"in (\d\d s|[\d.]+ min) \d\d:\d\d:\d\d renewed (now|\d s ago)", page_text)


def test_a_lease_past_its_end_is_marked(browser: Client, stock: ShardApis) -> None:
    mine = add(stock, delay=None)
    claim(stock, mine)
    (lease,) = stock.client.zrange(stock.keys("leases"), 0, -1)
    stock.client.zadd(stock.keys("leases"), {lease: 1_000})
    ended = r"the lease ended [\d,]+ d ago 1970-01-01 \d\d:00:00 ?; a dispatcher takes the job back"
    assert re.search(r"1970-01-01 \d\d:00:00 lost ", text(browser.get(page("running"))))
    answer = browser.get(page("job_detail", mine))
    assert re.search(f"Lost {mine}.*{ended}", text(answer))
    assert '<span class="delayq-chip bad">Lost</span>' in answer.content.decode()


def test_a_lease_longer_than_the_setting_was_not_renewed_in_the_future(browser: Client, stock: ShardApis) -> None:
    mine = add(stock, delay=None)
    claim(stock, mine)
    (lease,) = stock.client.zrange(stock.keys("leases"), 0, -1)
    stock.client.zincrby(stock.keys("leases"), HOUR, lease)
    assert "renewed now" in text(browser.get(page("job_detail", mine)))


def test_running_jobs_are_filtered(browser: Client, stock: ShardApis) -> None:
    mine, other = add(stock, "needle", delay=None), add(stock, queue="mail", delay=None)
    claim(stock, mine)
    claim(stock, other, queue="mail")

    def found(**query: Any) -> set[str]:
        body = browser.get(page("running", **query)).content.decode()
        return {each for each in (mine, other) if each in body}

    assert found() == {mine, other}
    assert found(queue="mail") == {other}
    assert found(q="needle") == {mine}
    assert found(task=NOOP) == {mine, other}
    assert found(task="none") == set()


def test_a_job_that_left_the_list_is_not_shown_twice(browser: Client, stock: ShardApis) -> None:
    mine = add(stock, delay=None)
    worker, claimed = claim(stock, mine)
    worker.settle(claimed, Action.DEAD_LETTER, error=OTHER)
    assert mine not in browser.get(page("running")).content.decode()
    assert ids(browser.get(page("failed"))) == [mine]


def test_progress_is_a_bar_with_a_text(browser: Client, stock: ShardApis) -> None:
    mine = add(stock, delay=None)
    worker, held = claim(stock, mine)
    assert "<progress" not in browser.get(page("running")).content.decode()
    worker.api.heartbeat([held.lease], (), {held.lease: Progress(0.4, "2,000 <b>of</b> 5,000")})
    for address in (page("running"), page("job_detail", mine)):
        with override("de"):
            answer = browser.get(address, headers={"accept-language": "de"})
        html = answer.content.decode()
        label = f'aria-label="Fortschritt von {mine}: 40 % 2,000 &lt;b&gt;of&lt;/b&gt; 5,000"'
        assert f'<progress max="1" value="0.4000" {label}>' in html
        assert "40 % 2,000" in text(answer)
        assert "2,000 &lt;b&gt;of&lt;/b&gt; 5,000</span>" in html


def test_a_job_that_was_asked_to_stop_is_shown_as_stopping(browser: Client, stock: ShardApis) -> None:
    mine, other = add(stock, delay=None), add(stock, delay=None)
    for each in (mine, other):
        claim(stock, each)
    stock.operations.stop(raw(mine), grace_us=SECOND)
    assert text(browser.get(page("running"))).count("stopping") == 1
    assert f"Stopping {mine}" in text(browser.get(page("job_detail", mine)))
    assert f"Running {other}" in text(browser.get(page("job_detail", other)))


def test_running_jobs_are_stopped_and_the_audit_log_says_so(browser: Client, stock: ShardApis) -> None:
    mine, other = add(stock, delay=None), add(stock, delay=None)
    worker, held = claim(stock, mine)
    claim(stock, other)
    response = confirm(browser, request_action(browser, page("running"), "stop", mine), grace_s="60")
    assert "1 job asked to stop within 60" in result(browser, response)
    stops = worker.api.heartbeat([held.lease]).stops
    assert 0 < stops[held.lease] <= 60 * SECOND
    assert f"Running {other}" in text(browser.get(page("job_detail", other)))
    assert "Asked to stop within 60" in text(browser.get(page("job_detail", mine)))


def test_a_job_that_ended_meanwhile_is_not_stopped(browser: Client, stock: ShardApis) -> None:
    mine = add(stock, delay=None)
    worker, held = claim(stock, mine)
    response = request_action(browser, page("running"), "stop", mine)
    worker.settle(held, Action.ACKNOWLEDGE)
    assert "No longer running: nothing was changed" in result(browser, confirm(browser, response, grace_s="3"))


def test_a_viewer_cannot_stop_jobs(visitor: Callable[..., Client], stock: ShardApis) -> None:
    mine = add(stock, delay=None)
    claim(stock, mine)
    viewer = visitor("viewer")
    assert not any(form.offers("stop") for form in forms(viewer.get(page("running"))))
    assert not any(form.offers("stop") for form in forms(viewer.get(page("job_detail", mine))))


@pytest.mark.parametrize("grace_s", ["-1", "soon", "", "9" * 400])
def test_a_wrong_time_is_refused(browser: Client, stock: ShardApis, grace_s: str) -> None:
    mine = add(stock, delay=None)
    worker, held = claim(stock, mine)
    confirm(browser, request_action(browser, page("running"), "stop", mine), grace_s=grace_s)
    assert worker.api.heartbeat([held.lease]).stops == {}
