"""Graceful stops: all processes are stopped and replaced in turn under load, and a dispatcher may start late."""

import signal
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from redis import Redis

from django_delayq import enqueue_many, runtime
from django_delayq.clock import SECOND_US, moment_us
from django_delayq.store.records import worker_of
from django_delayq.testing.fake_clock import FakeClock
from tests.chaos.harness.steady_load import SteadyLoad
from tests.sample_app import tasks
from tests.subprocesses import Command, Processes

#: Rounds in which each process is stopped once, and the most rounds until a stopped worker had unstarted claims.
ROUNDS, MOST_ROUNDS = 2, 20


def started(processes: Processes, role: str) -> Command:
    """Start a worker or dispatcher and return it after it has installed its signal handlers."""
    if role == "worker":
        return processes.worker("--concurrency", 2)
    command = processes.start("run_dispatcher")
    processes.until(lambda: f"Dispatcher {command.pid} serves" in command.output, what="the dispatcher to start")
    return command


def held(client: Redis, processes: Processes, worker: Command) -> set[str]:
    """Return the ids of the jobs that a worker has under lease."""
    names = client.hgetall(processes.keys("worker_names"))
    [code] = [code for code, name in names.items() if name.endswith(b":%d" % worker.pid)]
    leases: Sequence[Any] = client.zrange(processes.keys("leases"), 0, -1)
    return {lease[:12].hex() for lease in leases if worker_of(lease) == code}


def raw(job_id: str) -> str:
    """Return the hex text of the raw id that Redis stores."""
    return job_id.partition("-")[0]


def test_replacing_all_processes_under_load_costs_no_attempt(processes: Processes, client: Redis) -> None:
    slots = [(role, started(processes, role)) for role in ("worker", "dispatcher") * 2]
    commands = [command for _, command in slots]
    #: Jobs that a worker had claimed and not started when it was stopped.
    unstarted: set[str] = set()
    with SteadyLoad(lambda n: tasks.nap.using(delay=0.2 if n % 2 else None).job(0.03)) as load:
        for number in count():
            if number >= ROUNDS * len(slots) and unstarted:
                break
            assert number < MOST_ROUNDS * len(slots), "each stopped worker had started all of its claims"
            load.until_accepted(20)
            leased: set[str] = set()
            role, command = slots[number % len(slots)]
            if role == "worker":
                # More jobs than the workers can start at once on a fast machine.
                load.accepted |= {job.id: 0 for job in tasks.nap.enqueue_many([(0.03,)] * 150)}
                processes.until(
                    lambda command=command: len(held(client, processes, command)) > 2,
                    what="claims that wait for a thread",
                )
                leased = held(client, processes, command)
            command.send(signal.SIGINT if number % 3 == 0 else signal.SIGTERM)
            assert command.wait() == 0, command.output
            unstarted |= leased - {raw(run["id"]) for run in processes.runs() if run["pid"] == command.pid}
            slots[number % len(slots)] = (role, started(processes, role))
            commands.append(slots[number % len(slots)][1])
    processes.until_empty()
    load.check(processes, commands)
    assert [command.end() for _, command in slots] == [0, 0, 0, 0]
    assert {run["attempt"] for run in processes.runs()} == {1}
    assert len(processes.runs()) == len(load.accepted)
    # Another worker ran the unstarted jobs, as their first attempt.
    assert unstarted <= {raw(run["id"]) for run in processes.runs()}
    assert all(not command.failures for command in commands)


def test_overdue_jobs_run_in_order_of_due_time(processes: Processes, client: Redis) -> None:
    begin = datetime.now(UTC) - timedelta(seconds=10)
    drafts = []
    for number in range(300):
        options: dict[str, Any] = {"queue": ("mail", "bulk")[number % 2], "priority": (0, 50)[number // 2 % 2]}
        drafts.append(tasks.record.using(at=begin + timedelta(seconds=number / 100), **options).job(number))
    # They were enqueued before they were due, and no dispatcher ran since. A store keeps the clock it began with.
    with runtime.override(clock=FakeClock(moment_us(begin, name="begin") - SECOND_US)):
        processes.configure()
        jobs = enqueue_many(drafts)
    processes.configure()
    due = {job.id: job.due.timestamp() for job in jobs}
    assert client.zcard(processes.keys.scheduled("mail")) == client.zcard(processes.keys.scheduled("bulk")) == 150
    processes.start("run_dispatcher")
    processes.start("run_worker", "--concurrency", 1)
    runs = processes.until_runs(300)
    processes.until_gone(jobs)
    lanes = defaultdict(list)
    priorities = {job.id: draft.job.priority for job, draft in zip(jobs, drafts, strict=True)}
    for run in processes.runs():
        lanes[run["queue"], priorities[run["id"]]].append(run["args"][0])
    assert [len(lane) for lane in lanes.values()] == [75] * 4
    assert all(lane == sorted(lane) for lane in lanes.values())
    assert [run for run in runs if run["at"] < due[run["id"]]] == []
    assert len(processes.runs()) == 300
