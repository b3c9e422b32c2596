"""Cancelling the waiting jobs of a tenant: counted, confirmed, recorded, in steps, and no more than were confirmed."""

import re
from collections.abc import Callable
from time import time_ns
from typing import Any

import pytest
from django.contrib.admin.models import DELETION, LogEntry
from django.core import signing
from django.test import Client

from django_delayq.admin.lists.filters import url_name
from django_delayq.display.text import printable
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.ids import to_text
from django_delayq.store.operations.waiting_jobs import WaitingJobs
from tests.admin.conftest import page
from tests.admin.content.test_raw_characters import look
from tests.admin.forms import MAY_NOT_MANAGE, form_to
from tests.admin.page_content import text
from tests.admin.steps import confirm, continue_to_end, request_action, result
from tests.admin.tenants.test_toggles import NAMES, tenant_form
from tests.shard_apis import HOUR, ShardApis

CANCEL = {"action": "cancel_tenant", "queue": "mail", "tenant": "acme"}


def waiting(apis: ShardApis, name: str = "acme", *, queue: str = "mail", shard: int = 0) -> int:
    """Return how many jobs of a tenant wait in a shard."""
    return apis.store.tenants(shard).find(queue, name).waiting


def add_jobs(apis: ShardApis, number: int, *, queue: str = "mail", **options: object) -> list[bytes]:
    """Add jobs of the tenant."""
    return [apis.add(queue=queue, tenant="acme", **options) for _ in range(number)]


def test_the_waiting_jobs_of_a_tenant_are_cancelled_and_nothing_else(browser: Client, stock: ShardApis) -> None:
    [running] = add_jobs(stock, 1)
    assert len(stock.worker().take(1, "mail").claims) == 1
    raw_ids = [*add_jobs(stock, 2), *add_jobs(stock, 1, delay=HOUR)]
    stock.add(queue="mail", tenant="other")
    stock.add(queue="mail")
    add_jobs(stock, 1, queue="small")
    address = page("queue_tenants", "mail")
    response = tenant_form(browser.get(address), "acme").post(browser, action="cancel_tenant")
    said = text(response)
    assert "Cancel 3 waiting jobs?" in said
    assert "Queue mail, tenant acme" in said
    assert "This cannot be undone." in said and "Export" not in said
    assert len(re.findall("<li>", response.content.decode().partition("delayq-mono")[2])) == 3
    assert waiting(stock) == 3
    done = confirm(browser, response)
    assert done.url == address
    assert "3 jobs cancelled." in result(browser, done)
    assert (waiting(stock), waiting(stock, "other"), waiting(stock, queue="small")) == (0, 1, 1)
    assert stock.inspection.counts().claimed == 1
    entries = LogEntry.objects.order_by("object_id")
    assert [entry.object_id for entry in entries] == sorted(to_text(each, 0) for each in raw_ids)
    assert {entry.action_flag for entry in entries} == {DELETION}
    note = "Cancelled with all waiting jobs of its tenant, queue mail, tenant acme"
    assert {entry.change_message for entry in entries} == {note}
    assert "not done twice" in result(browser, confirm(browser, response))


@pytest.mark.parametrize("queue", ["small", "default"])
def test_a_tenant_of_a_queue_that_is_not_fair_is_cancelled(queue: str, browser: Client, stock: ShardApis) -> None:
    add_jobs(stock, 2, queue=queue)
    form = tenant_form(browser.get(page("queue_tenants", queue)), "acme")
    assert not form.offers("pause_tenant")
    assert "2 jobs cancelled." in result(browser, confirm(browser, form.post(browser, action="cancel_tenant")))
    assert waiting(stock, queue=queue) == 0


@pytest.mark.parametrize("name", NAMES)
def test_the_jobs_of_a_tenant_of_any_name_are_cancelled(name: str, browser: Client, stock: ShardApis) -> None:
    stock.add(queue="mail", tenant=name)
    form = tenant_form(browser.get(page("queue_tenants", "mail")), name)
    response = form.post(browser, action="cancel_tenant")
    assert "<script>alert(1)" not in look(response)
    assert "1 job cancelled." in result(browser, confirm(browser, response))
    assert waiting(stock, name) == 0
    [entry] = LogEntry.objects.all()
    assert entry.change_message.endswith(f"queue mail, tenant {printable(name)}")


