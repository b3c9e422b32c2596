"""Undo: the button of a message takes back what its own press did, and nothing that came after it."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.test import Client

from django_delayq.job.attempts import AttemptHistory
from django_delayq.store.promotion import Reclaim
from django_delayq.store.queries.snapshot import Pause
from tests.admin.actions.test_one_press import press
from tests.admin.conftest import page
from tests.admin.forms import form_to
from tests.admin.jobs import HOUR, add, claim, due_us, raw, state
from tests.admin.reports import tell
from tests.admin.steps import confirm, result, undo
from tests.shard_apis import SECOND, ShardApis, one_more, uncounted

UNCHANGED = "It has changed since: nothing was undone."


def pause_of(apis: ShardApis, queue: str = "mail") -> Pause | None:
    """Return who paused a queue."""
    return apis.store.dashboard(0).snapshot().queues[queue].paused


def toggle(browser: Client, action: str, **fields: Any) -> Any:
    """Press a button of the queue and return the page with its message."""
    return browser.get(browser.post(page("action"), {"action": action, "queue": "mail", **fields}).url)


def test_a_job_gets_back_the_time_that_it_had_and_not_that_of_the_page(browser: Client, stock: ShardApis) -> None:
    mine = add(stock)
    stale = form_to(browser.get(page("scheduled")), "/action/")
    [token] = [value for name, value in stale.boxes if name == "row"]
    stock.operations.reschedule(raw(mine), delay_us=5 * HOUR)
    due = due_us(stock, mine)
    said = browser.get(stale.post(browser, ("one", token)).url)
    assert state(stock, mine) == "ready"
    assert "1 job set back to its time." in result(browser, undo(browser, said))
    assert (state(stock, mine), due_us(stock, mine)) == ("scheduled", due)


def test_a_ready_job_that_a_stale_page_runs_now_has_no_undo(browser: Client, stock: ShardApis) -> None:
    mine = add(stock)
    stale = form_to(browser.get(page("scheduled")), "/action/")
    [token] = [value for name, value in stale.boxes if name == "row"]
    stock.operations.reschedule(raw(mine))
    said = browser.get(stale.post(browser, ("one", token)).url)
    assert "delayq-undo" not in said.content.decode()


def lose_worker(apis: ShardApis) -> None:
    """Let a dispatcher find that the worker of the only claim was lost: the job comes back with its rank."""
    [taken] = apis.client.zrange(apis.keys("leases"), 0, -1)
    apis.client.zadd(apis.keys("leases"), {taken: apis.clock.now_us - SECOND})
    [lease] = apis.promotion.read_expired_leases([taken])
    attempts = one_more(lease.attempts)
    assert sum(apis.promotion.reclaim([Reclaim(lease=lease.lease, attempts=attempts, queue=lease.queue)])) == 1


@pytest.mark.parametrize("how", ["its worker was lost", "it was interrupted"])
def test_what_has_begun_and_came_back_is_not_set_back(how: str, browser: Client, stock: ShardApis) -> None:
    mine = add(stock)
    said = browser.get(press(browser, page("scheduled"), mine).url)
    worker, claimed = claim(stock, mine)
    if how == "it was interrupted":
        worker.take(0, settle=[uncounted(claimed, AttemptHistory(interruptions=1), keeps_rank=True)])
    else:
        lose_worker(stock)
    assert state(stock, mine) == "ready"
    assert UNCHANGED in result(browser, undo(browser, said))
    assert state(stock, mine) == "ready"


def test_the_pause_of_somebody_else_is_not_undone(visitor: Callable[..., Client], stock: ShardApis) -> None:
    add(stock, queue="mail", delay=None)
    mine, other = visitor("superuser"), visitor("manager")
    said = toggle(mine, "pause")
    toggle(other, "resume")
    toggle(other, "pause")
    assert UNCHANGED in result(mine, undo(mine, said))
    paused = pause_of(stock)
    assert paused is not None and paused.by == "manager"


def test_the_end_of_another_pause_is_not_replaced(visitor: Callable[..., Client], stock: ShardApis) -> None:
    add(stock, queue="mail", delay=None)
    mine, other = visitor("superuser"), visitor("manager")
    toggle(mine, "pause", until="2100-06-01T12:00")
    said = toggle(mine, "resume")
    toggle(other, "pause", until="2100-07-01T12:00")
    theirs = pause_of(stock)
    assert UNCHANGED in result(mine, undo(mine, said))
    assert pause_of(stock) == theirs


def test_a_worker_that_takes_jobs_again_stays_so(visitor: Callable[..., Client], stock: ShardApis) -> None:
    tell(stock)
    mine, other, worker = visitor("superuser"), visitor("manager"), (b"W" * 8).hex()
    said = mine.get(mine.post(page("action"), {"action": "quiet", "worker": worker}).url)
    other.post(page("action"), {"action": "unquiet", "worker": worker})
    assert UNCHANGED in result(mine, undo(mine, said))


@pytest.mark.parametrize("zone", ["local", "utc"])
def test_a_pause_gets_back_its_end_in_every_zone(zone: str, browser: Client, stock: ShardApis) -> None:
    add(stock, queue="mail", delay=None)
    # In Berlin this hour comes twice, and a field of a form has whole seconds.
    until = datetime(2100, 10, 31, 0, 30, 0, 250_000, tzinfo=UTC)
    until_us = (until - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    stock.store.operations(0).workers.pause("mail", by="ann", until_us=until_us)
    said = toggle(browser, "resume")
    browser.get(page("queues", zone=zone))
    undo(browser, said)
    paused = pause_of(stock)
    assert paused is not None and paused.until_us == until_us


def test_an_undo_after_the_end_of_the_pause_asks_again(browser: Client, stock: ShardApis) -> None:
    add(stock, queue="mail", delay=None)
    fields = {"action": "pause", "queue": "mail", "left": "", "until_us": str(stock.clock.now_us - SECOND)}
    asked = browser.post(page("action"), fields)
    assert asked.status_code == 200
    assert pause_of(stock) is None
    assert "Paused queue mail." in result(browser, confirm(browser, asked, until="", until_us=""))
