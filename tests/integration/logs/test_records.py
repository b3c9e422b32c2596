"""Records about jobs: each failed attempt has its exception and fields, and a filter adds the job to other records."""

import asyncio
import json
import logging
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from _pytest.logging import LogCaptureHandler

from django_delayq import RetryLater, RetryPolicy, Snooze
from django_delayq.logs import JobFilter
from django_delayq.signals import keep_to_one_line
from django_delayq.task import registry
from django_delayq.task.task import Task
from django_delayq.testing import DelayQ
from django_delayq.worker.execution import run_async
from tests.integration.worker.execution.claims import claim_of
from tests.subprocesses import Command, Processes

TWICE = RetryPolicy(max_attempts=2, base=0.01, cap=0.01)
#: A project's LOGGING that prints each record as JSON, with the fields of jobs and the text of its exception.
LOGGING = """
import json, logging
class AsJson(logging.Formatter):
    def format(self, record):
        names = ("levelname", "name", "job_id", "task", "queue", "attempt")
        fields = {name: getattr(record, name) for name in names}
        error = record.exc_info and record.exc_info[1]
        kind = f"{type(error).__module__}.{type(error).__name__}" if error else None
        return json.dumps(
            {**fields, "error": error and str(error), "kind": kind, "text": super().format(record)}
        )
LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"job": {"()": "django_delayq.logs.JobFilter"}},
    "formatters": {"json": {"()": AsJson}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "json", "filters": ["job"]}},
    "root": {"handlers": ["console"], "level": "INFO"},
}
"""


@pytest.fixture
def make_task(registered: Any) -> Callable[..., Task[Any, Any]]:
    """Make a task of any function."""
    registered()

    def make(func: Any, **options: Any) -> Task[Any, Any]:
        task: Task[Any, Any] = Task(func=func, name="shop.tasks.play", queue="mail", retry=TWICE, **options)
        registry._tasks[task.name] = task
        return task

    return make


def about(records: list[logging.LogRecord], job_id: str) -> list[logging.LogRecord]:
    """Return the package's records of a job from WARNING on."""
    return [
        record
        for record in records
        if record.name == "django_delayq" and record.levelno >= logging.WARNING and vars(record)["job_id"] == job_id
    ]


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_each_failed_attempt_has_its_exception_and_fields(
    make_task: Any, delayq: DelayQ, caplog: pytest.LogCaptureFixture, is_async: bool
) -> None:
    error = ValueError("no money")

    def func() -> None:
        raise error

    async def coroutine() -> None:
        raise error

    job = make_task(coroutine if is_async else func).enqueue()
    delayq.drain(errors="retry")
    retried, dead = about(caplog.records, job.id)
    assert (retried.levelname, dead.levelname) == ("WARNING", "ERROR")
    for number, record in enumerate((retried, dead), 1):
        assert record.exc_info and record.exc_info[1] is error
        fields = vars(record)
        assert (fields["task"], fields["queue"], fields["attempt"]) == ("shop.tasks.play", "mail", number)
        # The traceback of the task itself, for people and for trackers.
        assert (record.exc_text or "").rstrip().endswith("ValueError: no money")
        assert "coroutine" if is_async else "func" in (record.exc_text or "")


def test_a_request_for_another_attempt_is_no_failure_but_the_error_behind_it_is(
    make_task: Any, delayq: DelayQ, caplog: pytest.LogCaptureFixture
) -> None:
    behind = ConnectionError("the bank does not answer")
    raised: list[BaseException | None] = [None, behind]

    def func() -> None:
        raise RetryLater(1) from raised.pop(0)

    job = make_task(func).enqueue()
    delayq.drain(errors="retry")
    asked, dead = about(caplog.records, job.id)
    assert (asked.levelname, asked.exc_info) == ("WARNING", None)
    assert dead.levelname == "ERROR" and dead.exc_info and dead.exc_info[1] is behind
    raised += [behind, None]
    again = make_task(func).enqueue()
    delayq.drain(errors="retry")
    asked, dead = about(caplog.records, again.id)
    assert asked.exc_info and asked.exc_info[1] is behind
    # Nothing but the request is left to show.
    assert dead.levelname == "ERROR" and dead.exc_info and isinstance(dead.exc_info[1], RetryLater)


@pytest.mark.parametrize("kind", [RetryLater, Snooze])
def test_an_exception_that_a_request_hides_is_in_no_record(
    make_task: Any, delayq: DelayQ, caplog: pytest.LogCaptureFixture, kind: type[Exception]
) -> None:
    caplog.set_level(logging.INFO)

    def func() -> None:
        try:
            raise ConnectionError("the bank does not answer")
        except ConnectionError:
            raise kind(1) from None

    make_task(func).enqueue()
    delayq.run_due(errors="retry")
    [record] = [
        each for each in caplog.records if "again" in each.getMessage() or "put the job off" in each.getMessage()
    ]
    assert record.exc_info is None


class Large:
    """A variable of a task."""


@pytest.mark.parametrize("request_kind", [None, RetryLater], ids=repr)
def test_the_variables_of_a_failed_task_are_freed_without_the_garbage_collector(
    make_task: Any, delayq: DelayQ, no_collector: None, request_kind: type[Exception] | None
) -> None:
    alive: list[weakref.ref[Large]] = []

    def func() -> None:
        large = Large()
        alive.append(weakref.ref(large))
        try:
            raise ValueError("no money")
        except ValueError:
            if request_kind is None:
                raise
            raise request_kind()  # noqa: B904

    make_task(func).enqueue()
    delayq.drain(errors="retry")
    assert len(alive) == 2
    for handler in logging.getLogger().handlers:
        # Those of pytest keep every record.
        if isinstance(handler, LogCaptureHandler):
            handler.clear()
    assert [one() for one in alive] == [None, None]


