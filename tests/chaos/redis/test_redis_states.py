"""States in which Redis refuses writes or commands: processes wait, log it once, and resume without help.

Each state is real and occurs under load. No job is lost, repeated or early.
"""

import re
import resource
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from django_delayq.exceptions import StoreAuthError, StoreError, StoreRejected, StoreUnavailable
from django_delayq.testing.local_redis import LocalRedisServer
from tests.chaos.harness.report import STAY
from tests.chaos.harness.steady_load import SteadyLoad
from tests.chaos.redis.redis_outages import logged_once, wait_out, warnings
from tests.sample_app import tasks
from tests.stateful import invariants, redis_state
from tests.subprocesses import Processes, until

OLD, NEW = "canary-old", "canary-new"

State = Callable[[LocalRedisServer], Any]


# Refused writes


@contextmanager
def made_replica(server: LocalRedisServer) -> Iterator[None]:
    """Make the server a replica of a missing primary, so it replies READONLY."""
    with server.client() as client:
        client.replicaof("127.0.0.1", 1)
        yield
        client.replicaof("no", "one")


@contextmanager
def disk_full(server: LocalRedisServer) -> Iterator[None]:
    """Forbid files to grow beyond the current append-only file, so the server replies MISCONF as on a full disk."""
    with server.client() as client:
        size = client.info("persistence")["aof_current_size"]
    assert server.pid is not None
    _, hard = resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    yield
    resource.prlimit(server.pid, resource.RLIMIT_FSIZE, (hard, hard))


@contextmanager
def missing_replicas(server: LocalRedisServer) -> Iterator[None]:
    """Require more replicas than there are, so the server replies NOREPLICAS."""
    with server.client() as client:
        client.config_set("min-replicas-to-write", 1)
        yield
        client.config_set("min-replicas-to-write", 0)


@pytest.fixture
def file_limited_server(server_program: Path, tmp_path: Path) -> Iterator[LocalRedisServer]:
    """A server that gets an error, not a signal, at a file size limit. Its append-only file is large."""
    program = tmp_path / "limited-server"
    program.write_text(f"#!/bin/sh\ntrap '' 25\nexec {server_program} \"$@\"\n")
    program.chmod(0o700)
    with LocalRedisServer(server=program, options={"appendonly": "yes", "appendfsync": "everysec"}) as server:
        with server.client() as client:
            client.set("somebody else's", b"x" * 1_000_000)
        yield server


def test_processes_wait_while_redis_refuses_writes(processes: Processes, file_limited_server: LocalRedisServer) -> None:
    processes.configure(REDIS=file_limited_server.url, LEASE=2)
    commands = [processes.dispatcher(), processes.worker()]
    states: list[tuple[str, State]] = [
        ("READONLY", made_replica),
        ("MISCONF", disk_full),
        ("NOREPLICAS", missing_replicas),
    ]
    with SteadyLoad() as load:
        for code, state in states:
            load.until_accepted()
            with logged_once(processes, commands):
                before = warnings(commands)
                with state(file_limited_server):
                    error = load.until_error()
                    assert isinstance(error, StoreRejected)
                    assert (error.code, error.maybe_accepted) == (code, False)
                    wait_out(processes, commands, since=before)
        load.until_accepted()
    processes.until_empty()
    load.check(processes, commands)
    assert {error.code for error in load.errors if isinstance(error, StoreRejected)} == {code for code, _ in states}


def test_idle_worker_logs_once_that_redis_refuses_writes(
    processes: Processes, file_limited_server: LocalRedisServer
) -> None:
    # An idle worker sends no request between two sweeps. It must not conclude from this that Redis works.
    processes.configure(REDIS=file_limited_server.url, LEASE=4)
    commands = [processes.dispatcher(), processes.worker()]
    processes.until_gone([tasks.record.enqueue()])
    with logged_once(processes, commands):
        before = warnings(commands)
        with made_replica(file_limited_server):
            wait_out(processes, commands, since=before)
    processes.until_gone([tasks.record.enqueue()])


# Not ready


