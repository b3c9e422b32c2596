"""Commands as processes, each under the user of its role."""

from typing import Any

import pytest

from tests.integration.acl.steps import PASSWORD, PREFIX, RoleServer
from tests.sample_app import tasks
from tests.subprocesses import Processes

SENT = """
from tests.sample_app import tasks
tasks.chain.enqueue(2)
tasks.fail.enqueue(1)
tasks.record.after(0.2).enqueue("delayed")
tasks.record.using(key="k", queue="new", delay=0.3).enqueue("keyed")
job = tasks.record.after(900).enqueue("never")
assert job.refresh().state == "scheduled"
assert job.reschedule(delay=800) and job.cancel()
"""
CRASHES = """
from tests.sample_app import tasks
tasks.crash.after(0.1).enqueue("exit")
"""


def test_each_command_does_all_its_work_under_its_own_user(role_server: RoleServer, processes: Processes) -> None:
    """Jobs enqueue, fail and crash; a lease expires; a worker runs its own dispatcher."""
    prefix = f"{PREFIX}:day"
    bodies, dead_letters = (f"{prefix}:{{0}}:{noun}" for noun in ("jobs", "dead_letters"))
    role_server.refused()

    def under(name: str, command: str, *options: str) -> Any:
        # Each process needs a settings file of its own, because it reads the file only once it has started.
        delayq = {"REDIS": role_server.url(name), "PREFIX": prefix, "LEASE": 2}
        (processes.folder / f"{name}_settings.py").write_text(f"from tests.settings import *\nDELAYQ = {delayq!r}\n")
        return processes.start(command, *options, DJANGO_SETTINGS_MODULE=f"{name}_settings")

    dispatcher, first = under("dispatcher", "run_dispatcher"), under("worker", "run_worker")
    sent = under("producer", "shell", "-c", SENT)
    assert sent.wait() == 0, sent.output
    client = role_server.every.client
    # A crash would also end jobs that run beside it and are not acknowledged yet.
    processes.until(lambda: not client.hlen(bodies), what="all jobs before the crash to end")
    crash = under("producer", "shell", "-c", CRASHES)
    assert crash.wait() == 0, crash.output
    processes.until(lambda: not first.running, what="the job that ends its worker")
    second = under("worker", "run_worker", "--with-dispatcher")
    processes.until(lambda: client.zcard(dead_letters) and not client.hlen(bodies), what="all jobs to end")
    assert (dispatcher.end(), second.end()) == (0, 0)
    assert role_server.refused() == []
    checked = under("check", "delayq_check", "--repair")
    assert checked.wait() == 0, checked.output
    # The role may not read whether Redis syncs its file to disk; the command reports that.
    assert {entry.lower() for entry in role_server.refused()} <= {
        "check: config|get toplevel",
        "check: config toplevel",
    }
    for command in (dispatcher, first, sent, crash, second, checked):
        assert not command.failures
        assert PASSWORD not in command.output
    ran = [run["args"][0] for run in processes.runs() if run.get("args")]
    assert sorted(ran) == ["delayed", "keyed"]
    assert sum("left" in run for run in processes.runs()) == 3


def test_a_worker_alone_promotes_under_its_user(role_server: RoleServer, processes: Processes) -> None:
    processes.configure(REDIS=role_server.url("worker"), PREFIX=f"{PREFIX}:alone")
    role_server.refused()
    worker = processes.start("run_worker")
    tasks.record.after(0.2).enqueue("alone")
    processes.until_runs(1)
    assert worker.end() == 0
    assert role_server.refused() == []


@pytest.mark.parametrize(
    ("command", "name"), [("run_worker", "producer"), ("run_worker", "view"), ("run_dispatcher", "producer")]
)
def test_a_command_under_another_roles_user_names_the_user_and_never_the_password(
    command: str, name: str, role_server: RoleServer, processes: Processes
) -> None:
    processes.configure(REDIS=role_server.url(name), PREFIX=f"{PREFIX}:wrong")
    started = processes.start(command)
    processes.until(lambda: f"user '{name}'" in started.output, what="the refusal")
    assert "Redis refused" in started.output
    assert PASSWORD not in started.output
    assert "Traceback" not in started.output
