"""manage.py delayq_check: its report on the server, every key and the waiting jobs, and when it exits with 1."""

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from redis import Redis

import django_delayq
from django_delayq import enqueue_many, get_store, queue
from django_delayq.exceptions import ScriptFault
from django_delayq.job.body.codec import ENCRYPTED_FORMAT
from django_delayq.job.ids import from_text
from django_delayq.management.commands.delayq_check import _DRIFT
from django_delayq.store.claims import Claims
from django_delayq.store.keys import CATALOGUE, Keys
from django_delayq.task import registry
from django_delayq.testing.local_redis import LocalRedisServer
from tests.sample_app import tasks
from tests.subprocesses import Processes

KEYS = Keys("delayq", 0)


def check(*options: str) -> tuple[int, str]:
    """Run the command; return its exit code and its output."""
    out = StringIO()
    try:
        call_command("delayq_check", *options, stdout=out)
    except SystemExit as end:
        return int(end.code or 0), out.getvalue()
    return 0, out.getvalue()


def report(*options: str) -> dict[str, Any]:
    code, text = check("--json", *options)
    found: dict[str, Any] = json.loads(text)
    assert code == (1 if found["wrong"] else 0)
    return found


@pytest.fixture
def kept(start_redis: Callable[..., LocalRedisServer], delayq_settings: Any) -> Redis:
    """A client of the server in DELAYQ, which keeps its data as the documentation recommends."""
    server = start_redis(options={"appendonly": "yes", "appendfsync": "everysec"})
    delayq_settings.DELAYQ = {"REDIS": server.url}
    return server.client(protocol=2)


def test_all_is_well(kept: Redis) -> None:
    enqueue_many([tasks.noop.job(), tasks.noop.after(hours=1).job(1, a=2), tasks.record.job()])
    found = report()
    assert (found["faults"], found["drift"], found["will_not_run"], found["waiting"]) == ([], {}, [], 3)
    assert found["servers"][0]["persistence"] == "append-only file, fsync everysec"
    assert abs(found["servers"][0]["clock_ahead_us"]) < 1_000_000
    code, text = check()
    assert code == 0
    assert "every job is in exactly one place" in text
    assert "3 have not ended" in text


def test_a_server_without_a_file_is_a_warning_and_no_fault(delayq_settings: Any) -> None:
    code, text = check()
    assert code == 0
    assert "Warning: The Redis server keeps no append-only file" in text


def test_a_policy_that_evicts_and_a_replica_are_faults(kept: Redis) -> None:
    kept.config_set("maxmemory-policy", "volatile-lru")
    kept.execute_command("REPLICAOF", "127.0.0.1", "1")
    faults = " ".join(report()["faults"])
    assert "set it to noeviction" in faults
    assert "is a replica" in faults


def test_a_nearly_full_server_is_a_warning(kept: Redis) -> None:
    kept.config_set("maxmemory", int(kept.info("memory")["used_memory"] * 1.02))
    assert any("% full" in warning for warning in report()["warnings"])


def test_a_server_that_is_too_old_is_refused_by_its_redis_version(kept: Redis) -> None:
    [(_, server)] = get_store().check_servers().answering
    [refusal] = replace(server, redis_version="6.0.16").fatal()
    assert refusal.startswith("Redis 6.0.16 is too old") and "6.2 or later" in refusal
    # Valkey reports a Redis version too, never below 7.2. A server that reports none is not refused.
    sound = [
        ("redis", "6.2.0", "6.2.0"),
        ("redis", "10.0.1", "10.0.1"),
        ("valkey", "9.0.4", "7.2.4"),
        ("redis", "", ""),
    ]
    for kind, version, redis_version in sound:
        assert list(replace(server, kind=kind, version=version, redis_version=redis_version).fatal()) == []


def test_clocks_that_differ_are_a_warning(kept: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    right = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: right() - 3_600_000_000_000)
    assert any("+3600.0 s" in warning for warning in report()["warnings"])


def test_a_job_in_no_place_is_listed_with_its_key_and_repaired(kept: Redis) -> None:
    job = tasks.noop.enqueue()
    kept.delete("delayq:{0}:ready:default")
    code, text = check()
    assert code == 1
    assert "WRONG: 1 ORPHANED" in text
    assert job.id.split("-")[0] in text
    assert job.refresh().state == "gone"
    found = report("--repair")
    assert found["drift"]["ORPHANED"]["count"] == 1
    assert not found["wrong"]
    assert job.refresh().state == "ready"
    assert report()["drift"] == {}


def test_a_key_of_another_type_is_repaired_before_jobs_are_checked(kept: Redis) -> None:
    job = tasks.noop.after(60).enqueue()
    kept.set("delayq:{0}:attempts", "x")
    found = report()
    assert set(found["drift"]) == {"MISTYPED"}
    assert found["waiting"] is None
    assert "repair the keys first" in check()[1]
    assert report("--repair")["waiting"] == 1
    assert job.refresh().state == "scheduled"


