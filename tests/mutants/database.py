"""Mutants of database, each with the tests of which one must fail."""

from tests.machine.planted_bugs import PlantedBug

at = PlantedBug.at
CONNECTIONS = "tests/databases/test_connections.py"

MUTANTS: dict[PlantedBug, tuple[str, ...]] = {
    at(
        "the driver is not asked about transactions",
        "database.py",
        "    return ask is not None and ask(driver, connection.autocommit)\n",
        "    return False\n",
    ): (CONNECTIONS,),
    at(
        "a time limit leaves the connections as they are",
        "execution.py",
        "            if limit.struck:\n                database.distrust()\n",
        "            pass\n",
    ): (CONNECTIONS,),
    at(
        "a success may leave a transaction open",
        "execution.py",
        "return failed(left_open) if left_open and outcome.ending is Ending.SUCCEEDED else outcome",
        "return outcome",
    ): (CONNECTIONS,),
    at(
        "a connection is closed with its block still open",
        "database.py",
        "    connection.in_atomic_block = connection.needs_rollback = connection.closed_in_transaction = False\n",
        "",
    ): (CONNECTIONS,),
    at(
        "commit hooks of another job's transaction stay",
        "database.py",
        "connection.in_atomic_block or connection.savepoint_ids or connection.run_on_commit",
        "connection.in_atomic_block or connection.savepoint_ids",
    ): (CONNECTIONS,),
}
