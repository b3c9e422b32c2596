"""The supplied middleware of Sentry's crons, with its real SDK: one check-in for each job of a schedule."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextvars import Context
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any, ClassVar

import pytest
import sentry_sdk
from sentry_sdk.envelope import Envelope
from sentry_sdk.transport import Transport

from django_delayq import DeadLetterNow, RetryPolicy, Snooze
from django_delayq.job.job import Occurrence
from django_delayq.job.outcome import OutcomeKind
from django_delayq.middleware.sentry_crons import SentryCronsMiddleware, slug_of
from django_delayq.task import registry
from django_delayq.task.task import Task
from django_delayq.testing import DelayQ
from django_delayq.worker.execution import run, run_async
from tests.integration.worker.execution.claims import claim_of, raises
from tests.shard_apis import NINE
from tests.subprocesses import ROOT, Processes

PATH = "django_delayq.middleware.sentry_crons.SentryCronsMiddleware"
DSN = "http://key@127.0.0.1:1/1"
#: What a project puts into its settings. Only the transport is not what it would use.
SETTINGS = """
import json, sentry_sdk
from sentry_sdk.transport import Transport

class Collecting(Transport):
    def capture_envelope(self, envelope):
        with open({path!r}, "a") as collected:
            for item in envelope.items:
                if item.type == "check_in":
                    collected.write(json.dumps(item.payload.json) + "\\n")

