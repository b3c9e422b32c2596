"""The page of tasks: options, last hour, and unregistered tasks."""

import re
from dataclasses import replace
from html import escape
from typing import Any

import pytest
from django.test import Client
from redis import Redis

from django_delayq import RetryPolicy, delayed_task
from django_delayq.clock import DAY_US
from tests.admin.conftest import page
from tests.admin.page_content import rows
from tests.admin.reports import tell
from tests.django_tasks.compat import task as django_task
from tests.shard_apis import ShardApis


@delayed_task(queue="mail", retry=RetryPolicy(max_attempts=7, base=3, cap=7200), timeout=30)
def send_invoice(order_id: int) -> None:
    """No page may call it."""
    raise AssertionError("a page called a task")


def rebuild() -> None:
    """Rebuild an index; a task of Django's."""


@pytest.fixture
def only_task(registered: Any) -> str:
    """Register one task alone; return its name."""
    registered({send_invoice.name: send_invoice})
    return send_invoice.name


def test_options_and_last_hour_of_each(browser: Client, stock: ShardApis, only_task: str) -> None:
    tell(stock, task=only_task, done=18, dead=2, run_us=100_000)
    ((name, cells),) = rows(browser, "tasks").items()
    assert name.startswith(only_task)
    assert "views/test_tasks.py:" in name
    queue, tries, waits, timeout, done, failed, times, *_ = cells
    waited = "after random delays of up to 3 s, …, 1 min 36 s"
    assert [queue, tries, waits, timeout] == ["mail", "7", waited, "30 s / 40 s"]
    assert [done, failed] == ["18", "2"]
    assert re.fullmatch(r"\d+ ms / \d+ ms", times)


@pytest.mark.parametrize(
    ("options", "cells"),
    [
        ({"timeout": 30, "hard_timeout": 60}, ["5", "after random delays of up to 2 s, …, 16 s", "30 s / 1 min"]),
        ({"retry": RetryPolicy(max_attempts=1), "hard_timeout": 60}, ["1", "no retry", "– / 1 min"]),
        ({"retry": RetryPolicy(max_attempts=None, delays=[30])}, ["no limit", "after 30 s each time", "–"]),
        (
            {"retry": RetryPolicy(delays=[5, 60], retry_on="django_delayq.exceptions.KeyHeld", dead_on=ValueError)},
            ["3", "after 5 s, 1 min; only KeyHeld; not ValueError", "–"],
        ),
    ],
)
def test_the_rules_of_a_task_are_in_its_row(
    browser: Client, registered: Any, options: dict[str, Any], cells: list[str]
) -> None:
    registered({send_invoice.name: replace(send_invoice, retry=None, timeout_us=None).using(**options)})
    [shown] = rows(browser, "tasks").values()
    assert shown[1:4] == cells


def test_a_task_of_django_shows_the_options_of_its_alias(
    browser: Client, delayq_settings: Any, registered: Any
) -> None:
    registered({})
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "RETRY": RetryPolicy(max_attempts=9)}

    def shown(**options: Any) -> list[str]:
        alias = {"BACKEND": "django_delayq.backend.DelayQBackend", "QUEUES": [], "OPTIONS": options}
        delayq_settings.TASKS = {"default": alias}
        django_task(rebuild)
        [cells] = rows(browser, "tasks").values()
        return cells[1:4]

    assert shown() == ["3", "after random delays of up to 2 s, 4 s; no exception", "–"]
    own = {"retry": RetryPolicy(delays=[7]), "timeout": 5}
    assert shown(TASKS={f"{__name__}.rebuild": own}) == ["2", "after 7 s", "5 s / 15 s"]
    assert shown(TASKS={f"{__name__}.rebuild": {"retry": 3}}) == ["–", "–", "–"]


def test_page_runs_no_task(browser: Client, only_task: str) -> None:
    # Registered tasks are callable, and templates call callables.
    assert browser.get(page("tasks")).status_code == 200


def test_the_retry_policy_of_the_settings_is_the_default(browser: Client, settings: Any) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "RETRY": RetryPolicy(max_attempts=9)}
    (cells,) = (
        cells for name, cells in rows(browser, "tasks").items() if name.startswith("tests.sample_app.tasks.noop ")
    )
    assert cells[1] == "9"


@pytest.mark.parametrize("noun", ["jobs", "dead_bodies"])
def test_unregistered_tasks_come_first(noun: str, browser: Client, stock: ShardApis, client: Redis) -> None:
    if noun == "jobs":
        stock.add(delay=DAY_US)
    else:
        stock.add_dead()
    for raw_id, stored in client.hgetall(f"delayq:{{0}}:{noun}").items():
        client.hset(
            f"delayq:{{0}}:{noun}",
            raw_id,
            stored.replace(b"tests.sample_app.tasks.noop", b"tests.sample_app.tasks.<b>!"),
        )
    first = next(iter(rows(browser, "tasks")))
    assert first == "tests.sample_app.tasks.<b>! not registered"


def test_cells_link_to_the_jobs_of_the_task(browser: Client, stock: ShardApis, only_task: str) -> None:
    html = browser.get(page("tasks")).content.decode()
    for name in ("scheduled", "failed"):
        assert f'href="{page(name, task=only_task)}"' in html
    failed = f'href="{escape(page("failed", task=only_task, within="1h"))}"'
    assert failed not in html
    tell(stock, task=only_task, done=1, retried=2)
    assert (
        f'{failed} title="also attempts that were followed by another; the link lists failed jobs">2<'
        in browser.get(page("tasks")).content.decode()
    )


def test_no_task_at_all(browser: Client, registered: Any) -> None:
    registered({})
    assert "No task is registered." in browser.get(page("tasks")).content.decode()
