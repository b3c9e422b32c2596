"""manage.py delayq_check --alive: it finds what stands still, and reads little."""

import json
import os
import re
from collections.abc import Iterator
from time import time_ns
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from redis import Redis

from django_delayq.dispatcher.planter import Planter
from django_delayq.recurring.schedule import make_schedule
from django_delayq.store.process_reports import ProcessReports
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.schedules.schedules import Schedules
from django_delayq.testing.fake_clock import FakeClock
from tests.integration.commands.test_delayq_check import check
from tests.sample_app import tasks
from tests.shard_apis import SECOND, ShardApis
from tests.subprocesses import Processes


@pytest.fixture
def a_minute_ago(client: Redis, redis_url: str, delayq_settings: Any) -> Iterator[ShardApis]:
    """The APIs of processes that have done nothing since a minute."""
    apis = ShardApis(redis_url, clock=FakeClock(time_ns() // 1_000 - 60 * SECOND))
    yield apis
    apis.close()


def report_worker(apis: ShardApis, *queues: str) -> None:
    """Report a living worker of these queues; none: of all."""
    status = {"queues": queues, "more_queues": False, "filtered": False, "weights": [], "running": {}, "slots": 1}
    with apis.clock.frozen():
        apis.clock.now_us = time_ns() // 1_000
        ProcessReports(apis.shard).report(os.urandom(8), "worker", status, {})


def without_seconds(text: str) -> str:
    """Replace how long it has been, which is a minute and what the test took, and drop the address of the page."""
    return re.sub(r"for \d+ s", "for N s", text.partition(" See ")[0])


def findings() -> dict[str, Any]:
    code, text = check("--alive", "--json")
    found: dict[str, Any] = json.loads(text)
    assert code == found["wrong"] == bool(found["faults"])
    return found


def test_nobody_runs(client: Redis, delayq_settings: Any) -> None:
    code, text = check("--alive")
    assert code == 1
    assert text.startswith("WRONG: No dispatcher and no worker is running: start run_dispatcher and run_worker. See ")


def test_nobody_promotes(a_minute_ago: ShardApis) -> None:
    a_minute_ago.promote()
    report_worker(a_minute_ago)
    [fault] = findings()["faults"]
    assert without_seconds(fault) == "Nobody has promoted jobs for N s: start run_dispatcher."


def test_nobody_plants(a_minute_ago: ShardApis) -> None:
    schedule = make_schedule("report", every=60, now_us=a_minute_ago.clock.now_us)
    Schedules(a_minute_ago.shard).set_schedules([Definition(schedule, a_minute_ago.draft().job)])
    report_worker(a_minute_ago)
    [fault] = findings()["faults"]
    assert without_seconds(fault) == "A recurring schedule has had no new job for N s: start run_dispatcher."


def test_a_schedule_that_the_dispatcher_cannot_read_is_a_warning(a_minute_ago: ShardApis) -> None:
    shard = a_minute_ago.shard
    definition = Definition(make_schedule("report", every=60, now_us=0), a_minute_ago.draft().job)
    Schedules(shard).set_schedules([definition])
    key = shard.keys("schedules")
    stored = shard.execute("HGET", key, definition.id)
    shard.execute("HSET", key, definition.id, stored.replace(b"every", b"daily"))
    Planter(shard).plant(a_minute_ago.promote().schedules, now_us=a_minute_ago.clock.now_us)
    report_worker(a_minute_ago)
    assert findings()["warnings"] == [
        "1 recurring schedules have no next job, because the dispatcher cannot read them: see delayq_schedules --state "
        "unreadable."
    ]


def test_no_worker_serves_a_queue(a_minute_ago: ShardApis) -> None:
    a_minute_ago.add(queue="mail")
    a_minute_ago.add(queue="paused")
    a_minute_ago.operations.pause("paused", by="ann")
    report_worker(a_minute_ago, "default")
    [fault] = findings()["faults"]
    assert without_seconds(fault) == "Jobs of the queue mail wait for N s, and no worker serves it: start run_worker."


def test_a_backlog_is_no_fault(a_minute_ago: ShardApis) -> None:
    a_minute_ago.add(queue="mail")
    report_worker(a_minute_ago)
    found = findings()
    assert found["faults"] == []
    [warning] = found["warnings"]
    assert without_seconds(warning) == "Jobs of the queue mail wait for N s: its workers are busy. Start more of them."
    _, text = check("--alive")
    assert text.startswith("Warning: Jobs of the queue mail")
    assert text.endswith("Alive: due jobs are promoted, planted and claimed.\n")


def test_each_shard_is_looked_at(client: Redis, redis_url: str, delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 2}
    apis = ShardApis(redis_url, clock=FakeClock(time_ns() // 1_000 - 60 * SECOND), SHARDS=2, shard=1)
    apis.promote()
    report_worker(apis)
    apis.close()
    [fault] = findings()["faults"]
    assert fault.startswith("Nobody has promoted jobs in ")
    assert " shard 1 for " in fault


def test_a_schedule_that_does_not_run_is_found_when_all_processes_are_killed(processes: Processes) -> None:
    processes.configure(LEASE=2, RECURRING={"tick": {"task": tasks.noop.name, "every": 1}})
    started = [processes.dispatcher(), processes.worker()]
    processes.until(lambda: (found := tasks.noop.schedules.get("tick")) and found.last, what="the first run")
    assert findings()["faults"] == []
    for each in started:
        each.kill()
    processes.until(lambda: findings()["faults"], what="that nothing runs")


def test_redis_away_is_an_error(delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {"REDIS": "redis://127.0.0.1:1/0", "ENQUEUE_TIMEOUT": 0.5}
    with pytest.raises(CommandError):
        call_command("delayq_check", "--alive")


@pytest.mark.parametrize("options", [["--alive"], []], ids=["alive", "all"])
def test_redis_away_is_a_fault_in_json(delayq_settings: Any, options: list[str]) -> None:
    delayq_settings.DELAYQ = {"REDIS": "redis://127.0.0.1:1/0", "ENQUEUE_TIMEOUT": 0.5}
    code, text = check(*options, "--json")
    found = json.loads(text)
    assert (code, found["wrong"], found["warnings"]) == (1, True, [])
    [fault] = found["faults"]
    assert "redis://127.0.0.1:1/0" in fault


def test_it_does_not_repair(delayq_settings: Any) -> None:
    with pytest.raises(CommandError, match="not allowed with argument"):
        call_command("delayq_check", "--alive", "--repair")


def test_a_probe_does_not_import_the_urls_of_the_project(processes: Processes) -> None:
    name = "settings_with_broken_urls"
    (processes.folder / f"{name}.py").write_text("from process_settings import *\nROOT_URLCONF = 'no_such_urls'\n")
    probe, whole = (
        processes.start("delayq_check", *options, DJANGO_SETTINGS_MODULE=name) for options in (["--alive"], [])
    )
    assert probe.wait() == whole.wait() == 1
    assert probe.output.startswith("WRONG: No dispatcher and no worker is running")
    assert "No module named 'no_such_urls'" in whole.output