def test_jobs_of_all_shards_are_cancelled(browser: Client, shards: list[ShardApis]) -> None:
    for number, apis in enumerate(shards):
        add_jobs(apis, number + 1)
    response = browser.post(page("action"), CANCEL, follow=True)
    assert "Cancel 6 waiting jobs?" in text(response)
    assert "6 jobs cancelled." in result(browser, confirm(browser, response))
    assert [waiting(shards[0], shard=shard) for shard in range(3)] == [0, 0, 0]


def test_many_jobs_are_cancelled_in_steps(
    browser: Client, shards: list[ShardApis], bounds: Callable[..., None]
) -> None:
    bounds(action_seconds=0, changed_jobs=2, logged_jobs=5, untyped_jobs=5)
    for apis in shards:
        add_jobs(apis, 2)
        add_jobs(apis, 1, delay=HOUR)
    response = browser.post(page("action"), CANCEL, follow=True)
    refused = confirm(browser, response, typed_confirmation="8")
    assert "The number does not match. Nothing was done." in text(refused)
    response = confirm(browser, refused, typed_confirmation="9")
    assert "1 job cancelled. 1 of 9 done." in text(response)
    assert "data-continue" in response.content.decode()
    assert "delayq-unfinished" in browser.get(page("queue_tenants", "mail")).content.decode()
    assert "9 jobs cancelled." in result(browser, continue_to_end(browser, response))
    [entry] = LogEntry.objects.all()
    assert (entry.object_id, entry.action_flag) == (None, DELETION)
    assert entry.change_message == "9 jobs cancelled, queue mail, tenant acme"


def test_a_cancellation_is_stopped(browser: Client, stock: ShardApis, bounds: Callable[..., None]) -> None:
    bounds(action_seconds=0, changed_jobs=2)
    add_jobs(stock, 5)
    response = confirm(browser, browser.post(page("action"), CANCEL, follow=True))
    stopped = form_to(response, "/action/", button="yes").post(browser, stop="yes")
    assert stopped.url == page("queue_tenants", "mail")
    assert "Stopped. 2 jobs cancelled" in result(browser, stopped)
    assert "not done twice" in result(browser, form_to(response, "/action/").post(browser))
    assert waiting(stock) == 3


