"""No page takes more than three round trips, whatever it shows."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.test import Client
from redis.connection import AbstractConnection

from django_delayq.job.ids import to_text
from tests.admin.conftest import page
from tests.admin.jobs import NOOP
from tests.admin.schedule_records import add_schedule
from tests.shard_apis import HOUR, SECOND, ShardApis

VISITS: dict[str, tuple[str, dict[str, str]]] = {
    "overview": ("queue_changelist", {}),
    "overview, a month ahead": ("queue_changelist", {"due": "month"}),
    "overview, a week": ("queue_changelist", {"span": "week"}),
    "scheduled": ("scheduled", {}),
    "scheduled, filtered": ("scheduled", {"task": "nobody", "within": "24h"}),
    "scheduled, one queue": ("scheduled", {"queue": "mail"}),
    "queues": ("queues", {}),
    "limits": ("limits", {}),
    "running": ("running", {}),
    "coming": ("coming", {}),
    "finished": ("finished", {}),
    "finished, filtered": ("finished", {"task": "nobody", "outcome": "done"}),
    "failed": ("failed", {}),
    "failed, by error": ("failed", {"group": "error"}),
    "failed, by task": ("failed", {"group": "task"}),
    "failed, text": ("failed", {"q": "nothing like it"}),
    "recurring": ("recurring", {}),
    "recurring, one schedule": ("recurring", {"task": NOOP, "prefix": "name 1"}),
    "recurring, by state": ("recurring", {"state": "paused"}),
    "calendar": ("recurring_calendar", {}),
    "tasks": ("tasks", {}),
    "processes": ("processes", {}),
    "servers": ("servers", {}),
}


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """Collect the packets that this process sends to Redis."""
    sent: list[Any] = []
    send = AbstractConnection.send_packed_command

    def noted(self: Any, command: Any, check_health: bool = True) -> None:
        sent.append(command)
        send(self, command, check_health)

    with monkeypatch.context() as patched:
        patched.setattr(AbstractConnection, "send_packed_command", noted)
        yield sent


@pytest.fixture
def full(stock: ShardApis) -> bytes:
    """Jobs in every state; returns the id of a scheduled one."""
    stock.add(queue="mail", tenant="acme")
    stock.worker().take(1, "mail", description="host:1")
    stock.add(queue="mail", tenant="acme")
    stock.add_dead(queue="bulk")
    stock.add(queue="bulk", delay=SECOND)
    for number in range(300):
        add_schedule(stock, f"name {number}")
    return stock.add(queue="mail", delay=HOUR)


def trips(client: Client, url: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return the round trips of a page on an open connection with known queues."""
    assert client.get(url).status_code == 200
    with counted(monkeypatch) as sent:
        assert client.get(url).status_code == 200
    return len(sent)


@pytest.mark.parametrize("name", VISITS)
def test_a_page_takes_at_most_three_round_trips(
    name: str, full: bytes, browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    address, query = VISITS[name]
    assert 1 <= trips(browser, page(address, **query), monkeypatch) <= 3


@pytest.mark.parametrize("name", ["queue_detail", "queue_tenants", "job_detail", "task_detail"])
def test_a_page_of_one_queue_or_task_takes_at_most_three_round_trips(
    name: str, full: bytes, browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = {"job_detail": to_text(full, 0), "task_detail": NOOP}.get(name, "mail")
    assert 1 <= trips(browser, page(name, of), monkeypatch) <= 3


def test_the_page_of_a_schedule_takes_two_round_trips(
    stock: ShardApis, browser: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert trips(browser, page("recurring_schedule", add_schedule(stock)), monkeypatch) == 2
