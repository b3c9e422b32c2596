"""Sentry: its real client in a real worker, with a transport that collects, gets one event for each dead job."""

import json
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.sample_app import django_tasks
from tests.subprocesses import Command, Processes

CANARY = "4111-canary"
#: What a project puts into its settings. Only the transport is not what it would use.
SETTINGS = """
import json, sentry_sdk
from sentry_sdk.transport import Transport
from django_delayq.logs import add_job_tags

class Collecting(Transport):
    def capture_envelope(self, envelope):
        event = envelope.get_event()
        if event is not None:
            with open({path!r}, "a") as collected:
                collected.write(json.dumps(event, default=str) + "\\n")

sentry_sdk.init(dsn="http://key@127.0.0.1:1/1", transport=Collecting, before_send=add_job_tags)
"""


@pytest.fixture
def events(processes: Processes, shop: ModuleType, tmp_path: Path) -> Callable[[], list[Any]]:
    """Return the events that Sentry's client sent so far."""
    path = tmp_path / "events"
    path.touch()
    with open(processes.folder / "process_settings.py", "a") as project:
        project.write(SETTINGS.format(path=str(path)))
    processes.dispatcher()
    return lambda: [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("pool", ["threads", "processes", "asyncio"])
def test_each_dead_job_is_one_event_with_task_and_job_id_as_tags(
    shop: ModuleType, events: Callable[[], list[Any]], run_until_dead: Callable[..., Command], pool: str
) -> None:
    jobs = [shop.fail.enqueue(1), shop.fail_async.enqueue(2)]
    run_until_dead(pool, *jobs)
    found = {event["tags"]["job_id"]: event for event in events()}
    assert len(events()) == 2 and set(found) == {job.id for job in jobs}
    for job, name in zip(jobs, ("fail", "fail_async"), strict=True):
        event = found[job.id]
        assert event["tags"] == {"job_id": job.id, "task": f"shop_tasks.{name}", "queue": "mail", "attempt": "2"}
        assert event["level"] == "error" and event["logger"] == "django_delayq"
        last = event["exception"]["values"][-1]
        assert (last["type"], last["value"]) == ("ShopError", "no money\nleft")
        if pool == "processes":
            assert f"in {name}\n" in event["exception"]["values"][0]["value"]
        else:
            frame = last["stacktrace"]["frames"][-1]
            assert frame["function"] == name and frame["vars"]["visible"] == "'seen-by-all'"


def test_a_dead_job_of_djangos_task_is_one_event(processes: Processes, events: Callable[[], list[Any]]) -> None:
    result = django_tasks.fail.enqueue()
    worker = processes.worker("--drain")
    assert worker.wait() == 0
    [event] = events()
    assert event["tags"]["job_id"] == result.id and event["tags"]["task"] == django_tasks.fail.module_path
    assert event["exception"]["values"][-1]["type"] == "ValueError"


@pytest.mark.parametrize("pool", ["threads", "processes", "asyncio"])
def test_no_event_has_a_sensitive_argument(
    shop: ModuleType, events: Callable[[], list[Any]], run_until_dead: Callable[..., Command], pool: str
) -> None:
    worker = run_until_dead(pool, shop.charge.enqueue(1, CANARY), shop.charge_async.enqueue(1, card={"number": CANARY}))
    assert len(events()) == 2
    assert CANARY not in json.dumps(events()) and CANARY not in worker.output
    for event in events():
        kinds = [value["type"] for value in event["exception"]["values"]]
        assert kinds[-1] == "ValueError"
        if pool != "processes":
            assert kinds == ["KeyError", "ValueError"]
            assert event["exception"]["values"][-1]["stacktrace"]["frames"]


def test_a_crash_and_an_error_in_a_tasks_own_log_are_events_of_their_jobs(
    processes: Processes, shop: ModuleType, events: Callable[[], list[Any]]
) -> None:
    worker = processes.worker("--pool=processes", "--concurrency=1")
    crashed, logged = shop.crash.enqueue(), shop.log_an_error.enqueue()
    processes.until_state(crashed, "dead")
    processes.until_gone([logged])
    assert worker.end() == 0
    found = {event["tags"]["job_id"]: event for event in events()}
    assert len(events()) == 2 and set(found) == {crashed.id, logged.id}
    assert found[crashed.id]["exception"]["values"][-1]["type"] == "JobCrashed"
    assert found[logged.id]["tags"]["task"] == "shop_tasks.log_an_error"
    assert found[logged.id]["logentry"]["message"] == "the shop is closed"
