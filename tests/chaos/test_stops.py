"""Ends and starts in good order: under load all are stopped and replaced in turn, and a dispatcher may come late."""

import signal
import time
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

from redis import Redis

from django_delayq import enqueue_many
from django_delayq.store.records import worker_of
from tests.chaos.steady_load import SteadyLoad
from tests.sample_app import tasks
from tests.subprocesses import Command, Processes

#: Rounds in which each of four is stopped once; and at most, where no worker was met with work it had not begun.
ROUNDS, MOST_ROUNDS = 2, 20


def started(processes: Processes, role: str) -> Command:
    """Start a worker or dispatcher and return it once it heeds signals."""
    if role == "worker":
        return processes.worker("--concurrency", 2)
    command = processes.start("run_dispatcher")
    processes.until(lambda: f"Dispatcher {command.pid} serves" in command.output, what="its first line")
    return command


def held(client: Redis, processes: Processes, worker: Command) -> set[str]:
    """Return the ids of the jobs that a worker has under lease."""
    names = client.hgetall(processes.keys("worker_names"))
    [code] = [code for code, name in names.items() if name.endswith(b":%d" % worker.pid)]
    leases: Sequence[Any] = client.zrange(processes.keys("leases"), 0, -1)
    return {lease[:12].hex() for lease in leases if worker_of(lease) == code}


def raw(job_id: str) -> str:
    """Return the part of an id that Redis has, in hex."""
    return job_id.partition("-")[0]


def test_replacing_all_processes_under_load_costs_no_attempt(processes: Processes, client: Redis) -> None:
    posts = [(role, started(processes, role)) for role in ("worker", "dispatcher") * 2]
    commands = [command for _, command in posts]
    #: Claimed by a worker that was stopped before they began.
    unbegun: set[str] = set()
    with SteadyLoad(lambda n: tasks.nap.using(delay=0.2 if n % 2 else None).job(0.03)) as trickle:
        for number in count():
            if number >= ROUNDS * len(posts) and unbegun:
                break
            assert number < MOST_ROUNDS * len(posts), "whatever a worker had claimed, it began before it ended"
            trickle.until_accepted(20)
            leased: set[str] = set()
            role, command = posts[number % len(posts)]
            if role == "worker":
                # More than the workers can begin at once, however fast the machine.
                trickle.accepted |= {job.id: 0 for job in tasks.nap.enqueue_many([(0.03,)] * 150)}
                processes.until(
                    lambda command=command: len(held(client, processes, command)) > 2, what="more than runs"
                )
                leased = held(client, processes, command)
            command.send(signal.SIGINT if number % 3 == 0 else signal.SIGTERM)
            assert command.wait() == 0, command.output
            unbegun |= leased - {raw(run["id"]) for run in processes.runs() if run["pid"] == command.pid}
            posts[number % len(posts)] = (role, started(processes, role))
            commands.append(posts[number % len(posts)][1])
    processes.until_empty()
    trickle.judge(processes, commands)
    assert [command.end() for _, command in posts] == [0, 0, 0, 0]
    assert {run["attempt"] for run in processes.runs()} == {1}
    assert len(processes.runs()) == len(trickle.accepted)
    # Another ran what one had not begun, as its first attempt.
    assert unbegun <= {raw(run["id"]) for run in processes.runs()}
    assert all("Traceback" not in command.output for command in commands)


def test_overdue_jobs_run_in_order_of_due_time(processes: Processes, client: Redis) -> None:
    begin = datetime.now(UTC) + timedelta(seconds=2)
    drafts = []
    for number in range(300):
        options: dict[str, Any] = {"queue": ("mail", "bulk")[number % 2], "priority": (0, 50)[number // 2 % 2]}
        drafts.append(tasks.record.using(at=begin + timedelta(seconds=number / 100), **options).job(number))
    jobs = enqueue_many(drafts)
    due = {job.id: job.due.timestamp() for job in jobs}
    processes.until(lambda: time.time() > max(due.values()), what="all to be due")
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