def test_the_variables_of_a_failed_coroutine_are_freed_with_its_outcome(make_task: Any, no_collector: None) -> None:
    alive: list[weakref.ref[Large]] = []

    async def func() -> None:
        large = Large()
        alive.append(weakref.ref(large))
        await asyncio.sleep(0)
        raise ValueError("no money")

    outcome = asyncio.run(run_async(claim_of(make_task(func).name)))
    [large] = alive
    assert large() is not None and "no money" in outcome.error
    del outcome
    assert large() is None


def test_the_filter_adds_the_running_job_and_leaves_other_records_alone(
    make_task: Any, delayq: DelayQ, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.handler.addFilter(JobFilter())
    caplog.set_level(logging.INFO)
    shop = logging.getLogger("shop")

    def func() -> None:
        shop.info("inside")
        shop.info("own", extra={"task": "my own"})

    job = make_task(func).enqueue()
    delayq.run_due()
    shop.info("outside")
    records = [vars(record) for record in caplog.records if record.name == "shop"]
    names = ("job_id", "task", "queue", "attempt")
    assert [tuple(record[name] for name in names) for record in records] == [
        (job.id, "shop.tasks.play", "mail", 1),
        (job.id, "my own", "mail", 1),
        (None, None, None, None),
    ]


def test_a_traceback_starts_no_line_under_any_formatter() -> None:
    class Nasty(Exception):
        def __str__(self) -> str:
            return "x\r1999-01-01 ERROR forged\n1999-01-01 ERROR forged\x1b[2K"

    record = logging.LogRecord("django_delayq", logging.ERROR, "f", 1, "a sentence", (), (Nasty, Nasty(), None))
    assert keep_to_one_line(record)
    lines = logging.Formatter("%(levelname)s %(message)s").format(record).splitlines()
    assert lines[0] == "ERROR a sentence" and len(lines) == 3
    assert all(line.startswith("    ") for line in lines[1:])


def test_an_exception_that_cannot_be_printed_loses_no_record() -> None:
    class Unprintable(type):
        @property
        def __module__(cls) -> str:  # type: ignore[override]
            raise SystemExit

    error = Unprintable("Broken", (Exception,), {})()
    record = logging.LogRecord("django_delayq", logging.ERROR, "f", 1, "a sentence", (), (type(error), error, None))
    assert keep_to_one_line(record)
    assert "cannot be printed" in (record.exc_text or "")


@pytest.fixture
def read_records(processes: Processes, shop: ModuleType) -> Callable[[Command, str], list[Any]]:
    """Let processes log JSON; return the records about a job in the output of one."""
    with open(processes.folder / "process_settings.py", "a") as project:
        project.write(LOGGING)
    processes.dispatcher()

    def read(worker: Command, job_id: str) -> list[Any]:
        records = [json.loads(line) for line in worker.output.splitlines() if line.startswith("{")]
        return [record for record in records if record["job_id"] == job_id]

    return read


@pytest.mark.parametrize("pool", ["threads", "processes", "asyncio"])
def test_in_every_pool_the_record_has_the_exception_and_the_tasks_own_records_the_job(
    shop: ModuleType, read_records: Any, run_until_dead: Callable[..., Command], pool: str
) -> None:
    jobs = [shop.fail.enqueue(1), shop.fail_async.enqueue(2)]
    worker = run_until_dead(pool, *jobs)
    for job, name in zip(jobs, ("fail", "fail_async"), strict=True):
        mine = read_records(worker, job.id)
        task = f"shop_tasks.{name}"
        assert {(record["task"], record["queue"]) for record in mine} == {(task, "mail")}
        ours = [record for record in mine if record["name"] == "django_delayq"]
        assert [(record["levelname"], record["attempt"]) for record in ours] == [("WARNING", 1), ("ERROR", 2)]
        assert {(record["kind"], record["error"]) for record in ours} == {("shop_tasks.ShopError", "no money\nleft")}
        assert all(f"in {name}\n" in record["text"] for record in ours), ours
        theirs = [record for record in mine if record["name"] == "shop"]
        assert [record["attempt"] for record in theirs] == [1, 2]


def test_a_crash_has_an_exception_too(
    shop: ModuleType, read_records: Any, run_until_dead: Callable[..., Command]
) -> None:
    job = shop.crash.enqueue()
    mine = read_records(run_until_dead("processes", job), job.id)
    assert [(record["levelname"], record["kind"]) for record in mine] == [
        ("WARNING", "django_delayq.exceptions.JobCrashed"),
        ("ERROR", "django_delayq.exceptions.JobCrashed"),
    ]
    assert "exit code 9" in mine[0]["error"]


def test_the_console_of_a_worker_shows_the_traceback(
    processes: Processes, shop: ModuleType, run_until_dead: Callable[..., Command]
) -> None:
    processes.dispatcher()
    worker = run_until_dead("threads", shop.fail.enqueue(1))
    dead = worker.output[worker.output.index("is dead after attempt 2") :]
    assert "\n    Traceback (most recent call last):\n" in dead
    assert '      File "' in dead and "in fail\n" in dead and "\n    shop_tasks.ShopError: no money\n" in dead
