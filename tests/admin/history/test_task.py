"""The page of one task, and the charts of a task and of a queue."""

from typing import Any

import pytest
from django.test import Client

from django_delayq import RetryPolicy, delayed_task
from tests.admin.conftest import page
from tests.admin.jobs import HOSTILE, NOOP, add, add_dead, claim
from tests.admin.page_content import link, text
from tests.admin.reports import tell
from tests.shard_apis import HOUR, ShardApis


@delayed_task(
    queue="mail",
    retry=RetryPolicy(max_attempts=7),
    timeout=30,
    key=lambda order_id: f"order {order_id}",
    tenant=lambda order_id: "acme",
    expires=3_600,
    store_result=True,
    sensitive=["order_id"],
)
def send_invoice(order_id: int) -> None:
    """No page may call it."""
    raise AssertionError("a page called a task")


@pytest.fixture
def only_task(registered: Any) -> str:
    """Register one task alone; return its name."""
    registered({send_invoice.name: send_invoice})
    return send_invoice.name


def parts(answer: Any) -> dict[str, list[str]]:
    """Return the ids of the jobs on the page, by their lists."""
    return {part.job_list.name: [line.row.id for line in part.lines] for part in answer.context_data["parts"]}


def test_the_options_are_shown_as_declared(browser: Client, only_task: str) -> None:
    answer = browser.get(page("task_detail", only_task))
    options = dict(answer.context_data["options"])
    assert (options["Queue"], options["Attempts"]) == ("mail", "7")
    assert (options["Timeout"], options["Hard timeout"]) == ("30 s", "40 s")
    assert options["Expires"] == "1 h after its due time"
    assert (options["Result kept"], options["Sensitive"]) == ("RESULT_TTL", "order_id")
    assert options["Unique by"] == options["Tenant"] == "<lambda>()"
    assert "history/test_task.py:" in text(answer)


def test_the_newest_of_each_list_are_shown_with_a_link_to_the_others(
    browser: Client, stock: ShardApis, only_task: str
) -> None:
    running = add(stock, 1, task=only_task, queue="mail", delay=None)
    claim(stock, running, queue="mail")
    failed = [add_dead(stock, number, task=only_task, queue="mail") for number in range(7)]
    scheduled = [add(stock, number, task=only_task, queue="mail", delay=number * HOUR) for number in range(1, 8)]
    add(stock, 9, task=f"x.{only_task}", queue="mail")
    add_dead(stock, 9, task=NOOP)
    answer = browser.get(page("task_detail", only_task))
    assert parts(answer) == {"failed": failed[:1:-1], "running": [running], "scheduled": scheduled[:5]}
    for title, expected in (("Failed jobs", 7), ("Running jobs", 1), ("Scheduled jobs", 7)):
        assert len(browser.get(link(answer, title)).context_data["lines"]) == expected
    assert "raised" not in text(answer) and "order_id" in text(answer)


def test_percentiles_and_charts_are_those_of_the_task(browser: Client, stock: ShardApis, only_task: str) -> None:
    tell(stock, task=only_task, queue="mail", done=95, dead=5, run_us=100_000)
    tell(stock, task="shop.other", queue="bulk", done=40, run_us=9_000_000)
    for query, last in (({}, "Last hour"), ({"span": "week"}, "Last 7 days")):
        shown = text(browser.get(page("task_detail", only_task, **query)))
        assert f"{last}: 95 done, 0 retried, 5 failed." in shown
        assert "p99" in shown and "Share of runs" in shown
    answer = browser.get(page("task_detail", only_task, span="week"))
    assert link(answer, "1 hour") == page("task_detail", only_task)
    shown = text(browser.get(page("queue_detail", "bulk", span="week")))
    assert "Last 7 days: 40 done" in shown
    charts = browser.get(link(browser.get(page("queue_detail", "bulk")), "Charts"))
    assert "Last hour: 40 done" in text(charts)
    assert link(charts, "7 days") == page("queue_detail", "bulk", span="week")


def test_a_task_that_is_not_registered_has_a_page(browser: Client, stock: ShardApis, only_task: str) -> None:
    mine = add_dead(stock, 1, task="old.removed")
    answer = browser.get(page("task_detail", "old.removed"))
    assert "not registered" in text(answer) and "This process does not know the task." in text(answer)
    assert parts(answer)["failed"] == [mine]
    assert "It did not run in the time that the charts show." in text(answer)


def test_the_list_of_tasks_leads_to_each(browser: Client, stock: ShardApis, only_task: str) -> None:
    assert f'href="{page("task_detail", only_task)}"' in browser.get(page("tasks")).content.decode()


@pytest.mark.parametrize("name", [HOSTILE, "../x", "a/b", ".", "~x", "x" * 900])
def test_any_name_has_a_page(name: str, browser: Client, stock: ShardApis, only_task: str) -> None:
    add_dead(stock, 1, task=name)
    answer = browser.get(page("task_detail", name))
    assert answer.status_code == 200
    assert "<script>alert" not in answer.content.decode()
    assert len(parts(answer)["failed"]) == 1


def test_pausing_is_offered_to_managers_alone(visitor: Any, stock: ShardApis, only_task: str) -> None:
    for kind, offered in (("manager", True), ("viewer", False)):
        content = visitor(kind).get(page("task_detail", only_task)).content.decode()
        assert ("pause_task" in content) == offered
    stock.operations.limits.pause_task(only_task, by="ann")
    assert "by ann" in text(visitor("viewer").get(page("task_detail", only_task)))