def test_processes_wait_while_redis_loads_its_data(
    processes: Processes, start_redis: Callable[..., LocalRedisServer]
) -> None:
    # A server that loads its data replies once every 2 MB.
    options = {"appendonly": "yes", "appendfsync": "always", "key-load-delay": "800", "rdbcompression": "no"}
    server = start_redis(options=options)
    processes.configure(REDIS=server.url, LEASE=2)
    commands = [processes.dispatcher(), processes.worker()]
    with server.client() as client:
        client.eval("for i = 1, 2000 do redis.call('SET', 'other:' .. i, string.rep('x', 8000)) end", 0)
        client.bgrewriteaof()
        until(lambda: client.info("persistence")["aof_rewrite_in_progress"] == 0, what="the end of the rewrite")
    with SteadyLoad() as load:
        load.until_accepted()
        with logged_once(processes, commands):
            server.kill()
            starter = threading.Thread(target=server.start)
            starter.start()
            loading: list[StoreError] = []
            while starter.is_alive():
                loading += [error for error in load.errors[-1:] if "LOADING" in str(error) or "loading" in str(error)]
                starter.join(0.01)
            assert loading
        load.until_accepted()
    assert all(isinstance(error, StoreUnavailable) and not error.maybe_accepted for error in loading)
    processes.until_empty()
    load.check(processes, commands)


def test_processes_wait_while_redis_is_busy_and_expired_claims_are_refused(
    processes: Processes, start_redis: Callable[..., LocalRedisServer], gate: Path
) -> None:
    server = start_redis(options={"lua-time-limit": "20"})
    processes.configure(REDIS=server.url, LEASE=1)
    commands = [processes.dispatcher(), processes.worker()]
    slow = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    with SteadyLoad() as load, server.client(socket_timeout=None) as foreign, server.client() as killer:
        load.until_accepted()
        with logged_once(processes, commands):
            before = warnings(commands)
            script = threading.Thread(target=_run_until_killed, args=(foreign,), daemon=True)
            script.start()
            error = load.until_error()
            assert isinstance(error, StoreUnavailable) and not error.maybe_accepted
            wait_out(processes, commands, since=before)
            killer.script_kill()
            script.join()
        load.until_accepted()
    # A late heartbeat renews the lease, or the job runs again elsewhere and the outcome of this run is refused.
    gate.touch()
    processes.until_gone([slow])
    processes.until_empty()
    load.accepted[slow.id] = 0
    load.check(processes, commands)


def _run_until_killed(client: Redis) -> None:
    with pytest.raises(Exception, match="killed"):
        client.eval("while true do end", 0)


# Passwords


def test_processes_wait_while_password_is_wrong_and_never_log_it(
    processes: Processes, start_redis: Callable[..., LocalRedisServer]
) -> None:
    server = start_redis(port=0, options={"requirepass": OLD})
    processes.configure(REDIS=f"redis://:{OLD}@127.0.0.1:{server.port}/0", LEASE=2)
    commands = [processes.dispatcher(), processes.worker()]
    with SteadyLoad() as load, server.client(password=OLD) as admin:
        load.until_accepted()
        with logged_once(processes, commands):
            before = warnings(commands)
            admin.config_set("requirepass", NEW)
            admin.client_kill_filter(_type="normal", skipme=True)
            until(lambda: any(isinstance(error, StoreAuthError) for error in load.errors), what="the refusal")
            wait_out(processes, commands, since=before)
            # Processes that start now wait too, and their log names the setting.
            late = [processes.start("run_dispatcher"), processes.start("run_worker")]
            for command in late:
                until(lambda command=command: "DELAYQ['REDIS']" in command.output, what="the name of the setting")
            admin.config_set("requirepass", OLD)
        load.until_accepted()
    processes.until_empty()
    load.check(processes, [*commands, *late])
    for command in late:
        until(lambda command=command: "serves" in command.output, what="the process to serve")
        assert command.end() == 0
    for command in [*commands, *late]:
        assert not re.search(f"{OLD}|{NEW}|Traceback", command.output)
    assert not re.search(f"{OLD}|{NEW}", "".join(map(str, load.errors)))


