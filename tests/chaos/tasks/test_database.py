"""Databases that fail inside a task: the attempt fails, the job is retried, and the worker keeps running."""

import os
import sqlite3
from pathlib import Path

import pytest

from tests.inspection import inspection
from tests.sample_app import database_tasks
from tests.subprocesses import Processes


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A database with one empty table."""
    path = tmp_path / "database" / "db.sqlite3"
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE seen (attempt INTEGER)")
    connection.close()
    return path


def test_dead_database_connection_fails_one_attempt_and_next_attempt_reconnects(
    processes: Processes, file: Path
) -> None:
    processes.configure(TASK_MODULES=("tests.sample_app.database_tasks",))
    processes.dispatcher()
    # With one thread, the second attempt would meet the connection of the first.
    worker = processes.worker("--concurrency", 1, DELAYQ_TEST_DB_DEFAULT=str(file))
    job = database_tasks.lose_connection.enqueue()
    processes.until_gone([job])
    assert [run["attempt"] for run in processes.runs(job.id)] == [1, 2]
    assert "Cannot operate on a closed database" in worker.output
    with sqlite3.connect(file) as connection:
        assert connection.execute("SELECT attempt FROM seen").fetchall() == [(2,)]
    connection.close()
    assert worker.end() == 0
    assert "this is a bug" not in worker.output


def test_unavailable_database_fails_attempts_until_it_returns_or_none_are_left(
    processes: Processes, file: Path, tmp_path: Path
) -> None:
    processes.configure(TASK_MODULES=("tests.sample_app.database_tasks",))
    processes.dispatcher()
    worker = processes.worker("--concurrency", 2, DELAYQ_TEST_DB_DEFAULT=str(file))
    # Renaming the folder removes the file in one step, so no task finds half of it or creates an empty one.
    away = tmp_path / "away"
    os.rename(file.parent, away)
    doomed = [database_tasks.see.using(retry=database_tasks.TWICE).enqueue() for _ in range(2)]
    patient = [database_tasks.see.enqueue() for _ in range(4)]
    for job in doomed:
        processes.until_state(job, "dead")
    processes.until(lambda: len(processes.runs(patient[0].id)) >= 2, what="attempts without a database")
    os.rename(away, file.parent)
    processes.until_gone(patient)
    for job in doomed:
        dead = inspection().dead_letter(bytes.fromhex(job.id.split("-")[0]))
        assert dead is not None and dead.attempts.ended == 2
        assert "unable to open database file" in dead.attempts.last_error
    with sqlite3.connect(file) as connection:
        assert len(connection.execute("SELECT attempt FROM seen").fetchall()) == 4, worker.output
    connection.close()
    assert worker.end() == 0
    assert "this is a bug" not in worker.output
