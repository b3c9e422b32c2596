"""Damaged keys: damage affects only the jobs of the damaged key; other jobs run, and the commands end normally."""

from collections.abc import Callable
from typing import Any

import pytest
from redis import Redis

from django_delayq.store.keys import Keys
from tests.sample_app import tasks
from tests.subprocesses import Processes

Damage = Callable[[Redis, Keys], Any]


def short_member(client: Redis, keys: Keys) -> None:
    client.zadd(keys.ready("default"), {b"x": 1, b"": 2})


def long_member(client: Redis, keys: Keys) -> None:
    client.zadd(keys.ready("default"), {b"y" * 20: 1})


def ready_of_another_type(client: Redis, keys: Keys) -> None:
    client.zadd(keys("queues"), {"odd": 1})
    client.set(keys.ready("odd"), "x")


def schedule_of_another_type(client: Redis, keys: Keys) -> None:
    client.zadd(keys("next_due"), {"odd": 1})
    client.set(keys.scheduled("odd"), "x")


def bell_of_another_type(client: Redis, keys: Keys) -> None:
    client.delete(keys.notify("default"))
    client.set(keys.notify("default"), "x")


def wake_time_of_another_kind(client: Redis, keys: Keys) -> None:
    client.set(keys("next_promotion"), "soon")


def unreadable_queue_name(client: Redis, keys: Keys) -> None:
    client.zadd(keys("queues"), {b"\xff": 1})
    client.zadd(keys("next_due"), {b"\xff": 1})


DAMAGES: list[Damage] = [
    short_member,
    long_member,
    ready_of_another_type,
    schedule_of_another_type,
    bell_of_another_type,
    wake_time_of_another_kind,
    unreadable_queue_name,
]


@pytest.fixture
def processes(processes: Processes) -> Processes:
    # One sweep per second: if a notification key is damaged, only a sweep finds the jobs.
    processes.configure(LEASE=2)
    return processes


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: damage.__name__)
def test_a_drain_runs_undamaged_jobs_and_ends(damage: Damage, processes: Processes, client: Redis) -> None:
    jobs = [tasks.record.using(queue=queue).enqueue() for queue in ("default", "mail", "zoo") for _ in range(3)]
    damage(client, processes.keys)
    # Jobs from before the damage, and from after it.
    jobs += [tasks.record.using(queue=queue, delay=0.001).enqueue() for queue in ("default", "mail")]
    assert processes.worker("--drain").wait() == 0
    due = jobs[:9]
    assert {run["id"] for run in processes.runs()} >= {job.id for job in due}
    processes.until_gone(due)
    assert len(processes.runs()) == len({run["id"] for run in processes.runs()})


def test_commands_continue_despite_all_damage_and_end(processes: Processes, client: Redis) -> None:
    for damage in DAMAGES:
        damage(client, processes.keys)
    dispatcher, worker = processes.dispatcher(), processes.worker()
    jobs = [tasks.record.using(queue=queue, delay=0.01).enqueue() for queue in ("default", "mail", "mail")]
    jobs.append(tasks.record.using(queue="zoo").enqueue())
    processes.until_gone(jobs)
    for damage in DAMAGES:
        damage(client, processes.keys)
    jobs.append(tasks.record.using(queue="mail", delay=0.01).enqueue())
    processes.until_gone(jobs)
    assert sorted(run["id"] for run in processes.runs()) == sorted(job.id for job in jobs)
    assert (dispatcher.end(), worker.end()) == (0, 0)