def test_jobs_that_came_after_the_count_are_left_alone(browser: Client, stock: ShardApis) -> None:
    add_jobs(stock, 2)
    response = browser.post(page("action"), CANCEL, follow=True)
    later = (time_ns() // 1_000_000 + 60_000 << 48).to_bytes(12)
    add_jobs(stock, 1, raw_id=later, delay=1)
    said = result(browser, confirm(browser, response))
    assert "2 jobs cancelled. More jobs match now. They came after the count and were left alone." in said
    assert stock.inspection.find(later).waits


def test_no_more_jobs_are_cancelled_than_were_counted(browser: Client, stock: ShardApis) -> None:
    # The clocks of enqueuers differ, so later jobs may look older.
    add_jobs(stock, 2)
    response = browser.post(page("action"), CANCEL, follow=True)
    for number in (1, 2):
        add_jobs(stock, 1, raw_id=(number << 48).to_bytes(12))
    assert "2 jobs cancelled. More jobs match now" in result(browser, confirm(browser, response))
    assert waiting(stock) == 2


def test_a_job_that_runs_meanwhile_is_skipped(browser: Client, stock: ShardApis, bounds: Callable[..., None]) -> None:
    # A worker of an earlier release removes no entry of the jobs that it claims.
    bounds(action_seconds=0, changed_jobs=1)
    add_jobs(stock, 3)
    response = browser.post(page("action"), CANCEL, follow=True)
    entries = stock.client.zrange(stock.keys("tenant_jobs"), 0, -1)
    assert len(stock.worker().take(1, "mail").claims) == 1
    stock.client.zadd(stock.keys("tenant_jobs"), dict.fromkeys(entries, 0))
    said = result(browser, continue_to_end(browser, confirm(browser, response)))
    assert "2 jobs cancelled. 1 was no longer waiting." in said


def test_a_cancellation_that_redis_interrupts_is_recorded(
    browser: Client, shards: list[ShardApis], monkeypatch: pytest.MonkeyPatch
) -> None:
    for apis in shards[:2]:
        add_jobs(apis, 2)
    cancel: Callable[..., object] = WaitingJobs.cancel

    def half(self: WaitingJobs, *args: object) -> object:
        if self._shard.index:
            raise StoreUnavailable("away")
        return cancel(self, *args)

    monkeypatch.setattr(WaitingJobs, "cancel", half)
    assert confirm(browser, browser.post(page("action"), CANCEL, follow=True)).status_code == 503
    assert LogEntry.objects.count() == 2
    monkeypatch.undo()
    form = form_to(browser.get(page("overview")), "/action/")
    assert "2 jobs cancelled" in result(browser, continue_to_end(browser, form.post(browser)))


def test_a_tenant_without_jobs_has_no_such_button(browser: Client, stock: ShardApis) -> None:
    stock.operations.workers.pause_tenant("mail", "acme", by="ann")
    assert not tenant_form(browser.get(page("queue_tenants", "mail")), "acme").offers("cancel_tenant")
    response = browser.post(page("action"), CANCEL)
    assert response.url == page("queue_tenants", "mail")
    assert "No such job is left. Nothing was done." in result(browser, response)


@pytest.mark.parametrize(
    "fields", [{"tenant": ""}, {"tenant": "~zz"}, {"queue": "~zz"}, {"queue": ""}, {"list": "ready", "tenant": ""}]
)
def test_a_form_that_names_nobody_cancels_nothing(fields: dict[str, str], browser: Client, stock: ShardApis) -> None:
    raw_ids = [stock.add(queue="mail"), *add_jobs(stock, 1)]
    row = f"{to_text(raw_ids[0], 0)}.1"
    form = {**CANCEL, "filter": "queue=mail", "seen_us": str(stock.clock.now_us), "row": row, **fields}
    assert "Nothing was selected, so nothing was done." in result(browser, browser.post(page("action"), form))
    assert LogEntry.objects.count() == 0
    assert {stock.inspection.find(each).waits for each in raw_ids} == {True}


@MAY_NOT_MANAGE
def test_who_may_not_manage_cannot_cancel(
    kind: str, read_only: bool, visitor: Callable[..., Client], stock: ShardApis, settings: Any, browser: Client
) -> None:
    add_jobs(stock, 1)
    form = form_to(browser.post(page("action"), CANCEL, follow=True), "/action/")
    settings.DELAYQ = {**settings.DELAYQ, "ADMIN": {"READ_ONLY": read_only}}
    client = visitor(kind)
    assert client.post(page("action"), CANCEL).status_code == 403
    assert client.post(page("action"), dict(form.fields)).status_code == 403
    assert waiting(stock) == 1


def test_who_may_manage_cancels(visitor: Callable[..., Client], stock: ShardApis) -> None:
    add_jobs(stock, 1)
    client = visitor("manager")
    assert "1 job cancelled." in result(client, confirm(client, client.post(page("action"), CANCEL, follow=True)))


def test_a_process_of_an_earlier_release_reads_the_forms_of_other_actions(browser: Client, stock: ShardApis) -> None:
    add_jobs(stock, 1)
    response = request_action(browser, page("queue_detail", "mail"), "cancel_all")
    [signed] = [value for name, value in form_to(response, "/action/").fields if name == "signed_request"]
    _account, fields = signing.loads(signed, salt="django_delayq.admin.action_request")
    assert "tenant" not in fields


def test_go_back_leads_to_the_page_of_the_tenants(browser: Client, stock: ShardApis) -> None:
    add_jobs(stock, 1)
    response = browser.post(page("action"), {**CANCEL, "tenant": url_name("acme")}, follow=True)
    assert f'href="{page("queue_tenants", "mail")}" autofocus' in response.content.decode()