@pytest.mark.parametrize("noun", sorted(CATALOGUE))
def test_repair_starts_whatever_type_a_key_has(noun: str, kept: Redis) -> None:
    tasks.noop.using(key="k").after(60).enqueue()
    key = {
        "scheduled": KEYS.scheduled("default"),
        "ready": KEYS.ready("default"),
        "results": KEYS.results(bytes(12)),
    }.get(noun, KEYS(noun))
    kept.delete(key)
    kept.rpush(key, "x") if CATALOGUE[noun][0] != "list" else kept.set(key, "x")
    # No index lists results, so the check never finds them.
    assert ("MISTYPED" in report()["drift"]) == (noun != "results")
    report("--repair")
    assert "MISTYPED" not in report()["drift"]
    assert tasks.noop.enqueue().state == "ready"
    get_store().check_shards()


@pytest.mark.parametrize("written", ["", "x", "-1", "1.5"])
def test_an_illegal_number_of_shards_is_dropped(written: str, kept: Redis) -> None:
    kept.set(KEYS("shards"), written)
    report("--repair")
    get_store().check_shards()
    assert kept.get(KEYS("shards")) == b"1"


def test_the_error_about_a_key_of_another_type_names_the_command_that_deletes_it(kept: Redis) -> None:
    kept.rpush(KEYS("shards"), "x")
    with pytest.raises(ScriptFault, match="delayq_check --repair"):
        tasks.noop.using(key="k").enqueue()


def test_jobs_that_this_code_cannot_run_are_listed_by_task(kept: Redis, registered: Any) -> None:
    enqueue_many([tasks.nap.after(60).job(1.0) for _ in range(7)])
    unknown, newer, torn = enqueue_many([tasks.record.after(60).job(), tasks.say.job("x"), tasks.later.job(1.0)])
    bodies = "delayq:{0}:jobs"
    raw = {job.id: bytes.fromhex(job.id.split("-")[0]) for job in (unknown, newer, torn)}
    body = kept.hget(bodies, raw[newer.id])
    kept.hset(bodies, raw[newer.id], bytes((ENCRYPTED_FORMAT + 1,)) + body[1:])
    kept.hset(bodies, raw[torn.id], kept.hget(bodies, raw[torn.id])[:-1])
    known = dict(registry._tasks)
    known.pop("tests.sample_app.tasks.record")
    registered(known)

    def nap(seconds: float, why: str) -> None:
        """The function after a deploy that added a parameter without a default."""

    known["tests.sample_app.tasks.nap"] = replace(tasks.nap, func=nap)
    groups = {(group["ending"], group["task"]): group for group in report()["will_not_run"]}
    assert {key: group["count"] for key, group in groups.items()} == {
        ("arguments do not fit", "tests.sample_app.tasks.nap"): 7,
        ("unknown task", "tests.sample_app.tasks.record"): 1,
        ("newer version", "tests.sample_app.tasks.say"): 1,
        ("unreadable", "tests.sample_app.tasks.later"): 1,
    }
    assert groups["unknown task", "tests.sample_app.tasks.record"]["examples"] == [unknown.id]
    code, text = check()
    assert code == 1
    assert "7 jobs of 'tests.sample_app.tasks.nap' would end 'arguments do not fit'" in text


def test_repair_beside_working_processes_loses_and_doubles_nothing(processes: Processes) -> None:
    processes.dispatcher()
    processes.worker()
    jobs = enqueue_many([tasks.record.using(delay=n / 400, key=str(n)).job(n) for n in range(600)])
    while len(processes.runs()) < 600:
        assert report("--repair")["drift"] == {}
    processes.until_gone(jobs)
    assert sorted(run["id"] for run in processes.runs()) == sorted(job.id for job in jobs)


def test_redis_away_is_one_line_and_code_1(processes: Processes, tmp_path: Path) -> None:
    processes.configure(REDIS=f"unix://{tmp_path}/no_server")
    command = processes.start("delayq_check")
    assert command.wait() == 1
    assert command.output.startswith("CommandError: Redis did not answer")
    assert len(command.output.splitlines()) == 1


def test_redis_away_is_a_command_error(delayq_settings: Any, tmp_path: Path) -> None:
    delayq_settings.DELAYQ = {"REDIS": f"unix://{tmp_path}/no_server"}
    with pytest.raises(CommandError, match="did not answer"):
        check()


def test_no_argument_of_a_job_is_printed(kept: Redis) -> None:
    tasks.noop.enqueue("canary-in-arguments")
    kept.delete("delayq:{0}:ready:default")
    assert "canary-in-arguments" not in check()[1] + check("--json")[1] + check("--repair")[1]


def test_keys_spread_over_another_number_of_shards_are_wrong(kept: Redis, delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 2}
    tasks.noop.enqueue()
    assert report()["faults"] == []
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 1}
    assert "spread over 2" in report()["faults"][0]


def test_every_word_of_the_scripts_is_explained() -> None:
    folder, words = Path(str(django_delayq.__file__)).parent / "store" / "lua", {"MISTYPED", "MISCOUNTED"}
    for script in folder.glob("audit_*.lua"):
        returns = script.read_text().partition("-- Returns:")[2].partition("-- Cost:")[0]
        words.update(re.findall(r"\b[A-Z][A-Z_]{5,}\b", returns))
    assert words == set(_DRIFT)


