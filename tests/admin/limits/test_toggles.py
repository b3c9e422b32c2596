"""Pausing and resuming a task: at once, with an undo, recorded, in every shard, and back to where the person was."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.test import Client

from django_delayq import delayed_task
from django_delayq.admin.lists.filters import url_name
from django_delayq.display.text import printable
from django_delayq.exceptions import StoreUnavailable
from django_delayq.store.operations.limits import LimitOperations
from tests.admin.conftest import page
from tests.admin.content.test_raw_characters import look
from tests.admin.forms import MAY_NOT_MANAGE, Form, forms
from tests.admin.jobs import HOSTILE, NOOP
from tests.admin.limits.conftest import work
from tests.admin.page_content import text
from tests.admin.steps import confirm, result, undo
from tests.shard_apis import ShardApis

PAUSE = {"action": "pause_task", "task": NOOP, "tab": "tasks"}


def task_form(response: Any, name: str = NOOP) -> Form:
    """Return the form of a task on the page."""
    found = [form for form in forms(response) if ("task", url_name(name)) in form.fields and form.method == "post"]
    (form,) = [form for form in found if not form.is_undo]
    return form


def paused_by(apis: ShardApis, name: str = NOOP, *, shard: int = 0) -> str:
    """Return who paused a task in a shard; empty if nobody did."""
    found = apis.store.limits(shard).paused_tasks().get(name)
    return found.by if found else ""


def test_a_task_is_paused_and_resumed(browser: Client, stock: ShardApis) -> None:
    stock.add()
    form = task_form(browser.get(page("tasks")))
    paused = form.post(browser, action="pause_task")
    assert paused.url == page("tasks")
    said = result(browser, paused)
    assert f"Paused task {NOOP}." in said
    assert "paused by superuser" in said
    assert paused_by(stock) == "superuser"
    assert work(stock) == 0
    assert f"Task {NOOP} was paused already." in result(browser, form.post(browser, action="pause_task"))
    form = task_form(browser.get(page("limits")))
    resumed = form.post(browser, action="resume_task")
    assert resumed.url == page("limits")
    assert f"Resumed task {NOOP}." in result(browser, resumed)
    assert paused_by(stock) == ""
    assert f"Task {NOOP} was not paused." in result(browser, form.post(browser, action="resume_task"))
    assert [(entry.change_message, entry.object_id) for entry in LogEntry.objects.order_by("pk")] == [
        (f"Paused task {NOOP}", NOOP),
        (f"Resumed task {NOOP}", NOOP),
    ]


def test_a_pause_is_undone_with_one_press(browser: Client, stock: ShardApis) -> None:
    paused = task_form(browser.get(page("tasks"))).post(browser, action="pause_task")
    resumed = undo(browser, browser.get(paused.url))
    assert paused_by(stock) == ""
    # An undo can be undone, too.
    assert f"Paused task {NOOP}." in result(browser, undo(browser, browser.get(resumed.url)))
    assert paused_by(stock) == "superuser"


def test_a_get_shows_what_a_pause_does(browser: Client, stock: ShardApis) -> None:
    asked = browser.get(page("action", action="pause_task", task=NOOP, tab="limits"))
    assert f"Pause task {NOOP}?" in text(asked)
    assert f'href="{page("limits")}" autofocus' in asked.content.decode()
    assert paused_by(stock) == ""
    assert confirm(browser, asked).url == page("limits")
    assert paused_by(stock) == "superuser"


@pytest.mark.parametrize("name", [HOSTILE, "\x00", "\ud800", "..", "~61", "é" * 100, "%s%(n)s"])
def test_a_task_of_any_name_is_resumed(name: str, browser: Client, stock: ShardApis) -> None:
    stock.operations.limits.pause_task(name, by="ann")
    for address in (page("tasks"), page("limits")):
        assert "<script>alert(1)" not in look(browser.get(address))
        task_form(browser.get(address), name)
    shown = browser.get(page("action", action="resume_task", task=url_name(name)))
    assert "<script>alert(1)" not in look(shown)
    assert paused_by(stock, name) == "ann"
    done = task_form(browser.get(page("limits")), name).post(browser, action="resume_task")
    assert "<script>alert(1)" not in look(browser.get(done.url))
    assert paused_by(stock, name) == ""
    [entry] = LogEntry.objects.all()
    assert entry.change_message == f"Resumed task {printable(name)}"


def test_the_aliases_of_a_task_are_paused_with_it(
    browser: Client, stock: ShardApis, registered: Callable[..., None]
) -> None:
    registered()
    task = delayed_task(name="shop.tasks.bill", aliases=["old.bill", "older.bill"])(work)
    names = (task.name, *task.aliases)
    task_form(browser.get(page("tasks")), task.name).post(browser, action="pause_task")
    assert [paused_by(stock, name) for name in names] == ["superuser"] * 3
    shown = browser.get(page("limits"))
    assert "old.bill" not in look(shown)
    # A worker of an earlier version pauses its jobs under the old name.
    stock.operations.limits.resume_task(task.name)
    shown = browser.get(page("tasks"))
    assert "old.bill" not in look(shown)
    task_form(browser.get(page("limits")), task.name).post(browser, action="resume_task")
    assert [paused_by(stock, name) for name in names] == [""] * 3


def test_a_task_is_paused_and_resumed_in_every_shard(browser: Client, shards: list[ShardApis]) -> None:
    for action, by in (("pause_task", "superuser"), ("resume_task", "")):
        task_form(browser.get(page("tasks"))).post(browser, action=action)
        assert [paused_by(shards[0], shard=shard) for shard in range(3)] == [by] * 3
    assert LogEntry.objects.count() == 2


def test_a_pause_that_redis_interrupts_is_recorded(
    browser: Client, shards: list[ShardApis], monkeypatch: pytest.MonkeyPatch
) -> None:
    pause: Callable[..., bool] = LimitOperations.pause_task

    def half(self: Any, task: str, *, by: str) -> bool:
        if self._shard.index:
            raise StoreUnavailable("away")
        return pause(self, task, by=by)

    monkeypatch.setattr(LimitOperations, "pause_task", half)
    assert browser.post(page("action"), PAUSE).status_code == 503
    monkeypatch.undo()
    [entry] = LogEntry.objects.all()
    assert entry.change_message == f"Paused task {NOOP}"
    assert task_form(browser.get(page("limits"))).offers("resume_task")


@pytest.mark.parametrize("fields", [{"task": ""}, {"task": "~zz"}, {"task": "x" * 3_001}])
def test_a_form_that_names_no_task_does_nothing(fields: dict[str, str], browser: Client, stock: ShardApis) -> None:
    response = browser.post(page("action"), {**PAUSE, **fields})
    assert "It is not there any more. Nothing was done." in result(browser, response)
    assert LogEntry.objects.count() == 0
    assert not stock.store.limits(0).paused_tasks()


def test_a_form_without_a_page_leads_to_the_tasks(browser: Client, stock: ShardApis) -> None:
    response = browser.post(page("action"), {"action": "pause_task", "task": NOOP, "tab": "<b>"})
    assert response.url == page("tasks")


@MAY_NOT_MANAGE
def test_who_may_not_manage_cannot_pause(
    kind: str, read_only: bool, visitor: Callable[..., Client], stock: ShardApis, settings: Any
) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "ADMIN": {"READ_ONLY": read_only}}
    assert visitor(kind).post(page("action"), PAUSE).status_code == 403
    assert paused_by(stock) == ""