def test_commands_without_password_name_setting_and_wait(
    processes: Processes, start_redis: Callable[..., LocalRedisServer]
) -> None:
    server = start_redis(port=0, options={"requirepass": OLD})
    processes.configure(REDIS=f"redis://127.0.0.1:{server.port}/0", LEASE=2)
    commands = [processes.start("run_dispatcher"), processes.start("run_worker")]
    expected = r"refused the password or a command of user 'default'.*(NOAUTH|Authentication).*REDIS has no password"
    for command in commands:
        until(lambda command=command: re.search(expected, command.output), what="the refusal and the setting")
        until(lambda command=command: "waits for Redis" in command.output, what="both to wait")
    checked = processes.start("delayq_check")
    assert checked.wait() == 1 and "CommandError: Redis refused the password" in checked.output
    with server.client(password=OLD) as admin:
        admin.config_set("requirepass", "")
    job = tasks.record.after(0.1).enqueue()
    processes.until_gone([job])
    for command in commands:
        # The worker may promote the job while the dispatcher still waits.
        until(lambda command=command: "works again" in command.output, what="both to work again")
    assert [command.end() for command in commands] == [0, 0]
    assert not any(command.failures for command in commands)


# Flushed


def test_repeated_flush_of_scripts_loses_no_job(processes: Processes, client: Redis) -> None:
    processes.configure(LEASE=3)
    commands = [processes.dispatcher(), processes.worker()]
    kinds: list[Callable[[int], Any]] = [
        lambda n: tasks.record.using(delay=0.05).job(n),
        lambda n: tasks.nap.using(key=f"k{n}").job(0.4),
        lambda n: tasks.fail.job(n % 3),
    ]
    with SteadyLoad(lambda n: kinds[n % 3](n)) as load:

        def flushed() -> bool:
            client.script_flush()
            return len(load.accepted) > 150

        processes.until(flushed, what="150 jobs")
    processes.until(lambda: client.script_flush() and not client.hlen(processes.keys("jobs")), what="all jobs to end")
    assert load.errors == load.unexpected_errors == []
    attempts: dict[str, list[int]] = {}
    for run in processes.runs():
        attempts.setdefault(run["id"], []).append(run["attempt"])
    assert attempts.keys() == load.accepted.keys()
    # Each attempt ran once, also the attempts of failed jobs.
    assert all(numbers == list(range(1, len(numbers) + 1)) for numbers in attempts.values())
    assert not warnings(commands)
    check_no_partial_records(client, processes)


def test_flush_under_load_leaves_no_partial_records(processes: Processes, client: Redis, gate: Path) -> None:
    processes.configure(LEASE=1)
    commands = [processes.dispatcher(), processes.worker("--concurrency", 12)]
    kinds: list[Callable[[int], Any]] = [
        lambda n: tasks.record.using(delay=0.2).job(n),
        lambda n: tasks.nap.using(key=f"k{n}").job(0.1),
        lambda n: tasks.fail.job(1),
        lambda n: tasks.give_up.job(),
    ]
    held = [tasks.wait_for.enqueue(str(gate)) for _ in range(4)]
    processes.until_runs(4)
    with SteadyLoad(lambda n: kinds[n % 4](n)) as load:
        for _ in range(6):
            load.until_accepted(15)
            client.flushall()
        load.until_accepted(15)
    gate.touch()
    processes.until_empty()
    processes.until(lambda: len(processes.events("end")) == 4, what="the held jobs to end")
    last = tasks.record.after(0.2).enqueue("last")
    processes.until_gone([last])
    assert load.unexpected_errors == []
    assert {job.refresh().state for job in held} == {"gone"}
    assert commands[1].output.count("lease lost") >= 4
    runs = Counter((run["id"], run["attempt"]) for run in processes.runs())
    assert max(runs.values()) == 1
    check_no_partial_records(client, processes)
    assert [command.end() for command in commands] == [0, 0]
    assert not commands[0].failures + commands[1].failures


def check_no_partial_records(client: Redis, processes: Processes) -> None:
    """Check that ended jobs left no record, except dead letters and their bodies."""
    keys = processes.keys
    found = redis_state.read(client, keys)
    invariants.check_each_job_is_in_one_place(found, keys)
    assert {redis_state.noun_of(name, keys) for name in found} <= STAY
