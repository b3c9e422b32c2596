"""Pages against hostile data in Redis, repeated requests, and unusual settings."""

import json
import re
from collections.abc import Callable, Iterator
from time import time_ns
from typing import Any
from urllib.parse import unquote

import pytest
from django.contrib.admin.models import LogEntry
from django.http import HttpRequest, HttpResponse
from django.test import Client

from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.attempts import HISTORY, NO_ATTEMPTS
from django_delayq.job.job import State
from django_delayq.processes.reporter import claims_status
from django_delayq.store.operations.worker_control import WorkerControl
from django_delayq.store.queries.snapshot import combined
from tests.admin.conftest import RedisClock, page
from tests.admin.forms import Form, form_to, forms
from tests.admin.jobs import HOUR, add, add_dead, due_us, raw, state
from tests.admin.page_content import PAGES, absolute, text
from tests.admin.reports import tell
from tests.admin.steps import confirm, request_action, result
from tests.shard_apis import ShardApis

#: An integer that no float represents.
HUGE = 10**400


@pytest.fixture
def shards(delayq_settings: Any, redis_url: str) -> Iterator[list[ShardApis]]:
    """The APIs of each of three shards."""
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 3}
    apis = [ShardApis(redis_url, shard=number, SHARDS=3, clock=RedisClock()) for number in range(3)]
    yield apis
    for each in apis:
        each.close()


def action_forms(answer: Any) -> list[Form]:
    """Return the forms that request an action."""
    return [form for form in forms(answer) if form.action.endswith("/action/")]


def counted(answer: Any) -> str:
    """Return the number and noun on a confirm page."""
    found = re.search(r"(Retry|Delete|Cancel) [0-9,]+ (failed job|waiting job)s?", text(answer))
    assert found, text(answer)
    return found[0]


# Actions never exceed what was confirmed.


def test_a_group_keeps_a_job_whose_error_was_edited(browser: Client, stock: ShardApis) -> None:
    add_dead(stock, 1)
    odd = raw(add_dead(stock, 2))
    cell = stock.client.hget(stock.keys("dead_bodies"), odd)
    record = b"\0\1\0" + json.dumps([{"ending": "~" + "x" * 300, "error": "e"}]).encode()
    rest = cell[22 + int.from_bytes(cell[:4]) :]
    stock.client.hset(stock.keys("dead_bodies"), odd, len(record).to_bytes(4) + cell[4:22] + record + rest)
    for form in action_forms(browser.get(page("failed", group="error"))):
        # It died of the same error.
        assert counted(form.post(browser, action="retry")) == "Retry 2 failed jobs"


@pytest.mark.parametrize("group", ["error", "task"])
def test_a_group_keeps_a_job_whose_body_was_edited(group: str, browser: Client, stock: ShardApis) -> None:
    add_dead(stock, 1)
    unreadable = raw(add_dead(stock, 2))
    stock.client.hset(stock.keys("dead_bodies"), unreadable, b"\0" * 22)
    for form in action_forms(browser.get(page("failed", group=group))):
        # A group counts what was read when the job died.
        assert counted(form.post(browser, action="retry")) == "Retry 2 failed jobs"


def test_a_group_excludes_errors_whose_names_end_alike(browser: Client, stock: ShardApis) -> None:
    for error in ("ValueError: x", "shop.ValueError: x"):
        add_dead(stock, error=f'Traceback (most recent call last):\n  File "x.py", line 1, in x\n{error}\n')
    for form in action_forms(browser.get(page("failed", group="error"))):
        assert counted(form.post(browser, action="retry")) == "Retry 1 failed job"


def test_jobs_are_shifted_once_if_the_button_is_pressed_twice(browser: Client, stock: ShardApis) -> None:
    mine = add(stock)
    before_us = due_us(stock, mine)
    answer = request_action(browser, page("scheduled"), "reschedule", all="yes")
    for _ in range(2):
        confirm(browser, answer, shift="10", unit="60")
    assert due_us(stock, mine) == before_us + HOUR // 6


#: What others do while the next request is under way.
_meanwhile: list[Callable[[], object]] = []