def test_a_fault_that_a_repair_uncovers_is_repaired_too(kept: Redis) -> None:
    job = tasks.noop.after(60).enqueue()
    # The queue is not listed, and the job is in no place there.
    kept.delete("delayq:{0}:queues", "delayq:{0}:scheduled:default")
    assert not report("--repair")["wrong"]
    assert report()["drift"] == {}
    assert job.refresh().state == "ready"


def test_a_damaged_schedule_is_wrong_until_a_person_has_decided(kept: Redis) -> None:
    tasks.noop.schedules.set("sound", every=60)
    job = tasks.noop.enqueue()
    kept.hset(KEYS("schedules"), b"8 bytes.", "damaged")
    kept.delete(KEYS.ready("default"))
    found = report("--repair")
    assert {code: group["count"] for code, group in found["drift"].items()} == {"ORPHANED": 1, "SCHEDULE_DAMAGED": 1}
    assert found["repaired"] and found["wrong"]
    assert job.refresh().state == "ready"
    code, text = check("--repair")
    assert code == 1
    assert "WRONG: 1 SCHEDULE_DAMAGED, recurring schedules whose record is damaged." in text
    assert "With --repair: kept until task.schedules sets or deletes them." in text
    get_store().schedules(0).delete_schedules([b"8 bytes."])
    assert not report()["wrong"]


def test_schedules_that_this_process_cannot_read_are_a_fault(kept: Redis, delayq_settings: Any) -> None:
    plain = delayq_settings.DELAYQ
    delayq_settings.DELAYQ = {**plain, "SIGN": True}
    tasks.noop.schedules.set_many([{"name": "one", "every": 60}, {"name": "two", "every": 60}])
    assert not report()["wrong"]
    secret, delayq_settings.SECRET_KEY = delayq_settings.SECRET_KEY, "another secret of this project"
    delayq_settings.DELAYQ = {**plain, "SIGN": True}
    [fault] = report()["faults"]
    assert fault.startswith("2 recurring schedules have no next job: this process cannot read the schedule: ")
    assert f"WRONG: {fault}" in check()[1]
    delayq_settings.SECRET_KEY_FALLBACKS = [secret]
    delayq_settings.DELAYQ = {**plain, "SIGN": True}
    found = report()
    [warning] = [each for each in found["warnings"] if "schedules" in each]
    assert warning.startswith("2 recurring schedules have an older key")
    assert warning.endswith("--repair stores them again.")
    assert not found["wrong"]
    [warning] = [each for each in report("--repair")["warnings"] if "schedules" in each]
    assert warning.endswith("They are stored again now.")
    # They need the older key no more.
    delayq_settings.SECRET_KEY_FALLBACKS = []
    delayq_settings.DELAYQ = {**plain, "SIGN": True}
    found = report()
    assert not found["wrong"] and not [each for each in found["warnings"] if "schedules" in each]
    assert {each.name for each in tasks.noop.schedules.iter()} == {"one", "two"}


def test_declared_schedules_that_cannot_be_stored_are_a_fault(
    kept: Redis, delayq_settings: Any, registered: Any
) -> None:
    registered({tasks.noop.name: tasks.noop})
    recurring = {"big": {"task": tasks.noop.name, "every": 60, "args": ["x" * 2_000]}}
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "RECURRING": recurring, "MAX_PAYLOAD": 1_024}
    [fault] = report()["faults"]
    assert fault.startswith(f"Recurring schedule 'big' of {tasks.noop.name} is not stored: ")
    assert "1,024" in fault


def test_overdue_jobs_are_a_warning_that_names_their_queues(kept: Redis) -> None:
    queue("mail").pause()
    late = tasks.noop.using(queue="mail", expires=0.001)
    runs, _, _ = late.enqueue(), late.enqueue(), tasks.noop.using(expires=0.001).enqueue()
    tasks.noop.using(queue="mail", expires=60).enqueue()
    tasks.noop.using(queue="mail").enqueue()
    store = get_store()
    # A run that began in time is not overdue.
    assert Claims(store.shards[0]).claim_one(from_text(runs.id)[0], worker_name="w") is not None
    begun = store.now_us()
    while store.now_us() < begun + 2_000:
        pass
    found = report()
    assert found["overdue"] == {"mail": 1, "default": 1}
    assert not found["wrong"]
    [warning] = [each for each in found["warnings"] if "verdue" in each]
    assert warning.startswith("Overdue jobs: 2 (default 1, mail 1). Their expiry is over")
    assert "start workers for these queues, or resume those that are paused." in warning
    assert f"Warning: {warning}" in check()[1]


def test_without_overdue_jobs_there_is_no_such_warning(kept: Redis) -> None:
    tasks.noop.using(expires=60).enqueue()
    found = report()
    assert (found["overdue"], [each for each in found["warnings"] if "verdue" in each]) == ({}, [])
