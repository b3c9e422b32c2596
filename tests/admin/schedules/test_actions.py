"""What people do to one recurring schedule: confirmed, recorded, only what is possible, and only by who may."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.test import Client

from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.ids import from_text
from django_delayq.job.job import State
from django_delayq.store.operations.waiting_jobs import WaitingJobs
from django_delayq.store.schedules.stored_schedule import DECLARED
from tests.admin.conftest import page
from tests.admin.forms import MAY_NOT_MANAGE, form_to
from tests.admin.jobs import NOOP, POSTED
from tests.admin.page_content import text
from tests.admin.schedule_records import add_schedule, change_record, plant, rewrite, schedules_of, stored
from tests.admin.steps import confirm, result
from tests.shard_apis import HOUR, ShardApis

NAME = f"morning of {NOOP}"


def press(browser: Client, text_id: str, action: str) -> Any:
    """Press a button on the page of a schedule; return the confirm page."""
    response = browser.get(page("recurring_schedule", text_id))
    return form_to(response, "/action/", button=action).post(browser, action=action)


def waiting_jobs(apis: ShardApis) -> list[Any]:
    """Return the jobs that wait."""
    return [row.job for state in (State.SCHEDULED, State.READY) for row in _rows(apis, state)]


def _rows(apis: ShardApis, state: State) -> Any:
    lookup = apis.store.lookup(apis.shard.index)
    return lookup.page(state, queues=["default", "mail"], count=100).rows


def test_pause_and_resume(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock)
    plant(stock)
    assert len(waiting_jobs(stock)) == 1
    address = page("recurring_schedule", text_id)
    asked = press(browser, text_id, "pause_schedule")
    assert f"Pause the schedule {NAME}?" in text(asked)
    assert f'href="{address}" autofocus' in asked.content.decode()
    assert not stored(stock, text_id).is_paused
    done = confirm(browser, asked)
    assert done.url == address
    assert f"Paused the schedule {NAME}." in result(browser, done)
    assert stored(stock, text_id).is_paused
    assert waiting_jobs(stock) == []
    assert f"The schedule {NAME} was paused already." in result(browser, confirm(browser, asked))
    resume = form_to(browser.get(address), "/action/", button="resume_schedule")
    assert f"Resumed the schedule {NAME}." in result(browser, resume.post(browser, action="resume_schedule"))
    assert not stored(stock, text_id).is_paused
    assert f"The schedule {NAME} was not paused." in result(browser, resume.post(browser, action="resume_schedule"))
    entries = LogEntry.objects.order_by("pk")
    assert [(each.object_id, each.change_message, each.action_flag) for each in entries] == [
        (text_id, f"Paused the schedule {NAME}", CHANGE),
        (text_id, f"Resumed the schedule {NAME}", CHANGE),
    ]
    assert f"superuser Paused the schedule {NAME}" in text(browser.get(address))


@pytest.mark.parametrize("query", [{}, {"prefix": "morn", "n": 25}])
def test_an_action_of_the_list_leads_back_to_it(query: dict[str, Any], browser: Client, stock: ShardApis) -> None:
    add_schedule(stock)
    address = page("recurring", **query)
    asked = form_to(browser.get(address), "/action/", button="pause_schedule").post(browser, action="pause_schedule")
    done = confirm(browser, asked)
    assert done.url == address
    assert form_to(browser.get(done.url), "/action/", button="resume_schedule").offers("resume_schedule")


def test_delete(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock)
    plant(stock)
    asked = press(browser, text_id, "delete_schedule")
    assert f"Delete the schedule {NAME}?" in text(asked)
    assert "This cannot be undone." in text(asked)
    done = confirm(browser, asked)
    assert done.url == page("recurring")
    assert f"Deleted the schedule {NAME}." in result(browser, done)
    assert stored(stock, text_id) is None
    assert waiting_jobs(stock) == []
    assert "It is not there any more. Nothing was done." in result(browser, confirm(browser, asked))
    [entry] = LogEntry.objects.all()
    assert (entry.object_id, entry.action_flag) == (text_id, DELETION)
    gone = browser.get(page("recurring_schedule", text_id))
    assert f"superuser Deleted the schedule {NAME}" in text(gone)


@pytest.mark.parametrize("paused", [False, True])
def test_run_now(paused: bool, browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock, args=[42], queue="mail")
    if paused:
        schedules_of(stock).pause_schedule(stored(stock, text_id).id)
    done = confirm(browser, press(browser, text_id, "run_schedule"))
    [job] = waiting_jobs(stock)
    assert f"Enqueued a job of the schedule {NAME}: job {job.id}." in result(browser, done)
    assert (job.args, job.queue, job.occurrence) == ([42], "mail", ("morning", None))
    [claim] = stock.worker().take(1, "mail").claims
    assert not claim.is_dropped
    assert stored(stock, text_id).running == from_text(job.id)[0]
    [entry] = LogEntry.objects.all()
    assert entry.change_message == f"Enqueued a job of the schedule {NAME}: job {job.id}"
    # Its overlap applies to another one.
    confirm(browser, press(browser, text_id, "run_schedule"))
    [claim] = stock.worker().take(1, "mail").claims
    assert claim.is_dropped


def test_a_job_that_is_refused_is_reported(browser: Client, stock: ShardApis, settings: Any) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "QUEUES": {"mail": {"max_waiting": 1}, "default": {}}}
    text_id = add_schedule(stock, queue="mail", job={"tenant": "acme"})
    confirm(browser, press(browser, text_id, "run_schedule"))
    response = confirm(browser, press(browser, text_id, "run_schedule"))
    assert "Nothing was done." in result(browser, response)
    assert len(waiting_jobs(stock)) == 1
    assert LogEntry.objects.count() == 1


@pytest.mark.parametrize("action", ["edit_schedule", "delete_schedule"])
def test_what_is_declared_in_code_is_neither_edited_nor_deleted(action: str, browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock)
    asked = press(browser, text_id, action)
    change_record(stock, stored(stock, text_id).id, flags=DECLARED)
    refused = f"The schedule {NAME} is declared in code: change it there, or pause it."
    assert refused in result(browser, browser.post(page("action"), {"action": action, "schedule": text_id}))
    assert refused in result(browser, confirm(browser, asked, every="10m"))
    assert stored(stock, text_id).definition.schedule.rule.text == "every 3600 from 0"
    assert LogEntry.objects.count() == 0


@pytest.mark.parametrize("action", ["edit_schedule", "run_schedule"])
def test_what_cannot_be_read_is_neither_edited_nor_run(action: str, browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock)
    asked = press(browser, text_id, action)
    rewrite(stock, text_id, b"every 3600", b"daily 3600")
    assert f"The schedule {text_id} cannot be read." in result(browser, confirm(browser, asked))
    assert waiting_jobs(stock) == []
    done = confirm(browser, press(browser, text_id, "delete_schedule"))
    assert f"Deleted the schedule {text_id}." in result(browser, done)


@pytest.mark.parametrize(
    "action", ["run_schedule", "pause_schedule", "resume_schedule", "edit_schedule", "delete_schedule"]
)
@pytest.mark.parametrize("text_id", ["0123456789abcdef-0", "0123456789abcdef-9", "x", "", POSTED])
def test_a_form_that_names_no_schedule_does_nothing(
    text_id: str, action: str, browser: Client, stock: ShardApis
) -> None:
    response = browser.post(page("action"), {"action": action, "schedule": text_id, "confirmed": "yes"})
    assert response.url == page("recurring")
    assert "It is not there any more. Nothing was done." in result(browser, response)
    assert LogEntry.objects.count() == 0


def test_one_that_is_deleted_between_the_confirmation_and_the_change(
    browser: Client, stock: ShardApis, monkeypatch: pytest.MonkeyPatch
) -> None:
    text_id = add_schedule(stock)
    asked = press(browser, text_id, "pause_schedule")
    schedules, found = schedules_of(stock), stored(stock, text_id)
    schedules.delete_schedules([found.id])
    monkeypatch.setattr("django_delayq.store.store.Store.find_schedule", lambda store, text_id: found)
    assert "It is not there any more. Nothing was done." in result(browser, confirm(browser, asked))


@pytest.mark.parametrize("action", ["pause_schedule", "delete_schedule"])
def test_a_change_that_redis_interrupts_is_recorded(
    action: str, browser: Client, stock: ShardApis, monkeypatch: pytest.MonkeyPatch
) -> None:
    text_id = add_schedule(stock)
    plant(stock)
    asked = press(browser, text_id, action)

    def broken(*_: Any) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(WaitingJobs, "cancel", broken)
    assert confirm(browser, asked).status_code == 503
    [entry] = LogEntry.objects.all()
    assert entry.object_id == text_id
    # The job that waits is of an earlier version: it does not begin.
    stock.clock.advance(HOUR)
    stock.promote()
    assert all(claim.is_dropped for claim in stock.worker().take(1).claims)


@MAY_NOT_MANAGE
def test_who_may_not_manage_does_nothing(
    kind: str, read_only: bool, visitor: Callable[..., Client], stock: ShardApis, settings: Any
) -> None:
    text_id = add_schedule(stock)
    settings.DELAYQ = {**settings.DELAYQ, "ADMIN": {"READ_ONLY": read_only}}
    for action in ("pause_schedule", "run_schedule", "edit_schedule", "delete_schedule"):
        fields = {"action": action, "schedule": text_id, "confirmed": "yes"}
        assert visitor(kind).post(page("action"), fields).status_code == 403
    assert not stored(stock, text_id).is_paused
    assert waiting_jobs(stock) == []


def test_a_manager_may(visitor: Callable[..., Client], stock: ShardApis) -> None:
    text_id, browser = add_schedule(stock), visitor("manager")
    confirm(browser, press(browser, text_id, "pause_schedule"))
    assert stored(stock, text_id).is_paused
    [entry] = LogEntry.objects.all()
    assert entry.user.username == "manager"


def test_the_other_site_has_its_own_addresses(browser: Client, stock: ShardApis) -> None:
    text_id = add_schedule(stock)
    address = page("recurring_schedule", text_id, site="second")
    form = form_to(browser.get(address), "/action/", button="pause_schedule")
    done = confirm(browser, form.post(browser, action="pause_schedule"))
    assert done.url == address


def test_a_schedule_of_another_shard_is_changed_there(browser: Client, shards: list[ShardApis]) -> None:
    ids = [add_schedule(apis) for apis in shards]
    confirm(browser, press(browser, ids[2], "pause_schedule"))
    assert [stored(apis, text_id).is_paused for apis, text_id in zip(shards, ids, strict=True)] == [False, False, True]
    confirm(browser, press(browser, ids[1], "run_schedule"))
    assert [len(waiting_jobs(apis)) for apis in shards] == [0, 1, 0]


def test_a_form_needs_its_token(account: Any, stock: ShardApis) -> None:
    text_id, browser = add_schedule(stock), Client(enforce_csrf_checks=True)
    browser.force_login(account("superuser"))
    fields = {"action": "pause_schedule", "schedule": text_id, "confirmed": "yes"}
    assert browser.post(page("action"), fields).status_code == 403
    assert not stored(stock, text_id).is_paused
