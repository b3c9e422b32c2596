"""Pausing and resuming a tenant: at once, with an undo, recorded, in every shard, and back to the page of tenants."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_delayq.admin.lists.filters import url_name
from django_delayq.display.text import printable
from django_delayq.exceptions import StoreUnavailable
from django_delayq.store.operations.worker_control import WorkerControl
from tests.admin.conftest import page
from tests.admin.content.test_raw_characters import look
from tests.admin.forms import MAY_NOT_MANAGE, Form, forms
from tests.admin.jobs import HOSTILE
from tests.admin.steps import result, undo
from tests.shard_apis import ShardApis

#: Names that break pages which do not escape them, names in the form of others, and names as long as they may be.
NAMES = (HOSTILE, "\x00", "\ud800", "a/b", "..", "~61", " ", "x" * 200, "é" * 100, "%s%(n)s", "No tenant", "\u202e")
PAUSE = {"action": "pause_tenant", "queue": "mail", "tenant": "acme"}


def tenant_form(response: Any, name: str) -> Form:
    """Return the form of a tenant on the page."""
    named = ("tenant", url_name(name))
    (form,) = [form for form in forms(response) if named in form.fields and not form.is_undo]
    return form


def paused_by(apis: ShardApis, name: str = "acme", *, queue: str = "mail", shard: int = 0) -> str:
    """Return who paused a tenant in a shard; empty if nobody did."""
    paused = apis.store.tenants(shard).find(queue, name).paused
    return paused.by if paused else ""


def test_a_tenant_is_paused_and_resumed(browser: Client, stock: ShardApis) -> None:
    stock.add(queue="mail", tenant="acme")
    stock.add(queue="mail", tenant="other")
    address = page("queue_tenants", "mail")
    form = tenant_form(browser.get(address), "acme")
    paused = form.post(browser, action="pause_tenant")
    assert paused.url == address
    said = result(browser, paused)
    assert "Paused tenant acme of queue mail." in said
    assert "paused by superuser" in said
    assert (paused_by(stock), paused_by(stock, "other")) == ("superuser", "")
    assert len(stock.worker().take(8, "mail").claims) == 1
    assert "Tenant acme of queue mail was paused already." in result(browser, form.post(browser, action="pause_tenant"))
    form = tenant_form(browser.get(address), "acme")
    assert "Resumed tenant acme of queue mail." in result(browser, form.post(browser, action="resume_tenant"))
    assert paused_by(stock) == ""
    assert "Tenant acme of queue mail was not paused." in result(browser, form.post(browser, action="resume_tenant"))
    assert [(entry.change_message, entry.object_id) for entry in LogEntry.objects.order_by("pk")] == [
        ("Paused tenant acme of queue mail", "acme of queue mail"),
        ("Resumed tenant acme of queue mail", "acme of queue mail"),
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_tenant_of_any_name_is_listed_and_paused(name: str, browser: Client, stock: ShardApis) -> None:
    stock.add(queue="mail", tenant=name)
    content = look(browser.get(page("queue_tenants", "mail")))
    assert "<script>alert(1)" not in content
    asked = browser.get(page("action", action="pause_tenant", queue="mail", tenant=url_name(name)))
    assert "<script>alert(1)" not in look(asked)
    back = tenant_form(browser.get(page("queue_tenants", "mail")), name).post(browser, action="pause_tenant")
    assert paused_by(stock, name) == "superuser"
    said = browser.get(back.url)
    assert "<script>alert(1)" not in look(said)
    undo(browser, said)
    assert paused_by(stock, name) == ""
    assert [entry.change_message for entry in LogEntry.objects.order_by("pk")] == [
        f"Paused tenant {printable(name)} of queue mail",
        f"Resumed tenant {printable(name)} of queue mail",
    ]


def test_a_tenant_is_paused_and_resumed_in_every_shard(browser: Client, shards: list[ShardApis]) -> None:
    shards[1].add(queue="mail", tenant="acme")
    for action, by in (("pause_tenant", "superuser"), ("resume_tenant", "")):
        form = tenant_form(browser.get(page("queue_tenants", "mail")), "acme")
        form.post(browser, action=action)
        assert [paused_by(shards[0], shard=shard) for shard in range(3)] == [by] * 3
    assert LogEntry.objects.count() == 2


def test_a_pause_that_redis_interrupts_is_recorded(
    browser: Client, shards: list[ShardApis], monkeypatch: pytest.MonkeyPatch
) -> None:
    pause: Callable[..., bool] = WorkerControl.pause_tenant

    def half(self: Any, *names: str, by: str) -> bool:
        if self._shard.index:
            raise StoreUnavailable("away")
        return pause(self, *names, by=by)

    monkeypatch.setattr(WorkerControl, "pause_tenant", half)
    assert browser.post(page("action"), PAUSE).status_code == 503
    [entry] = LogEntry.objects.all()
    assert entry.change_message == "Paused tenant acme of queue mail"


def test_the_tenants_of_other_queues_stay_as_they_are(browser: Client, stock: ShardApis, delayq_settings: Any) -> None:
    queues = {"mail": {"fair": True}, "more": {"fair": True}}
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "QUEUES": queues}
    browser.post(page("action"), PAUSE)
    assert (paused_by(stock), paused_by(stock, queue="more")) == ("superuser", "")


@pytest.mark.parametrize("action", ["pause_tenant", "resume_tenant"])
@pytest.mark.parametrize("queue", ["small", "default", "none", HOSTILE])
def test_a_tenant_of_a_queue_that_is_not_fair_is_refused(
    queue: str, action: str, browser: Client, stock: ShardApis
) -> None:
    stock.add(queue="small", tenant="acme")
    fields = {"action": action, "queue": url_name(queue), "tenant": "acme"}
    response = browser.post(page("action"), fields)
    assert "is not fair, so none of its tenants can be paused. Nothing was done." in result(browser, response)
    assert paused_by(stock, queue=queue) == ""
    assert LogEntry.objects.count() == 0


@pytest.mark.parametrize(
    "fields",
    [{"tenant": ""}, {"tenant": "~zz"}, {"tenant": "x" * 3_001}, {"queue": "~zz"}, {"queue": ""}],
)
def test_a_form_that_names_nobody_does_nothing(fields: dict[str, str], browser: Client, stock: ShardApis) -> None:
    stock.add(queue="mail")
    response = browser.post(page("action"), {**PAUSE, **fields})
    assert "It is not there any more. Nothing was done." in result(browser, response)
    assert LogEntry.objects.count() == 0
    assert len(stock.worker().take(8, "mail").claims) == 1


@pytest.mark.parametrize("action", ["pause_tenant", "resume_tenant"])
@pytest.mark.parametrize("missing", ["queue", "tenant"])
def test_a_form_without_a_name_does_nothing(missing: str, action: str, browser: Client, stock: ShardApis) -> None:
    fields = {name: value for name, value in PAUSE.items() if name != missing}
    response = browser.post(page("action"), {**fields, "action": action})
    assert "It is not there any more. Nothing was done." in result(browser, response)


@MAY_NOT_MANAGE
def test_who_may_not_manage_cannot_pause(
    kind: str, read_only: bool, visitor: Callable[..., Client], stock: ShardApis, settings: Any
) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "ADMIN": {"READ_ONLY": read_only}}
    assert visitor(kind).post(page("action"), {**PAUSE}).status_code == 403
    assert paused_by(stock) == ""


def test_go_back_leads_to_the_page_of_the_tenants(browser: Client, stock: ShardApis) -> None:
    response = browser.get(page("action", **PAUSE))
    assert f'href="{page("queue_tenants", "mail")}" autofocus' in response.content.decode()
