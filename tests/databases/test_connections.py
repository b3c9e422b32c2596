"""Connections: whatever an attempt does to its thread's connections, the next one's writes are kept."""

import random
from typing import Any

import pytest
from django.db import connections, transaction
from django.db.transaction import TransactionManagementError

from django_delayq.exceptions import TaskTimeout
from django_delayq.job.ids import next_id
from django_delayq.job.job import Job
from django_delayq.job.outcome import OutcomeKind
from django_delayq.processes import database as ours
from django_delayq.worker.execution import forward
from tests.databases.conftest import ALIAS, Database
from tests.factories import claim_for

ROUNDS = 60
#: A limit that strikes while PyMySQL connects leaves an unreferenced connection, and PyMySQL warns about it.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def spin() -> None:
    """Run until the time limit ends it."""
    while True:
        pass


def assert_writes_are_kept(database: Database, value: int = 7) -> None:
    outcome = database.run(database.write, value)
    assert outcome.kind is OutcomeKind.SUCCEEDED, outcome.error
    assert database.value == value

    def in_a_block() -> None:
        with transaction.atomic(ALIAS):
            database.write(value + 1)

    outcome = database.run(in_a_block)
    assert outcome.kind is OutcomeKind.SUCCEEDED, outcome.error
    assert database.value == value + 1


def open_driver(database: Database) -> Any:
    return database.here(lambda: connections[ALIAS].connection)


def test_a_sound_connection_is_kept(database: Database) -> None:
    assert database.run(database.write, 1).kind is OutcomeKind.SUCCEEDED
    driver = open_driver(database)
    assert driver is not None
    assert_writes_are_kept(database)
    assert open_driver(database) is driver


def test_a_limit_that_strikes_after_begin_does_not_poison_the_thread(database: Database) -> None:
    def cut_off() -> None:
        database.begin()
        database.write(1)
        spin()

    outcome = database.run(cut_off, timeout_us=50_000)
    assert outcome.kind is OutcomeKind.FAILED and "TaskTimeout" in outcome.error
    assert open_driver(database) is None
    assert_writes_are_kept(database)


def test_limits_that_strike_anywhere_do_not_poison_the_thread(database: Database) -> None:
    def atomics() -> None:
        while True:
            with transaction.atomic(ALIAS), connections[ALIAS].cursor() as cursor:
                cursor.execute("SELECT value FROM row_of_tests")

    for _ in range(ROUNDS):
        # The outcome is not kept, as in a worker: its exception may refer to a cursor between two rows. Until such a
        # cursor is gone, SQLite keeps a read lock on the file, even though the connection is closed.
        assert database.run(atomics, timeout_us=random.randint(2_000, 9_000)).kind is OutcomeKind.FAILED
        assert database.run(database.write, 0).kind is OutcomeKind.SUCCEEDED
    assert_writes_are_kept(database)


def test_a_limit_that_the_task_catches_still_closes_its_connection(database: Database) -> None:
    def catches() -> None:
        try:
            spin()
        except TaskTimeout:
            return

    assert database.run(database.write, 1).kind is OutcomeKind.SUCCEEDED
    assert database.run(catches, timeout_us=50_000).kind is OutcomeKind.SUCCEEDED
    assert open_driver(database) is None
    assert database.value == 1
    assert_writes_are_kept(database)


def leave_block(database: Database) -> None:
    transaction.atomic(ALIAS).__enter__()
    database.write(1)


def leave_inner_block(database: Database) -> None:
    for _ in range(2):
        transaction.atomic(ALIAS).__enter__()
    connections[ALIAS].needs_rollback = True


def leave_begin(database: Database) -> None:
    database.begin()
    database.write(1)


def leave_manual(database: Database) -> None:
    connections[ALIAS].set_autocommit(False)
    database.write(1)


@pytest.mark.parametrize("leave", [leave_block, leave_inner_block, leave_begin, leave_manual])
def test_a_success_that_leaves_a_transaction_open_is_a_failure(leave: Any, database: Database) -> None:
    outcome = database.run(leave, database)
    assert outcome.kind is OutcomeKind.FAILED
    assert outcome.exception == "django_delayq.exceptions.TransactionLeftOpen"
    assert f"'{ALIAS}'" in outcome.error and "transaction.atomic()" in outcome.error
    assert database.value == 0, "what was written is rolled back"
    assert open_driver(database) is None
    assert_writes_are_kept(database)


