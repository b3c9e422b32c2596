"""Autocommit: a task that turns it off loses nothing without an error, and leaves it on for the next job."""

from typing import Any

import pytest
from django.db import connections

from django_delayq.job.outcome import OutcomeKind
from django_delayq.processes import database as ours
from tests.databases.conftest import ALIAS, Database
from tests.databases.test_connections import assert_writes_are_kept, open_driver, spin

LEFT_OPEN = "django_delayq.exceptions.TransactionLeftOpen"
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def turn_off_below_django() -> None:
    connections[ALIAS].ensure_connection()
    driver = connections[ALIAS].connection
    match connections[ALIAS].vendor:
        case "sqlite":
            driver.isolation_level = ""
        case "postgresql":
            driver.autocommit = False
        case _:
            driver.autocommit(False)


def turn_off() -> None:
    connections[ALIAS].set_autocommit(False)


@pytest.fixture(params=[turn_off, turn_off_below_django])
def off(request: pytest.FixtureRequest) -> Any:
    """Each way to turn it off."""
    return request.param


def test_a_transaction_that_was_not_committed_is_a_failure(off: Any, database: Database) -> None:
    def writes() -> None:
        off()
        database.write(1)

    outcome = database.run(writes)
    assert (outcome.kind, outcome.exception) == (OutcomeKind.FAILED, LEFT_OPEN)
    assert database.value == 0
    assert open_driver(database) is None
    assert_writes_are_kept(database)


def test_a_committed_transaction_is_a_success_and_autocommit_is_on_for_the_next_job(
    off: Any, database: Database
) -> None:
    def commits() -> None:
        off()
        database.write(1)
        connections[ALIAS].connection.commit()

    outcome = database.run(commits)
    assert outcome.kind is OutcomeKind.SUCCEEDED, outcome.error
    assert database.value == 1
    assert open_driver(database) is None
    assert_writes_are_kept(database)


def test_a_driver_that_only_knows_autocommit_counts_as_inside_a_transaction() -> None:
    class Mysqlclient:
        def __init__(self, autocommit: bool) -> None:
            self.get_autocommit = lambda: autocommit

    assert ours._mysql_state(Mysqlclient(autocommit=False), False) == (True, False)
    assert ours._mysql_state(Mysqlclient(autocommit=True), True) == (False, False)


def test_a_limit_stays_the_reason(off: Any, database: Database) -> None:
    def cut_off() -> None:
        off()
        database.write(1)
        spin()

    # Long enough to reach the loop on any machine.
    outcome = database.run(cut_off, timeout_us=500_000)
    assert (outcome.kind, outcome.exception) == (OutcomeKind.FAILED, "django_delayq.exceptions.TaskTimeout")
    assert_writes_are_kept(database)


def test_a_connection_lost_inside_a_manual_transaction_is_a_failure(off: Any, database: Database) -> None:
    def loses() -> None:
        off()
        database.write(1)
        connections[ALIAS].connection.close()

    outcome = database.run(loses)
    # SQLite has no server that could close the connection, and a closed one has no transaction state.
    closed_by_the_task = off is turn_off_below_django and database.vendor == "sqlite"
    assert outcome.exception == ("" if closed_by_the_task else LEFT_OPEN)
    assert database.value == 0
    assert_writes_are_kept(database)


def test_a_lost_connection_fails_no_job_that_does_not_need_it(database: Database) -> None:
    def lose() -> None:
        database.write(1)
        connections[ALIAS].connection.close()

    assert database.run(lose).kind is OutcomeKind.SUCCEEDED
    assert_writes_are_kept(database)
    # As if the server had closed a connection that was idle for long.
    database.here(lambda: connections[ALIAS].connection.close())
    outcome = database.run(int)
    assert outcome.kind is OutcomeKind.SUCCEEDED, outcome.error
    assert database.value == 8


@pytest.mark.parametrize("autocommit", [True, False])
def test_a_driver_that_raises_costs_the_success_of_manual_transactions_only(
    autocommit: bool, database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def breaks(*_: Any) -> Any:
        raise RuntimeError("no answer")

    def writes() -> None:
        if not autocommit:
            turn_off()
        database.write(1)
        monkeypatch.setitem(ours._DRIVER_STATES, database.vendor, breaks)

    outcome = database.run(writes)
    monkeypatch.undo()
    assert outcome.exception == ("" if autocommit else LEFT_OPEN)
    assert database.value == int(autocommit)
    assert open_driver(database) is None
    assert f"'{ALIAS}'" in caplog.text and "no answer" in caplog.text
    assert_writes_are_kept(database)
