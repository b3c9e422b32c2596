"""The commands on limits and paused tasks: what they show, pause and resume, and what they refuse."""

import re
from typing import Any

import pytest
from django.core.management import CommandError

from django_delayq import delayed_task, get_store, limit
from django_delayq.management.operating import NOT_FOUND, WRONG_OPTIONS
from django_delayq.metrics import MetricsBuffer
from django_delayq.store.claims import Claims
from django_delayq.store.process_reports import ProcessReports
from django_delayq.worker.claiming.turned_away import turn_away
from django_delayq.worker.settlement import decide_settlement
from tests.integration.commands.operating.printed import read, run
from tests.sample_app import tasks

LIMITS = {"hourly": {"rate": "2/h", "burst": 1}, "single": {"max_running": 1}, "accounts": {"max_running": 1}}
NOOP = tasks.noop.name


@delayed_task(limit=("accounts", lambda account: account))
def charge(account: int) -> None:
    """Have a limit for each account."""


@pytest.fixture(autouse=True)
def _limits(delayq_settings: Any, redis_url: str) -> None:
    """Limits, as a worker stores them."""
    delayq_settings.DELAYQ = {"REDIS": redis_url, "ON_COMMIT": False, "LIMITS": LIMITS}
    get_store().store_limits()


def work() -> None:
    """Let a worker claim what it may, and turn away the jobs of paused tasks."""
    worker = Claims(get_store().shards[0])
    reply = worker.settle_and_claim(worker.prepare(queues=["default"], want=8))
    settlements = [decide_settlement(claim, outcome, worker="w") for claim, outcome in turn_away(reply)[1]]
    worker.settle_and_claim(worker.prepare(queues=["default"], want=0, settlements=settlements))


def row_of(first: str) -> str:
    """Return the line of `delayq_stats` that begins so."""
    [line] = [line for line in run("delayq_stats").splitlines() if line.startswith(f"{first} ")]
    return " ".join(line.split())


def test_stats_show_each_limit() -> None:
    for name in ("hourly", "single"):
        for _ in range(2):
            tasks.noop.using(limit=name).enqueue()
    work()
    assert row_of("limit") == "limit running waiting next"
    assert row_of("single") == "single 1 1 when a job ends"
    assert re.fullmatch(r"hourly 1 1 20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ", row_of("hourly"))
    assert row_of("accounts") == "accounts 0 0 differs by value"
    found = read("delayq_stats")
    assert found["limits"]["single"] == {
        **{"running": 1, "waiting": 1, "open": False, "opens": None, "by_value": False, "backs_off_until": None}
    }
    assert found["limits"]["hourly"]["opens"] > found["time"]
    assert "paused_tasks" not in found


def test_stats_show_an_open_limit_and_one_whose_task_backed_off() -> None:
    assert row_of("single") == "single 0 0 now"
    limit("single").back_off(3_600)
    assert " backs off until 20" in row_of("single")
    assert read("delayq_stats")["limits"]["single"]["backs_off_until"]


def test_stats_of_a_project_without_limits_have_no_such_sections(delayq_settings: Any, redis_url: str) -> None:
    delayq_settings.DELAYQ = {"REDIS": redis_url}
    assert not {"limits", "paused_tasks"} & read("delayq_stats").keys()
    assert "limit" not in run("delayq_stats") and "paused" not in run("delayq_stats")


def test_a_task_is_paused_and_resumed() -> None:
    command = ("delayq_pause", "--task", NOOP)
    tasks.noop.enqueue()
    assert run(*command, "--dry-run") == f"Would pause task {NOOP}.\n"
    assert read(*command, "--dry-run") == {"dry_run": True, "changed": 0, "tasks": [NOOP]}
    assert not tasks.noop.is_paused
    assert run(*command, "--yes") == f"Paused task {NOOP}.\n"
    assert tasks.noop.is_paused
    assert run(*command, "--yes") == f"No change for task {NOOP}.\n"
    assert run(*command, "--dry-run") == f"No change for task {NOOP}.\n"
    work()
    found = read("delayq_stats")["paused_tasks"]
    assert list(found) == [NOOP]
    assert found[NOOP]["waiting"] == 1 and found[NOOP]["paused_by"]
    assert row_of(NOOP).startswith(f"{NOOP} 1 {found[NOOP]['paused_by']}, 20")
    assert read("delayq_resume", "--task", NOOP, "--yes") == {"changed": 1, "tasks": [NOOP]}
    assert not tasks.noop.is_paused
    assert read("delayq_resume", "--task", NOOP, "--yes") == {"changed": 0, "tasks": []}


def test_the_end_of_a_name_is_enough() -> None:
    assert run("delayq_pause", "--task", "sample_app.tasks.noop", "--yes") == f"Paused task {NOOP}.\n"
    assert run("delayq_resume", "--task", "tasks.noop", "--yes") == f"Resumed task {NOOP}.\n"


