"""The page of limits: what each is used for, which tasks are paused, and when a link leads to it."""

from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client

from django_delayq import delayed_task
from django_delayq.display.text import printable
from django_delayq.job.job import LimitUse
from tests.admin.conftest import page
from tests.admin.content.test_raw_characters import look
from tests.admin.content.test_round_trips import trips
from tests.admin.forms import forms
from tests.admin.jobs import HOSTILE, NOOP
from tests.admin.limits.conftest import work
from tests.admin.page_content import link, rows, text
from tests.shard_apis import SECOND, ShardApis


@delayed_task(limit=("accounts", lambda account: account))
def charge(account: int) -> None:
    """Have a limit for each account."""


def claim(apis: ShardApis, *limits: LimitUse, number: int = 1) -> None:
    """Enqueue jobs with limits and let a worker claim as many as may begin."""
    for _ in range(number):
        apis.add(limits=limits)
    apis.worker().take(number)


def test_each_limit_has_its_rule_and_its_jobs(browser: Client, stock: ShardApis) -> None:
    claim(stock, LimitUse("single"), number=3)
    found = rows(browser, "limits")
    assert found["stripe"] == ["100/s, burst 20, at most 5 at a time", "0", "0", "now"]
    assert found["single"] == ["at most 1 at a time", "1", "2", "when a job ends"]
    assert found["slow"] == ["2/h, burst 1", "0", "0", "now"]


def test_a_rate_says_when_the_next_job_may_begin(browser: Client, stock: ShardApis) -> None:
    claim(stock, LimitUse("slow"), number=2)
    _, _, waiting, moment = rows(browser, "limits")["slow"]
    assert waiting == "1"
    assert moment.startswith("in 30 min") or moment.startswith("in 29 min")


def test_a_limit_whose_task_backed_off_says_until_when(browser: Client, stock: ShardApis) -> None:
    stock.store.operations(0).limits.back_off(LimitUse("stripe"), 3_600 * SECOND)
    cell = rows(browser, "limits")["stripe"][3]
    assert cell.count("in 60 min") + cell.count("in 1 h") + cell.count("in 59 min") == 2
    assert "backs off until" in cell


def test_a_limit_whose_jobs_have_values_differs_by_value(browser: Client, stock: ShardApis) -> None:
    claim(stock, LimitUse("single", "a"), number=2)
    claim(stock, LimitUse("single", "b"))
    assert rows(browser, "limits")["single"] == ["at most 1 at a time", "2", "1", "differs by value"]


def test_a_limit_that_a_task_uses_with_values_differs_by_value(
    browser: Client, stock: ShardApis, registered: Any
) -> None:
    registered({charge.name: charge})
    found = rows(browser, "limits")
    assert (found["accounts"][3], found["slow"][3]) == ("differs by value", "now")


def test_the_jobs_of_all_shards_are_counted(browser: Client, shards: list[ShardApis]) -> None:
    for number, apis in enumerate(shards):
        claim(apis, LimitUse("single", str(number)), number=number + 1)
    assert rows(browser, "limits")["single"] == ["at most 1 at a time", "3", "3", "differs by value"]


def test_a_limit_that_is_closed_in_its_shard_is_not_open(browser: Client, shards: list[ShardApis]) -> None:
    claim(shards[1], LimitUse("single"), number=2)
    claim(shards[2], LimitUse("slow"))
    found = rows(browser, "limits")
    assert found["single"][1:] == ["1", "1", "when a job ends"]
    assert found["slow"][3] != "now"


def test_names_are_escaped(browser: Client, stock: ShardApis) -> None:
    stock.operations.limits.pause_task(HOSTILE, by=HOSTILE)
    for name in ("limits", "tasks"):
        assert "<script>alert(1)" not in look(browser.get(page(name)))
    assert printable(HOSTILE[:60]) in rows(browser, "limits")


def test_paused_tasks_are_listed_with_their_jobs(browser: Client, stock: ShardApis) -> None:
    for _ in range(2):
        stock.add()
    for name in (NOOP, "gone.task"):
        stock.store.operations(0).limits.pause_task(name, by="ann")
    assert work(stock) == 0
    response = browser.get(page("limits"))
    said = text(response)
    assert "Paused tasks" in said
    table = said.partition("Paused tasks")[2]
    assert table.index("gone.task 0 by ann") < table.index(f"{NOOP} 2 by ann")
    assert [form.offers("resume_task") for form in forms(response) if "/action/" in form.action] == [True, True]


def test_a_project_without_limits_has_no_link_until_a_task_is_paused(
    browser: Client, stock: ShardApis, delayq_settings: Any
) -> None:
    address = page("limits")
    assert link(browser.get(page("overview")), "Limits") == address
    delayq_settings.DELAYQ = {key: value for key, value in delayq_settings.DELAYQ.items() if key != "LIMITS"}
    assert link(browser.get(page("overview")), "Limits") == ""
    response = browser.get(address)
    assert 'No limit is declared in DELAYQ["LIMITS"]' in text(response)
    assert "Paused tasks" not in text(response)
    assert link(response, "Limits") == address
    stock.operations.limits.pause_task(NOOP, by="ann")
    assert link(browser.get(page("overview")), "Limits") == address


@pytest.mark.parametrize(("name", "most"), [("limits", 2), ("overview", 3), ("tasks", 3)])
def test_pages_take_few_round_trips(
    name: str, most: int, browser: Client, stock: ShardApis, monkeypatch: pytest.MonkeyPatch
) -> None:
    stock.operations.limits.pause_task(NOOP, by="ann")
    assert trips(browser, page(name), monkeypatch) <= most


@pytest.mark.parametrize(
    ("kind", "read_only", "buttons"),
    [("superuser", False, True), ("manager", False, True), ("viewer", False, False), ("superuser", True, False)],
)
def test_who_may_not_manage_sees_no_buttons(
    kind: str, read_only: bool, buttons: bool, visitor: Callable[..., Client], stock: ShardApis, settings: Any
) -> None:
    stock.operations.limits.pause_task(NOOP, by="ann")
    settings.DELAYQ = {**settings.DELAYQ, "ADMIN": {"READ_ONLY": read_only}}
    client = visitor(kind)
    for name in ("limits", "tasks"):
        response = client.get(page(name))
        assert "by ann" in text(response)
        assert any(form.offers("resume_task") for form in forms(response)) is buttons
