"""Fixtures of the database tests: one database of each kind for all tests, and a thread that runs jobs.

If a server is missing, its tests are skipped; with DELAYQ_TEST_DATABASES=1 they fail.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.db.utils import load_backend

from django_delayq.job.ids import next_id
from django_delayq.job.job import Job
from django_delayq.job.outcome import Outcome
from django_delayq.task import registry
from django_delayq.task.task import Task
from django_delayq.worker.execution import run
from tests.databases import servers
from tests.factories import claim_for

#: Seconds after which a wait fails.
PATIENCE = 20.0
ALIAS = "other"


class Database:
    """A database with one table of one row, and a thread of a pool that is connected to it."""

    def __init__(self, entry: dict[str, Any], thread: ThreadPoolExecutor) -> None:
        self._entry, self._thread = entry, thread
        self.vendor = load_backend(entry["ENGINE"]).DatabaseWrapper.vendor

    def wrapper(self, **facts: Any) -> Any:
        """Return a new Django connection that is not open yet."""
        entry = {**connections[ALIAS].settings_dict, "CONN_MAX_AGE": None, "OPTIONS": {}, **self._entry, **facts}
        return load_backend(entry["ENGINE"]).DatabaseWrapper(entry, ALIAS)

    @property
    def value(self) -> int:
        """The value that another connection reads."""
        with closing(self.wrapper()) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT value FROM row_of_tests")
            return int(cursor.fetchone()[0])

    def write(self, value: int) -> None:
        """Write through the calling thread's connection."""
        with connections[ALIAS].cursor() as cursor:
            cursor.execute("UPDATE row_of_tests SET value = %s", [value])

    def begin(self) -> None:
        """Begin a transaction that Django does not know of, as if a time limit struck right after the statement."""
        connections[ALIAS].ensure_connection()
        connections[ALIAS].connection.cursor().execute("BEGIN")

    def here(self, work: Callable[[], Any]) -> Any:
        """Call a function in the thread and return its result."""
        return self._thread.submit(work).result(PATIENCE)

    def run(self, func: Any, *args: Any, **facts: Any) -> Outcome:
        """Run a function as a task in the thread."""
        task: Task[Any, Any] = Task(func=func, name="shop.tasks.play")
        registry._tasks[task.name] = task
        claim = claim_for(Job(raw_id=next_id(), shard=0, task=task.name, queue="default", args=[*args], **facts))
        return self.here(lambda: run(claim))  # type: ignore[no-any-return]

    @contextmanager
    def table(self) -> Iterator[None]:
        """Create the table and connect the thread; close the thread's connection at the end."""
        with closing(self.wrapper()) as connection, connection.cursor() as cursor:
            cursor.execute("DROP TABLE IF EXISTS row_of_tests")
            cursor.execute("CREATE TABLE row_of_tests (value INTEGER)")
            cursor.execute("INSERT INTO row_of_tests VALUES (0)")
        self.connect()
        try:
            yield
        finally:
            self.here(lambda: connections[ALIAS].close())

    def connect(self, **facts: Any) -> None:
        """Give the thread a new connection with these settings."""
        self.here(lambda: connections.__setitem__(ALIAS, self.wrapper(**facts)))


_SERVERS = {"postgresql": servers.postgresql, "mariadb": servers.mariadb}


@pytest.fixture(scope="package", params=["sqlite", *_SERVERS])
def entry(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The entry of settings.DATABASES for each kind of database, with its server running."""
    if request.param == "sqlite":
        yield sqlite_entry(tmp_path_factory.mktemp("database"))
        return
    running = _SERVERS[request.param]()
    try:
        found = running.__enter__()
    except servers.ServerMissing as error:
        (pytest.fail if os.environ.get("DELAYQ_TEST_DATABASES") == "1" else pytest.skip)(str(error))
    try:
        yield found
    finally:
        running.__exit__(None, None, None)


def sqlite_entry(folder: Path) -> dict[str, Any]:
    """Return the entry of a database in a file, because Django never closes one in memory."""
    return {"ENGINE": "django.db.backends.sqlite3", "NAME": str(folder / "db.sqlite3")}


@pytest.fixture
def thread() -> Iterator[ThreadPoolExecutor]:
    """A thread pool of one thread."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture
def database(
    entry: dict[str, Any], thread: ThreadPoolExecutor, django_db_blocker: Any, registered: Any
) -> Iterator[Database]:
    """A database of each kind."""
    registered()
    made = Database(entry, thread)
    with django_db_blocker.unblock(), made.table():
        yield made