def let_others_press(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Middleware: let others press their buttons after a request has read its session."""

    def respond(request: HttpRequest) -> HttpResponse:
        assert request.user.is_authenticated
        while _meanwhile:
            _meanwhile.pop()()
        return get_response(request)

    return respond


def test_two_simultaneous_presses_shift_once(browser: Client, stock: ShardApis, settings: Any) -> None:
    mine = add(stock)
    before_us = due_us(stock, mine)
    answer = request_action(browser, page("scheduled"), "reschedule", all="yes")
    # A client keeps the middleware that it began with.
    settings.MIDDLEWARE = [*settings.MIDDLEWARE, f"{__name__}.let_others_press"]
    other = Client()
    other.cookies = browser.cookies
    _meanwhile.append(lambda: confirm(browser, answer, shift="10", unit="60"))
    confirm(other, answer, shift="10", unit="60")
    assert not _meanwhile
    assert due_us(stock, mine) == before_us + HOUR // 6


def test_jobs_retried_after_the_person_looked_are_not_included(browser: Client, stock: ShardApis) -> None:
    add(stock)
    retried = add_dead(stock)
    answer = request_action(browser, page("scheduled"), "cancel", all="yes")
    assert counted(answer) == "Cancel 1 waiting job"
    stock.operations.requeue(raw(retried), died_us=due_us(stock, retried), delay_us=2 * HOUR)
    assert "1 job cancelled" in result(browser, confirm(browser, answer))
    assert state(stock, retried) == "scheduled"


# Data in Redis.


@pytest.mark.parametrize("kind", ["worker", "dispatcher"])
@pytest.mark.parametrize(
    "report",
    [
        "[" * 100_000,
        f'{{"rss": {HUGE}}}',
        f'{{"oldest_us": -{HUGE}}}',
        f'{{"started_us": {HUGE}}}',
        f'{{"lag_p95_us": {HUGE}, "promoted": {HUGE}, "slots": {HUGE}, "running": {{"default": {HUGE}}}}}',
    ],
    ids=["deep", "rss", "oldest", "started", "rest"],
)
def test_no_report_breaks_a_page(kind: str, report: str, browser: Client, stock: ShardApis) -> None:
    add(stock, delay=None)
    tell(stock, kind=kind)
    stock.client.hset(stock.keys("process_reports"), b"W" * 8, report)
    for name in PAGES:
        assert browser.get(page(name)).status_code == 200, name


@pytest.mark.parametrize("name", ["started_us", "ended_us"])
@pytest.mark.parametrize("number", [HUGE, -HUGE, 2**62])
def test_no_time_in_a_history_breaks_a_page(name: str, number: int, browser: Client, stock: ShardApis) -> None:
    mine = add(stock)
    history = [{"started_us": 1, "ended_us": 2, name: number}]
    stock.client.hset(stock.keys("attempts"), raw(mine), b"\0\1\0" + json.dumps(history).encode())
    for address in (page("scheduled"), page("job_detail", mine)):
        assert browser.get(address).status_code == 200


def test_ten_thousand_queues_have_pages(browser: Client, stock: ShardApis) -> None:
    stock.client.zadd(stock.keys("queues"), {f"q{number}": 1 for number in range(10_000)})
    for name in ("failed", "running"):
        assert browser.get(page(name)).status_code == 200


@pytest.mark.parametrize("noun", ["schedule", "ready", "leases", "dead_letters"])
@pytest.mark.parametrize("member", [b"", b"x", b"<script>", b"\xff" * 14, b"z" * 200])
@pytest.mark.parametrize("score", ["inf", "-inf", "1.5", "9007199254740993"])
def test_no_row_breaks_a_page(noun: str, member: bytes, score: str, browser: Client, stock: ShardApis) -> None:
    keys = stock.keys
    stock.client.zadd(keys("queues"), {"default": 1})
    by_queue = {"schedule": keys.scheduled, "ready": keys.ready}.get(noun)
    stock.client.zadd(by_queue("default") if by_queue else keys(noun), {member: score})
    found = {"schedule": "scheduled", "leases": "running", "dead_letters": "failed"}.get(noun)
    address = page(found) if found else page("queue_detail", "default")
    answer = browser.get(address)
    assert answer.status_code == 200
    assert b"<script>" not in answer.content
    assert browser.get(f"{address}?q=x").status_code == 200
    assert browser.get(page("overview")).status_code == 200
    for link in re.findall(r'href="([^"]*/job/[^"]*)"', answer.content.decode()):
        assert browser.get(absolute(answer, link)).status_code in (200, 404)


def test_a_call_that_scans_reads_half_a_megabyte_of_errors_at_most(stock: ShardApis) -> None:
    error = ("x" * 79 + "\n") * 120
    attempts = NO_ATTEMPTS
    for _ in range(HISTORY):
        attempts = attempts.add(worker="w", started_us=1, ended_us=2, ending="failed", error=error)
    record = attempts.pack()
    most = 2 * 1024 * 1024 // len(record)
    for number in range(most):
        stock.client.hset(stock.keys("attempts"), raw(add(stock, number)), record)
    calls = stock.inspection.read_page(State.SCHEDULED, queues=["default"], match=lambda _: False)
    [call] = next(calls)
    assert sum(len(part) for part in stock.shard.read_all([call])[0] if isinstance(part, bytes)) < 600_000
    calls.close()


# Addresses and settings.


@pytest.mark.parametrize("queue", ["a?b", "a#b", "a%2Fb", "%", "a&b=c", "//evil.example", "..", "a\r\nX: y", "\u202e"])
def test_the_zone_is_chosen_on_the_page_of_any_queue(queue: str, browser: Client, stock: ShardApis) -> None:
    add(stock, queue=queue, delay=None)
    address = page("queue_detail", queue)
    assert browser.get(address).status_code == 200
    back = browser.get(f"{address}?zone=utc").headers["Location"]
    assert unquote(back) == unquote(address)
    assert browser.get(back).status_code == 200


@pytest.mark.parametrize("language", ["en", "de"])
def test_grouped_numbers_stay_out_of_forms(language: str, browser: Client, stock: ShardApis, settings: Any) -> None:
    settings.USE_THOUSAND_SEPARATOR, settings.LANGUAGE_CODE = True, language
    add(stock, "x")
    now_us = time_ns() // 1_000
    shown = page("scheduled", **{"from": now_us, "to": now_us + 2 * HOUR, "n": 250, "q": "x"})
    for form in forms(browser.get(shown)):
        for name, value in form.fields:
            assert not re.fullmatch(r"[0-9]{1,3}([.,\s][0-9]{3})+", value), name


# Several shards, many queues.


def test_slots_are_counted_once_per_process(browser: Client, shards: list[ShardApis]) -> None:
    for number, apis in enumerate(shards):
        tell(apis, code=bytes([number]) * 8, name="web1:4411", slots=8)
    assert "of 8 slots" in text(browser.get(page("overview")))


def test_a_worker_of_many_queues_serves_all_of_them(browser: Client, stock: ShardApis) -> None:
    names = tuple(f"q{number:03}" for number in range(60))
    add(stock, queue=names[-1], delay=None)
    tell(stock, **claims_status([], queues=names))
    assert "but no worker takes them" not in text(browser.get(page("overview")))


def test_a_queue_paused_on_one_shard_is_not_shown_as_running(browser: Client, shards: list[ShardApis]) -> None:
    for apis in shards:
        add(apis, delay=None)
    shards[0].operations.pause("default", by="ann")
    seen = combined([shards[0].store.dashboard(number).snapshot() for number in range(3)])
    assert seen.queues["default"].paused is not None


def test_a_pause_that_redis_interrupts_is_recorded(
    browser: Client, shards: list[ShardApis], monkeypatch: pytest.MonkeyPatch
) -> None:
    pause: Callable[..., bool] = WorkerControl.pause

    def half(self: Any, queue: str, **options: Any) -> bool:
        if self._shard.index:
            raise StoreUnavailable("away")
        return pause(self, queue, **options)

    add(shards[0], delay=None)
    form = form_to(browser.get(page("queues")), "/action/", button="pause")
    monkeypatch.setattr(WorkerControl, "pause", half)
    assert form.post(browser, action="pause").status_code == 503
    assert LogEntry.objects.filter(change_message__contains="Paused queue default").count() == 1
