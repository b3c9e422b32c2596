"""Scenarios of the Django project: each on a new PostgreSQL, with the rows of the database as the count.

The server is that of `tests/databases/`. It does not wait for the disk (fsync is off), because the disk would be the
figure of every system.
"""

import contextlib
import json
from collections.abc import Iterator

import psycopg

from benchmarks.run_record import InvalidRun
from benchmarks.sizes import Sizes
from benchmarks.trial import Trial, TrialFailed, running_trial
from tests.databases.servers import ServerMissing, postgresql

Figures = dict[str, float]


class Tables:
    """The tables of the project, read by a connection of our own."""

    def __init__(self, connection: psycopg.Connection) -> None:
        self._connection = connection

    def check(self, table: str, column: str, count: int, *, each: int = 1) -> None:
        """Raise `InvalidRun` unless the table has `each` rows for each number below `count`."""
        [(rows, numbers)] = self._connection.execute(
            f"SELECT count(*), count(DISTINCT {column}) FROM django_jobs_{table} WHERE {column} < %s", (count,)
        ).fetchall()
        if (rows, numbers) != (each * count, count):
            raise InvalidRun(f"the database has {rows:,} rows of {numbers:,} {table}s instead of {each} of {count:,}")


def django_run(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Run jobs that each read one row and write one, 8 at a time."""
    with _running_project(system, configuration, jobs=sizes.django_jobs) as (trial, tables):
        trial.start_workers()
        figures = trial.drain("sell", sizes.django_jobs, limit=4 * sizes.limit)
        if figures["ran"] < sizes.django_jobs:
            raise InvalidRun(f"{figures['ran']:,.0f} of {sizes.django_jobs:,} jobs had run in time")
        tables.check("sale", "job", sizes.django_jobs)
    return figures


def django_requests(system: str, configuration: str, sizes: Sizes) -> Figures:
    """Handle requests one by one that write a row and enqueue a job in a transaction, and then run the jobs."""
    requests = sizes.django_requests
    with _running_project(system, configuration, jobs=requests) as (trial, tables):
        trial.run_producer("prepare")
        figures: Figures = trial.run_producer("requests", first=0, count=requests)
        tables.check("order", "number", requests, each=2)
        trial.start_workers()
        trial.runs.wait(0, requests, seconds=4 * sizes.limit, check_alive=trial.check_workers)
        trial.runs.check(0, requests)
        tables.check("sale", "job", requests)
    return figures


@contextlib.contextmanager
def _running_project(system: str, configuration: str, *, jobs: int) -> Iterator[tuple[Trial, Tables]]:
    environment = {"BENCH_SYSTEM": system, "DJANGO_SETTINGS_MODULE": "benchmarks.django_jobs.settings"}
    adapters = "benchmarks.django_jobs.peers"
    try:
        with (
            postgresql() as entry,
            running_trial(
                system, configuration, jobs=jobs, adapters=adapters, BENCH_DATABASE=json.dumps(entry), **environment
            ) as trial,
            psycopg.connect(
                host=entry["HOST"], user=entry["USER"], dbname=entry["NAME"], autocommit=True
            ) as connection,
        ):
            yield trial, Tables(connection)
    except ServerMissing as error:
        raise TrialFailed(str(error)) from error
