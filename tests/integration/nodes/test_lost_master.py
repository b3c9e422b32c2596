"""A master of a cluster is down: commands show and check the rest, and name it; processes serve the rest."""

import json
from contextlib import suppress
from io import StringIO
from typing import Any

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from django_delayq import enqueue_many, get_store
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.ids import from_text
from tests.sample_app import tasks
from tests.servers.lost_master import ThreeMasters
from tests.subprocesses import Processes

LOST = 1


@pytest.fixture(scope="module")
def lost(masters: ThreeMasters) -> ThreeMasters:
    masters.lose(LOST)
    return masters


@pytest.fixture(autouse=True)
def _jobs(lost: ThreeMasters) -> None:
    """Ten scheduled jobs in each of four shards."""
    lost.add_jobs()


def run(*command: str) -> tuple[str, Any]:
    """Run a command that ends with code 1; return its output and its error."""
    out = StringIO()
    with pytest.raises((SystemExit, CommandError)) as ended:
        call_command(*command, stdout=out)
    code = getattr(ended.value, "returncode", getattr(ended.value, "code", None))
    assert code == 1
    return out.getvalue(), str(ended.value)


def test_stats_have_the_rest_and_name_the_server(lost: ThreeMasters) -> None:
    facts = json.loads(run("delayq_stats", "--json")[0])
    assert facts["scheduled"] == facts["queues"]["default"]["scheduled"] == 40
    [missing] = facts["missing"]
    assert (missing["server"], missing["shards"]) == (lost.lost_address, lost.lost_shards)
    assert "refused" in missing["error"]
    first, *_ = run("delayq_stats")[0].splitlines()
    assert first.startswith(f"INCOMPLETE: {lost.lost_address} does not answer, so what its shards 1, 3 have is")


def test_lists_of_jobs_have_the_rest_and_name_the_server(lost: ThreeMasters) -> None:
    *rows, last = json.loads(run("delayq_jobs", "--json", "--limit", "0")[0])
    assert {from_text(row["id"])[1] for row in rows} == {0, 2, 4, 5}  # type: ignore[index]
    assert len(rows) == 40
    assert last["missing"]["server"] == lost.lost_address
    found = json.loads(run("delayq_jobs", "--json", "--count")[0])
    assert (found["matched"], found["missing"][0]["shards"]) == (40, lost.lost_shards)
    text, error = run("delayq_jobs", "--count", "--task", "noop")
    assert text.strip() == "40"
    assert error.startswith(f"INCOMPLETE: {lost.lost_address} does not answer")


def test_lists_of_schedules_and_tenants_have_the_rest_and_name_the_server(lost: ThreeMasters) -> None:
    names = [f"schedule {number}" for number in range(12)]
    for name in names:
        with suppress(StoreUnavailable):
            tasks.noop.schedules.set(name, every=3_600)
    *rows, last = json.loads(run("delayq_schedules", "--json")[0])
    assert 0 < len(rows) < len(names) and last["missing"]["server"] == lost.lost_address
    found = json.loads(run("delayq_schedules", "--json", "--count")[0])
    assert (found["matched"], found["missing"][0]["shards"]) == (len(rows), lost.lost_shards)
    text, error = run("delayq_schedules", "--count", "--task", "noop")
    assert text.strip() == str(len(rows)) and error.startswith(f"INCOMPLETE: {lost.lost_address} does not answer")
    [last] = json.loads(run("delayq_stats", "--tenants", "fair", "--json")[0])
    assert last["missing"]["server"] == lost.lost_address


def test_the_check_names_the_server_and_checks_the_rest(lost: ThreeMasters) -> None:
    report = json.loads(run("delayq_check", "--json")[0])
    [fault] = report["faults"]
    assert fault.startswith(f"{lost.lost_address} does not answer: the jobs of its 2 shards (1, 3) wait")
    assert report["waiting"] == 40
    places = {server["place"]: (server["shards"], server["error"] is None) for server in report["servers"]}
    assert places[lost.lost_address] == (lost.lost_shards, False)
    assert len(places) == 3
    warnings = " ".join(report["warnings"])
    for address, (_, answers) in places.items():
        assert (f"{address}: The Redis server has no replica" in warnings) is answers
        assert (f"{address}: The Redis server keeps no append-only file" in warnings) is answers
    text, _ = run("delayq_check")
    assert f"WRONG: {fault}" in text
    assert "with 2 shards and 0 replicas; on disk: none" in text


def test_the_probe_names_the_server(lost: ThreeMasters) -> None:
    report = json.loads(run("delayq_check", "--alive", "--json")[0])
    assert report["faults"][0].startswith(f"{lost.lost_address} does not answer, so shards 1, 3 are missing")


def test_processes_start_serve_the_rest_and_log_the_server(lost: ThreeMasters, processes: Processes) -> None:
    jobs = [tasks.record.job(at) for at in range(60)]
    reached = [job for job in jobs if from_text(job.id)[1] not in lost.lost_shards]  # type: ignore[index]
    processes.configure(REDIS=lost.url, SHARDS=6, LEASE=3)
    dispatcher, worker = processes.dispatcher(), processes.worker()
    enqueue_many(reached)
    processes.until(lambda: len(processes.runs()) == len(reached), what="the jobs of the other shards")
    for command in (dispatcher, worker):
        assert f"{lost.lost_address} does not answer: the jobs of its 2 shards (1, 3) wait" in command.output
    # A worker waits five seconds for a reply.
    assert dispatcher.end() == 0
    # The rules of limits, and the number of shards, are stored where a server answers.
    assert get_store().stored_shard_count() == 6
