"""Idle connections: coroutines that sleep hold no database connections, and lose nothing by that."""

import asyncio
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from asgiref.sync import ThreadSensitiveContext, sync_to_async
from django.db import connections, transaction
from django.db.backends.signals import connection_created

from django_delayq.job.ids import next_id
from django_delayq.job.job import Job
from django_delayq.job.outcome import Outcome, OutcomeKind
from django_delayq.processes import idle_connections
from django_delayq.task import registry
from django_delayq.task.task import Task
from django_delayq.worker.execution import run_async
from tests.databases.conftest import ALIAS, PATIENCE, Database
from tests.factories import claim_for

COUNT = 20
#: An attempt to connect before MariaDB listens leaves a socket to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(autouse=True)
def in_every_thread(entry: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let new threads connect to the database of the test, for as long as a job lasts."""
    facts = {**connections[ALIAS].settings_dict, "OPTIONS": {}, "CONN_MAX_AGE": None, **entry}
    monkeypatch.setitem(connections.settings, ALIAS, facts)
    monkeypatch.setattr(idle_connections, "_MAX_IDLE", 0.02)


@pytest.fixture
def opened() -> Iterator[list[Any]]:
    """The connections that were opened, in order; one opened again is there again."""
    seen: list[Any] = []

    def see(connection: Any, **_: Any) -> None:
        seen.append(connection)

    connection_created.connect(see)
    yield seen
    connection_created.disconnect(see)


async def run(func: Any, count: int = 1) -> list[Outcome]:
    """Run that many jobs of one task at once."""
    task: Task[Any, Any] = Task(func=func, name="shop.tasks.play")
    registry._tasks[task.name] = task
    jobs = [Job(raw_id=next_id(), shard=0, task=task.name, queue="default", args=[]) for _ in range(count)]
    return list(await asyncio.gather(*(asyncio.create_task(run_async(claim_for(job))) for job in jobs)))


async def until(look: Callable[[], object], what: str) -> None:
    """Wait in the loop until `look` returns something true."""
    give_up = time.monotonic() + PATIENCE
    while not look():
        assert time.monotonic() < give_up, f"waited in vain for {what}"
        await asyncio.sleep(0.005)


def read() -> int:
    with connections[ALIAS].cursor() as cursor:
        cursor.execute("SELECT value FROM row_of_tests")
        return int(cursor.fetchone()[0])


def test_coroutines_that_sleep_hold_no_connections(database: Database, opened: list[Any]) -> None:
    async def main() -> None:
        awake = asyncio.Event()

        async def sleeps() -> None:
            assert await sync_to_async(read)() == 0
            await awake.wait()
            assert await sync_to_async(read)() == 0

        jobs = asyncio.create_task(run(sleeps, COUNT))
        await until(lambda: len(set(map(id, opened))) == COUNT or jobs.done(), "a connection for each")
        await until(lambda: all(each.connection is None for each in opened), "the last one to be closed")
        assert not jobs.done()
        awake.set()
        for outcome in await jobs:
            assert outcome.kind is OutcomeKind.SUCCEEDED, outcome.error

    asyncio.run(main())
    assert all(each.connection is None for each in opened), "they end with their jobs"


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One item for each check whether a job's connections can be closed."""
    taken: list[int] = []
    look = idle_connections.IdleConnectionCloser._close_idle

    def noted(self: idle_connections.IdleConnectionCloser) -> None:
        look(self)
        taken.append(1)

    monkeypatch.setattr(idle_connections.IdleConnectionCloser, "_close_idle", noted)
    return taken


def test_a_transaction_survives_a_sleep(database: Database, opened: list[Any], checks: list[int]) -> None:
    async def writes() -> None:
        block = transaction.atomic(ALIAS)
        await sync_to_async(block.__enter__)()
        await sync_to_async(database.write)(5)
        await until(lambda: len(checks) >= 3, "three checks")
        await sync_to_async(block.__exit__)(None, None, None)

    [outcome] = asyncio.run(run(writes))
    assert outcome.kind is OutcomeKind.SUCCEEDED, outcome.error
    assert len(opened) == 1
    assert database.value == 5


def test_a_cursor_survives_a_sleep(database: Database, opened: list[Any], checks: list[int]) -> None:
    async def reads() -> None:
        cursor = await sync_to_async(connections_cursor)()
        await sync_to_async(cursor.execute)("SELECT value FROM row_of_tests UNION ALL SELECT 1")
        assert await sync_to_async(cursor.fetchone)() == (0,)
        await until(lambda: len(checks) >= 3, "three checks")
        assert await sync_to_async(cursor.fetchone)() == (1,)

    def connections_cursor() -> Any:
        return connections[ALIAS].cursor()

    [outcome] = asyncio.run(run(reads))
    assert outcome.kind is OutcomeKind.SUCCEEDED, outcome.error
    assert len(opened) == 1


def test_a_coroutine_that_leaves_a_transaction_open_fails(database: Database) -> None:
    async def leaves() -> None:
        await sync_to_async(transaction.atomic(ALIAS).__enter__)()
        await sync_to_async(database.write)(5)

    [outcome] = asyncio.run(run(leaves))
    assert outcome.exception == "django_delayq.exceptions.TransactionLeftOpen"
    assert database.value == 0


def test_a_coroutine_that_queries_steadily_keeps_its_connection(
    database: Database, opened: list[Any], checks: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr(idle_connections, "monotonic", lambda: now)

    async def steady() -> None:
        nonlocal now
        for _ in range(4):
            assert await sync_to_async(read)() == 0
            # The connection is idle for less than the limit, although from the second round on it is open for longer.
            now += 0.75 * idle_connections._MAX_IDLE
            seen = len(checks)
            await until(lambda seen=seen: len(checks) >= seen + 2, "two checks")  # type: ignore[misc]
            assert opened[0].connection is not None
        now += idle_connections._MAX_IDLE
        await until(lambda: opened[0].connection is None, "the unused one to be closed")

    [outcome] = asyncio.run(run(steady))
    assert outcome.kind is OutcomeKind.SUCCEEDED, outcome.error
    assert len(opened) == 1


def test_only_one_check_at_a_time_is_scheduled() -> None:
    async def main() -> None:
        made = idle_connections.IdleConnectionCloser(ThreadSensitiveContext())
        made._loop = loop = Mock()
        for alias in ("default", ALIAS, ALIAS):
            made.on_opened(SimpleNamespace(alias=alias, make_cursor=None, make_debug_cursor=None))
        assert loop.call_soon_threadsafe.call_count == 1
        made._submit_check()
        made.on_opened(SimpleNamespace(alias=ALIAS, make_cursor=None, make_debug_cursor=None))
        assert loop.call_soon_threadsafe.call_count == 2

    asyncio.run(main())