@pytest.mark.parametrize("name", ["shop.tasks.bill", "old.bill", "tasks.bill", "bill"])
def test_the_aliases_of_a_task_are_paused_with_it(name: str, registered: Any) -> None:
    registered({})
    delayed_task(name="shop.tasks.bill", aliases=["old.bill"])(charge.func)
    assert run("delayq_pause", "--task", name, "--yes") == "Paused task shop.tasks.bill.\n"
    assert get_store().limits(0).paused_tasks().keys() == {"shop.tasks.bill", "old.bill"}
    get_store().operations(0).limits.resume_task("shop.tasks.bill")
    assert run("delayq_resume", "--task", name, "--dry-run") == "Would resume task shop.tasks.bill.\n"
    assert run("delayq_pause", "--task", name, "--dry-run") == "Would pause task shop.tasks.bill.\n"
    assert run("delayq_resume", "--task", name, "--yes") == "Resumed task shop.tasks.bill.\n"
    assert not get_store().limits(0).paused_tasks()


def test_a_paused_task_that_is_not_registered_is_resumed() -> None:
    get_store().operations(0).limits.pause_task("gone.task", by="ann")
    assert run("delayq_resume", "--task", "gone.task", "--yes") == "Resumed task gone.task.\n"


@pytest.mark.parametrize("command", ["delayq_pause", "delayq_resume"])
@pytest.mark.parametrize(
    ("arguments", "words", "code"),
    [
        ((), "Name one or more queues, or a task with --task", WRONG_OPTIONS),
        (("default", "--task", NOOP), "leave the queues and --tenant out", WRONG_OPTIONS),
        (("--task", NOOP, "--tenant", "acme"), "leave the queues and --tenant out", WRONG_OPTIONS),
        (("--task", f"{NOOP}x"), f"No task is registered or paused as .*did you mean '{NOOP}'", NOT_FOUND),
        (("--task", ""), "No task is registered or paused", NOT_FOUND),
        (("--task", "twice"), "Several tasks end with 'twice': a.twice, b.twice.", WRONG_OPTIONS),
    ],
)
def test_wrong_options_are_refused(arguments: tuple[str, ...], words: str, code: int, command: str) -> None:
    for name in ("a.twice", "b.twice"):
        get_store().operations(0).limits.pause_task(name, by="ann")
    with pytest.raises(CommandError, match=words) as raised:
        run(command, *arguments, "--yes")
    assert raised.value.returncode == code


def test_a_task_is_not_paused_until_a_time() -> None:
    with pytest.raises(CommandError, match="--until is for queues; a task is paused until it is resumed"):
        run("delayq_pause", "--task", NOOP, "--until", "10m", "--yes")
    assert not tasks.noop.is_paused


def test_dropped_jobs_are_counted() -> None:
    tasks.noop.enqueue()
    metrics = MetricsBuffer()
    metrics.count_attempt("dropped", queue="default", task=NOOP)
    ProcessReports(get_store().shards[0]).deregister(b"8 bytes.", metrics.take())
    assert read("delayq_stats")["dropped_last_hour"] == 1
    assert row_of("queue").endswith("dropped/h")


def test_jobs_say_what_they_wait_for() -> None:
    first = tasks.noop.using(limit=("accounts", "a b")).enqueue()
    waiting = tasks.noop.using(limit=("accounts", "a b")).enqueue()
    work()
    assert waiting.refresh().waiting_for == "limit accounts (a b)"
    assert first.refresh().waiting_for is None
    found = {each["id"]: each["waiting_for"] for each in read("delayq_jobs")}
    assert found == {first.id: None, waiting.id: "limit accounts (a b)"}
    assert "  waits for limit accounts (a b)" in run("delayq_jobs", "--state", "ready")
    assert "waiting_for   limit accounts (a b)" in run("delayq_jobs", waiting.id)


def test_jobs_of_a_paused_task_say_so() -> None:
    tasks.noop.pause()
    job = tasks.noop.enqueue()
    assert job.waiting_for is None
    work()
    assert job.refresh().waiting_for == "paused task"
    assert read("delayq_jobs")[0]["waiting_for"] == "paused task"


def test_the_value_of_a_limit_of_hidden_arguments_is_hidden(registered: Any) -> None:
    for _ in range(2):
        tasks.noop.using(limit=("accounts", "secret")).enqueue()
    work()
    # All arguments of an unknown task are hidden.
    registered({})
    assert "secret" not in run("delayq_jobs") and "waits for limit accounts (•••)" in run("delayq_jobs")


def test_unknown_limits_do_not_break_the_view(delayq_settings: Any, redis_url: str) -> None:
    for _ in range(2):
        tasks.noop.using(limit="single").enqueue()
    work()
    delayq_settings.DELAYQ = {"REDIS": redis_url}
    assert sorted(str(each["waiting_for"]) for each in read("delayq_jobs")) == ["None", "limit single"]