def test_an_error_stays_the_reason_if_a_transaction_was_left_open_too(database: Database) -> None:
    def fails() -> None:
        leave_block(database)
        raise ValueError("the bank is closed")

    outcome = database.run(fails)
    assert (outcome.kind, outcome.exception) == (OutcomeKind.FAILED, "builtins.ValueError")
    assert_writes_are_kept(database)


def give_up() -> None:
    raise SystemExit("as a time limit of another library")


@pytest.mark.parametrize("cut", [spin, give_up])
def test_interrupted_commit_hooks_do_not_run_with_a_later_commit(
    cut: Any, database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    ran = []

    def notify_the_bank() -> None:
        ran.append("hook")

    def cut_off() -> None:
        connection = connections[ALIAS]

        def commit_and_end() -> None:
            connection.connection.commit()
            cut()

        with transaction.atomic(ALIAS):
            database.write(5)
            transaction.on_commit(notify_the_bank, using=ALIAS)
            connection._commit = commit_and_end

    assert database.run(database.write, 1).kind is OutcomeKind.SUCCEEDED
    # Long enough to reach the commit on any machine.
    outcome = database.run(cut_off, timeout_us=2_000_000)
    database.here(lambda: connections[ALIAS].__dict__.pop("_commit"))
    assert outcome.kind is OutcomeKind.FAILED
    assert database.value == 5
    [record] = [each for each in caplog.records if "commit hooks" in each.getMessage()]
    assert "notify_the_bank" in record.getMessage() and ALIAS in record.getMessage()
    assert_writes_are_kept(database)
    assert not ran


def test_a_manual_transaction_stays_open_in_a_project_without_autocommit(database: Database) -> None:
    database.connect(AUTOCOMMIT=False)

    def writes() -> None:
        database.write(3)
        connections[ALIAS].commit()
        with connections[ALIAS].cursor() as cursor:
            cursor.execute("SELECT value FROM row_of_tests")
            cursor.fetchall()

    for _ in range(2):
        outcome = database.run(writes)
        assert outcome.kind is OutcomeKind.SUCCEEDED, outcome.error
    assert database.value == 3


def test_a_connection_that_was_closed_below_django_costs_one_attempt(database: Database) -> None:
    def lose() -> None:
        database.write(1)
        connections[ALIAS].connection.close()
        database.write(2)

    assert database.run(lose).kind is OutcomeKind.FAILED
    assert_writes_are_kept(database)


def test_all_connections_of_the_thread_can_be_closed(database: Database) -> None:
    assert database.run(database.write, 1).kind is OutcomeKind.SUCCEEDED
    assert database.here(lambda: ours.clean(close=True)) is None
    assert open_driver(database) is None
    assert_writes_are_kept(database)


def test_a_forwarders_function_has_a_sound_connection(database: Database) -> None:
    claim = claim_for(Job(raw_id=next_id(), shard=0, task="elsewhere", queue="default", args=[4]))

    def accept(job: dict[str, Any]) -> None:
        database.write(job["args"][0])
        # As after a restart of the database.
        connections[ALIAS].connection.close()

    outcomes = [database.here(lambda: forward(claim, accept)).kind for _ in range(6)]
    # Without health checks, one error has to show that the connection is dead.
    assert outcomes[:1] == [OutcomeKind.SUCCEEDED] and outcomes.count(OutcomeKind.SUCCEEDED) >= 3

    outcome = database.here(lambda: forward(claim, lambda job: leave_block(database)))
    assert outcome.exception == "django_delayq.exceptions.TransactionLeftOpen"
    assert database.value == 4
    assert_writes_are_kept(database)


def test_a_block_in_which_the_task_closed_its_connection_is_over(database: Database) -> None:
    def closes() -> None:
        with pytest.raises(TransactionManagementError), transaction.atomic(ALIAS):
            connections[ALIAS].close()
            database.write(1)

    database.run(closes)
    assert_writes_are_kept(database)