sentry_sdk.init(dsn="http://key@127.0.0.1:1/1", transport=Collecting)
"""
#: What Sentry's client sent in this process.
sent: list[dict[str, Any]] = []


class Collecting(Transport):
    """Keeps check-ins instead of sending them."""

    def capture_envelope(self, envelope: Envelope) -> None:
        sent.extend(item.payload.json for item in envelope.items if item.type == "check_in")


class Chosen(SentryCronsMiddleware):
    """What a project changes."""

    def slug(self, job: Any) -> str | None:
        return None if job.schedule.startswith("digest:") else f"{job.schedule}-{job.occurrence:%H%M}"

    def monitor_config(self, job: Any) -> dict[str, Any] | None:
        config = super().monitor_config(job)
        return config and {**config, "max_runtime": 90}


class Reading(SentryCronsMiddleware):
    """Records whether the schedule is read in the thread of an event loop."""

    in_loops: ClassVar[list[bool]] = []

    def monitor_config(self, job: Any) -> dict[str, Any] | None:
        self.in_loops.append(asyncio._get_running_loop() is not None)
        return super().monitor_config(job)


@pytest.fixture
def check_ins(delayq_settings: Any, registered: Any) -> Iterator[list[dict[str, Any]]]:
    """The check-ins of one test, as Sentry would get them."""
    registered()
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "MIDDLEWARE": [PATH]}
    sent.clear()
    sentry_sdk.init(dsn=DSN, transport=Collecting, default_integrations=False, environment="test")
    yield sent
    # `init()` would patch `subprocess` for the tests that follow.
    sentry_sdk.get_global_scope().set_client(None)


@pytest.fixture
def delayq(check_ins: Any) -> Iterator[DelayQ]:
    """A queue of this test, at nine on a Monday."""
    with DelayQ() as queue:
        queue.advance_to(NINE)
        yield queue


def task_of(func: Any, **options: Any) -> Task[Any, Any]:
    retry = RetryPolicy(max_attempts=2, base=0.01, cap=0.01)
    task: Task[Any, Any] = Task(func=func, **{"name": "shop.tasks.play", "retry": retry, **options})
    registry._tasks[task.name] = task
    return task


def statuses(check_ins: list[dict[str, Any]]) -> list[str]:
    """Return the statuses, of one check-in."""
    assert len({each["check_in_id"] for each in check_ins}) <= 1
    return [each["status"] for each in check_ins]


def run_once(delayq: DelayQ, func: Any) -> Task[Any, Any]:
    """Run one occurrence of a schedule to its end."""
    task = task_of(func)
    task.schedules.set("nightly", cron="0 3 * * *", tz="Europe/Berlin")
    delayq.run_due()
    delayq.advance_to(NINE.replace(day=5, hour=2))
    delayq.drain(errors="retry")
    return task


@pytest.mark.parametrize("is_async", [False, True], ids=["plain", "async"])
def test_a_check_in_begins_and_ends_with_a_job(delayq: DelayQ, check_ins: Any, is_async: bool) -> None:
    seen: list[list[str]] = []

    def func() -> None:
        seen.append(statuses(check_ins))

    async def coroutine() -> None:
        func()

    run_once(delayq, coroutine if is_async else func)
    assert seen == [["in_progress"]]
    begun, ended = check_ins
    assert begun["check_in_id"] == ended["check_in_id"]
    assert (begun["status"], ended["status"]) == ("in_progress", "ok")
    assert {each["monitor_slug"] for each in check_ins} == {"shop-tasks-play-nightly"}
    assert {each["environment"] for each in check_ins} == {"test"}
    assert begun["monitor_config"] == {
        "schedule": {"type": "crontab", "value": "0 3 * * *"},
        "timezone": "Europe/Berlin",
    }
    assert "monitor_config" not in ended


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ([ValueError("once")], ["in_progress", "ok"]),
        ([ValueError("once"), ValueError("twice")], ["in_progress", "error"]),
        ([DeadLetterNow("never")], ["in_progress", "error"]),
        ([ValueError("once"), DeadLetterNow("never")], ["in_progress", "error"]),
        # The attempt does not count, so it begins anew.
        ([Snooze(0.1)], ["in_progress", "in_progress", "ok"]),
    ],
    ids=["retried", "failed for good", "given up", "given up later", "snoozed"],
)
def test_only_the_last_attempt_ends_a_check_in(
    delayq: DelayQ, check_ins: Any, errors: list[Exception], expected: list[str]
) -> None:
    def func() -> None:
        if errors:
            raise errors.pop(0)

    run_once(delayq, func)
    assert statuses(check_ins) == expected


def test_jobs_without_an_occurrence_have_no_check_in(delayq: DelayQ, check_ins: Any) -> None:
    ran: list[int] = []
    task = task_of(ran.append)
    task.schedules.set("nightly", cron="0 3 * * *", args=[1])
    task.enqueue(2)
    by_hand = task.schedules.get("nightly")
    assert by_hand
    by_hand.run_now()
    delayq.run_due()
    assert sorted(ran) == [1, 2]
    assert check_ins == []


def test_jobs_that_do_not_begin_have_no_check_in(delayq: DelayQ, check_ins: Any) -> None:
    task = task_of(lambda: None)
    task.schedules.set("late", every=3_600, catch_up="none", window=60)
    delayq.run_due()
    delayq.advance(hours=1, minutes=2)
    delayq.run_due()
    late = task.schedules.get("late")
    assert late
    assert late.last
    assert late.last.outcome == "expired"
    assert check_ins == []


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"cron": "0 9 * * mon-fri", "tz": "UTC"}, {"type": "crontab", "value": "0 9 * * MON-FRI"}),
        ({"cron": "@midnight", "tz": "UTC"}, {"type": "crontab", "value": "0 0 * * *"}),
        ({"cron": "30 */5 * * * *", "tz": "UTC"}, {"type": "crontab", "value": "*/5 * * * *"}),
        ({"cron": "*/20 * * * * *", "tz": "UTC"}, None),
        ({"every": timedelta(days=2)}, {"type": "interval", "value": 2, "unit": "day"}),
        ({"every": timedelta(hours=36)}, {"type": "interval", "value": 36, "unit": "hour"}),
        ({"every": 300}, {"type": "interval", "value": 5, "unit": "minute"}),
        ({"every": 90}, None),
        ({"every": 30}, None),
    ],
)
def test_the_rule_of_the_schedule_is_that_of_the_monitor(
    check_ins: Any, options: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    task = task_of(lambda: None)
    task.schedules.set("each", **options)
    run(claim_of(task.name, occurrence=Occurrence("each", 1)))
    found = check_ins[0].get("monitor_config")
    zone = {"timezone": "UTC"} if "cron" in options else {}
    assert found == (expected and {"schedule": expected, **zone})


@pytest.mark.parametrize(("jitter", "margin"), [(0, None), (1, 2), (60, 2), (61, 3), (300, 6)])
def test_a_job_is_missed_after_the_jitter(check_ins: Any, jitter: int, margin: int | None) -> None:
    task = task_of(lambda: None)
    task.schedules.set("each", every=3_600, jitter=jitter)
    run(claim_of(task.name, occurrence=Occurrence("each", 1)))
    assert check_ins[0]["monitor_config"].get("checkin_margin") == margin


@pytest.mark.parametrize("outage", [False, True], ids=["deleted", "outage"])
def test_without_its_schedule_a_job_runs_and_its_monitor_stays(
    check_ins: Any, delayq_settings: Any, outage: bool
) -> None:
    if outage:
        delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "REDIS": "redis://127.0.0.1:1/0", "ENQUEUE_TIMEOUT": 0.2}
    task = task_of(lambda: None)
    outcome = run(claim_of(task.name, occurrence=Occurrence("gone", 1)))
    assert outcome.kind is OutcomeKind.SUCCEEDED, outcome.error
    assert statuses(check_ins) == ["in_progress", "ok"]
    assert "monitor_config" not in check_ins[0]


class Link:
    """The link of a job that was asked to stop, or was not."""

    def __init__(self, should_stop: bool) -> None:
        self.should_stop = should_stop

    def report_progress(self, progress: Any) -> None: ...


@pytest.mark.parametrize(
    ("should_stop", "expected"), [(True, ["in_progress", "error"]), (False, ["in_progress"])], ids=["stop", "deploy"]
)
def test_a_cancelled_run_ends_a_check_in_only_if_it_was_stopped(
    check_ins: Any, should_stop: bool, expected: list[str]
) -> None:
    task = task_of(raises(asyncio.CancelledError()))
    run(claim_of(task.name, occurrence=Occurrence("each", 1)), Link(should_stop))
    assert statuses(check_ins) == expected


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (None, ["in_progress", "ok"]),
        (ValueError("once"), ["in_progress"]),
        (DeadLetterNow("never"), ["in_progress", "error"]),
    ],
    ids=["done", "retried", "failed"],
)
def test_in_an_event_loop_the_schedule_is_read_elsewhere(
    delayq_settings: Any, check_ins: Any, error: Exception | None, expected: list[str]
) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "MIDDLEWARE": [f"{__name__}.Reading"]}
    Reading.in_loops.clear()

    async def coroutine() -> None:
        if error:
            raise error

    task = task_of(coroutine)
    task.schedules.set("each", every=60)

    async def main() -> None:
        await asyncio.Task(
            run_async(claim_of(task.name, retry=task.retry, occurrence=Occurrence("each", 1))), context=Context()
        )

    asyncio.run(main())
    assert Reading.in_loops == [False]
    assert statuses(check_ins) == expected
    assert check_ins[0]["monitor_config"]["schedule"]["value"] == 1


def test_a_project_chooses_monitors_and_their_slugs(delayq_settings: Any, delayq: DelayQ, check_ins: Any) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "MIDDLEWARE": [f"{__name__}.Chosen"]}
    task = task_of(lambda: None)
    task.schedules.set("digest:42", every=3_600)
    task.schedules.set("hourly", every=3_600)
    delayq.run_due()
    delayq.advance(hours=1)
    delayq.run_due()
    assert {each["monitor_slug"] for each in check_ins} == {"hourly-1000"}
    assert check_ins[0]["monitor_config"] == {
        "schedule": {"type": "interval", "value": 1, "unit": "hour"},
        "max_runtime": 90,
    }


@pytest.mark.parametrize(
    ("task", "schedule", "slug"),
    [
        ("shop.tasks.report", "default", "shop-tasks-report"),
        ("shop.tasks.send_orders", "morning", "shop-tasks-send_orders-morning"),
        ("shop.tasks.report", "a" * 32, f"shop-tasks-report-{'a' * 32}"),
        ("shop.tasks.report", "a" * 33, f"shop-tasks-report-{'a' * 23}-"),
        ("shop.tasks.report", "user:42", "shop-tasks-report-user-42-"),
        ("shop.tasks.report", "Morning", "shop-tasks-report-morning-"),
        ("shop.tasks.report", "a b", "shop-tasks-report-a-b-"),
        ("shop.tasks.report", "日報", "shop-tasks-report-"),
        ("日", "報", "schedule-"),
        ("5", "default", "5-"),
    ],
)
def test_slugs_are_what_sentry_accepts_and_tell_schedules_apart(task: str, schedule: str, slug: str) -> None:
    found = slug_of(task, schedule)
    assert len(found) <= 50
    assert not set(found) - set("abcdefghijklmnopqrstuvwxyz0123456789-_")
    assert "--" not in found
    assert found.startswith(slug)
    # A digest follows.
    assert len(found) == len(slug) + (8 if slug.endswith("-") else 0)
    assert slug_of(task, f"{schedule} ") != found


def test_without_a_client_of_sentry_nothing_happens(delayq: DelayQ, check_ins: Any) -> None:
    sentry_sdk.get_global_scope().set_client(None)
    task = run_once(delayq, lambda: None)
    nightly = task.schedules.get("nightly")
    assert nightly
    assert nightly.last
    assert nightly.last.outcome == "done"
    assert check_ins == []


@pytest.mark.parametrize("pool", ["threads", "processes", "asyncio"])
def test_check_ins_come_from_the_process_that_runs_the_task(
    check_ins: Any, processes: Processes, task_module: Callable[[str, str], ModuleType], pool: str
) -> None:
    shop = task_module("shop_tasks", "from django_delayq import delayed_task\n@delayed_task\nasync def play(): pass\n")
    processes.configure(MIDDLEWARE=[PATH])
    path = processes.folder / "check_ins"
    with open(processes.folder / "process_settings.py", "a") as project:
        project.write(SETTINGS.format(path=str(path)))
    processes.dispatcher()
    processes.worker(f"--pool={pool}", "--concurrency=1")
    # Within bounds of an hour: one job.
    soon = datetime.now(UTC) + timedelta(seconds=1)
    shop.play.schedules.set("once", every=3_600, start=soon, end=soon + timedelta(minutes=1))
    lines = processes.until(
        lambda: path.exists() and path.read_text().count("\n") == 2 and path.read_text().splitlines(),
        what="the check-in of the run",
    )
    begun, ended = map(json.loads, lines)
    assert begun["check_in_id"] == ended["check_in_id"]
    assert (begun["status"], ended["status"]) == ("in_progress", "ok")
    assert begun["monitor_slug"] == "shop_tasks-play-once"
    assert begun["monitor_config"]["schedule"] == {"type": "interval", "value": 1, "unit": "hour"}


def test_without_its_package_the_error_names_the_extra() -> None:
    program = f"""
import sys
sys.modules["sentry_sdk"] = None
import django
from django.conf import settings
settings.configure(DELAYQ={{"REDIS": "redis://127.0.0.1:1/0", "MIDDLEWARE": [{PATH!r}]}})
django.setup()
from django_delayq.checks import check_middleware
print(check_middleware()[0].msg)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert "pip install 'django-delayq[sentry]'" in done.stdout, done.stderr
