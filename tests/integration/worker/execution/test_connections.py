"""Database connections between jobs: a broken one is replaced, an old one is closed."""

import sqlite3
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.db import connections
from django.db.backends.sqlite3.base import DatabaseWrapper

from django_delayq.job.outcome import OutcomeKind
from tests.integration.worker.execution.claims import PATIENCE, Run


@pytest.fixture
def in_worker_thread(tmp_path: Path, transactional_db: None) -> Iterator[Callable[[Callable[[], None]], None]]:
    """Run a test's work in a thread whose `other` database is a file: Django never closes one in memory."""

    def run_work(work: Callable[[], None]) -> None:
        raised: list[BaseException] = []

        def thread() -> None:
            settings = {
                **connections["other"].settings_dict,
                "NAME": str(tmp_path / "db.sqlite3"),
                "CONN_MAX_AGE": None,
            }
            connections["other"] = DatabaseWrapper(settings, "other")
            try:
                work()
            except BaseException as error:
                raised.append(error)
            finally:
                connections["other"].close()

        running = threading.Thread(target=thread)
        running.start()
        running.join(PATIENCE)
        assert not running.is_alive()
        if raised:
            raise raised[0]

    yield run_work


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_retry_delay_queries_outside_the_transaction_that_the_task_left_open(
    run_task: Run, in_worker_thread: Callable[[Callable[[], None]], None]
) -> None:
    rows: list[list[Any]] = []

    def write(word: str) -> list[Any]:
        with connections["other"].cursor() as cursor:
            cursor.execute("CREATE TABLE IF NOT EXISTS words (word text)")
            found = cursor.execute("SELECT word FROM words").fetchall()
            cursor.execute("INSERT INTO words VALUES (%s)", [word])
        return found  # type: ignore[no-any-return]

    def leaves_open() -> None:
        connections["other"].set_autocommit(False)
        write("of the task")
        raise ValueError("no")

    def delay(attempt: int, error: BaseException) -> int:
        rows.append(write("of the delay"))
        return 5

    def work() -> None:
        assert run_task(leaves_open, retry_delay=delay).delay_us == 5_000_000
        rows.append(write("afterwards"))

    in_worker_thread(work)
    assert rows == [[], [("of the delay",)]]


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_broken_database_connection_is_not_left_to_the_next_job(
    run_task: Run, in_worker_thread: Callable[[Callable[[], None]], None]
) -> None:
    def work() -> None:
        connection = connections["other"]

        def breaks() -> None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
            # As after "server has gone away".
            connection.errors_occurred = True
            connection.is_usable = lambda: False

        assert run_task(breaks).kind is OutcomeKind.SUCCEEDED
        assert connection.connection is None
        del connection.is_usable

        def works() -> None:
            with connection.cursor() as cursor:
                assert cursor.execute("SELECT 1").fetchone() == (1,)

        assert run_task(works).kind is OutcomeKind.SUCCEEDED
        kept = connection.connection
        assert kept is not None, "a sound connection with CONN_MAX_AGE is kept"
        assert run_task(works).kind is OutcomeKind.SUCCEEDED
        assert connection.connection is kept

    in_worker_thread(work)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_connection_that_died_between_jobs_is_replaced_before_the_next(
    run_task: Run, in_worker_thread: Callable[[Callable[[], None]], None]
) -> None:
    def work() -> None:
        connection = connections["other"]
        connection.ensure_connection()
        died = connection.connection
        connection.errors_occurred = True
        connection.is_usable = lambda: False

        def works() -> None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")
            assert connection.connection is not died

        outcome = run_task(works)
        assert outcome.kind is OutcomeKind.SUCCEEDED, outcome.error

    in_worker_thread(work)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_connection_that_failed_while_it_was_set_up_is_not_left_to_the_next_job(
    run_task: Run, in_worker_thread: Callable[[Callable[[], None]], None]
) -> None:
    def work() -> None:
        connection = connections["other"]

        def set_up() -> None:
            raise sqlite3.OperationalError("server closed the connection unexpectedly")

        connection.init_connection_state, connection.is_usable = set_up, lambda: False

        def queries() -> None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")

        # As if a server, or a proxy in front of it, accepts the connection and ends right after.
        assert run_task(queries).kind is OutcomeKind.FAILED
        assert connection.connection is None

    in_worker_thread(work)


@pytest.mark.django_db(transaction=True, databases=["default", "other"])
def test_a_connection_past_its_age_is_closed(
    run_task: Run, in_worker_thread: Callable[[Callable[[], None]], None]
) -> None:
    def work() -> None:
        connection = connections["other"]
        connection.settings_dict["CONN_MAX_AGE"] = 0

        def works() -> None:
            with connection.cursor() as cursor:
                cursor.execute("SELECT 1")

        assert run_task(works).kind is OutcomeKind.SUCCEEDED
        assert connection.connection is None

    in_worker_thread(work)


def test_a_job_without_a_database_opens_no_connection(run_task: Run) -> None:
    seen: list[Any] = []

    def work() -> None:
        run_task(lambda: None)
        seen.append(connections.all(initialized_only=True))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(PATIENCE)
    assert seen == [[]]
