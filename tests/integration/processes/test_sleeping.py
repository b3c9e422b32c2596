"""Sleeping processes: an idle one sends almost nothing, a notification wakes it, and a lost one costs only a sweep.

The sweep comes every 5 s. Each test first gives a process something to do, so that its sleep has just begun, and reads
when it would wake without another notification. A job that runs before that time did not wait for a sweep.
"""

import time
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from django_delayq import enqueue_many, get_store
from django_delayq.store.client.script import Script
from django_delayq.store.nodes.connection_cache import ConnectionCache, PendingReply
from django_delayq.store.nodes.resp import encode
from tests.sample_app import tasks
from tests.subprocesses import Processes, listeners


def sleep_afresh(client: Redis, processes: Processes) -> float:
    """Notify an idle dispatcher; return the time of its next step, in seconds since the epoch."""
    key = processes.keys("next_promotion")
    with client.pipeline() as both:
        # A step does not postpone the time that is written already.
        both.delete(key)
        both.rpush(processes.keys("notify_dispatcher"), 1)
        both.execute()
    after = processes.until(lambda: client.get(key), what="a step")
    processes.until(lambda: not client.llen(processes.keys("notify_dispatcher")), what="the notification to be read")
    return float(after) / 1_000_000


def last_request(client: Redis, processes: Processes) -> float:
    """Return the time of the only worker's last request, in seconds since the epoch."""
    [(_, seen)] = client.zrange(processes.keys("workers"), 0, -1, withscores=True)
    return float(seen) / 1_000_000


class WithoutNotifications(ConnectionCache):
    """A connection cache whose every command deletes the notifications atomically, before anyone can read them."""

    def __init__(self, client: Any, notification_keys: list[str]) -> None:
        super().__init__(client)
        self._notification_keys = notification_keys

    def send(self, packed: bytes) -> "LastReply":
        commands = [encode("MULTI"), packed, encode("DEL", *self._notification_keys), encode("EXEC")]
        reply = super().send(b"".join(commands))
        return LastReply(reply._connection, self)


class LastReply(PendingReply):
    """The reply to one command of four: the reply to EXEC contains the reply to the second."""

    def read(self) -> Any:
        value = super().read_all(4)[3][0]
        if isinstance(value, Exception):
            raise value
        return value


@pytest.fixture
def notifications_lost(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that this process enqueues notify nobody."""
    shard = get_store()._producer_shards[0]
    keys = [processes.keys("notify_dispatcher"), processes.keys("notify"), processes.keys.notify("default")]
    monkeypatch.setattr(shard.route.node, "producers", WithoutNotifications(shard.client, keys))


def test_idle_processes_send_at_most_one_request_in_two_seconds(processes: Processes, client: Redis) -> None:
    enqueue_many([tasks.noop.using(delay=3600, queue=f"queue {n % 3}").job() for n in range(1_000)])
    processes.dispatcher()
    processes.worker()
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    began = time.monotonic()
    with processes.client() as other, other.monitor() as monitor:
        # This does not wait for an event: the requests in this time are counted.
        time.sleep(12)
        client.echo("the end")
        seconds = time.monotonic() - began
        sent: dict[str, list[str]] = {"dispatcher": [], "worker": []}
        while (line := monitor.next_command())["command"] != "ECHO the end":
            if line["client_type"] != "lua":
                # The worker sends BLPOP, settle_and_claim and sweep; all other commands are the dispatcher's.
                words = line["command"].split()
                if words[0] == "BLPOP":
                    of_worker = "notify_dispatcher" not in words[1]
                else:
                    of_worker = words[1] in (Script("settle_and_claim").sha, Script("sweep").sha)
                sent["worker" if of_worker else "dispatcher"].append(line["command"][:90])
    assert all(sent.values()), sent
    for role, commands in sent.items():
        assert len(commands) <= seconds * 0.5, f"{role}: {commands}"


def test_an_earlier_job_wakes_the_dispatcher(processes: Processes, client: Redis) -> None:
    processes.dispatcher()
    processes.worker()
    tasks.record.after(60).enqueue("far")
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    next_step = sleep_afresh(client, processes)
    tasks.record.after(0.3).enqueue("near")
    [run] = processes.until_runs(1)
    assert run["args"] == ["near"]
    assert run["due"] <= run["at"] < next_step


def test_each_earlier_job_sets_the_timer_again(processes: Processes, client: Redis) -> None:
    processes.dispatcher()
    processes.worker("--concurrency", 1)
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    next_step = sleep_afresh(client, processes)
    jobs = [tasks.record.after(delay).enqueue(delay) for delay in (1.0, 0.8, 0.6, 0.4)]
    runs = processes.until_runs(4)
    assert [run["args"] for run in runs] == [[0.4], [0.6], [0.8], [1.0]]
    assert all(run["due"] <= run["at"] < next_step for run in runs)
    processes.until_gone(jobs)


def test_a_rescheduled_job_wakes_the_dispatcher(processes: Processes, client: Redis) -> None:
    processes.dispatcher()
    processes.worker()
    job = tasks.record.after(hours=1).enqueue()
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    next_step = sleep_afresh(client, processes)
    assert job.reschedule(delay=0.2)
    [run] = processes.until_runs(1)
    assert run["at"] < next_step


@pytest.mark.parametrize("queue", ["default", "unknown"])
def test_a_ready_job_wakes_an_idle_worker(processes: Processes, client: Redis, queue: str) -> None:
    processes.dispatcher()
    processes.worker()
    processes.until_gone([tasks.noop.enqueue()])
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    last = last_request(client, processes)
    tasks.record.using(queue=queue).enqueue()
    [run] = processes.until_runs(1)
    assert run["at"] < last + 5


def test_every_idle_worker_learns_of_a_new_queue(processes: Processes, client: Redis, tmp_path: Path) -> None:
    workers = [processes.worker("--concurrency", 1) for _ in range(2)]
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    gate = tmp_path / "gate"
    first = tasks.wait_for.using(queue="new").enqueue(str(gate))
    [run] = processes.until_runs(1)
    # The other worker is free. It knows the queue only if the first worker notified it.
    [free] = [worker.pid for worker in workers if worker.pid != run["pid"]]
    names = client.hgetall(processes.keys("worker_names"))
    worker_ids = {name.rsplit(b":", 1)[1]: worker_id for worker_id, name in names.items()}
    last = client.zscore(processes.keys("workers"), worker_ids[b"%d" % free]) / 1_000_000
    second = tasks.record.using(queue="new").enqueue()
    [run] = processes.until_runs(1, second.id)
    assert run["pid"] == free
    assert run["at"] < last + 5
    gate.touch()
    processes.until_gone([first, second])


def test_as_many_workers_wake_as_there_is_work_for(processes: Processes, client: Redis, tmp_path: Path) -> None:
    workers = [processes.worker("--concurrency", 1) for _ in range(3)]
    processes.until_gone([tasks.noop.enqueue()])
    processes.until(lambda: listeners(client) == 3, what="all to listen")
    gate = tmp_path / "gate"
    jobs = enqueue_many([tasks.wait_for.job(str(gate)) for _ in range(3)])
    assert {run["pid"] for run in processes.until_runs(3)} == {worker.pid for worker in workers}
    gate.touch()
    processes.until_gone(jobs)


def test_a_retry_does_not_wait_for_the_sweep(processes: Processes, client: Redis) -> None:
    processes.dispatcher()
    processes.worker()
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    next_step = sleep_afresh(client, processes)
    job = tasks.later.enqueue(0.1)
    first, second = processes.until_runs(2)
    assert (first["attempt"], second["attempt"]) == (1, 2)
    assert second["at"] < next_step
    processes.until_gone([job])


def test_a_full_worker_passes_its_notification_on(processes: Processes, client: Redis, tmp_path: Path) -> None:
    full = processes.worker("--concurrency", 1)
    gate = tmp_path / "gate"
    long = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    free = processes.worker("--concurrency", 1)
    jobs = [tasks.record.enqueue(n) for n in range(5)]
    processes.until_gone(jobs)
    assert {run["pid"] for run in processes.runs() if run["id"] != long.id} == {free.pid}
    gate.touch()
    processes.until_gone([long])
    assert full.running


@pytest.mark.usefixtures("notifications_lost")
def test_a_lost_notification_of_workers_costs_a_sweep_and_no_job(processes: Processes, client: Redis) -> None:
    processes.dispatcher()
    processes.worker()
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    job = tasks.record.enqueue()
    assert not client.exists(processes.keys("notify"), processes.keys.notify("default"))
    processes.until_gone([job])


@pytest.mark.usefixtures("notifications_lost")
def test_a_lost_notification_of_the_dispatcher_costs_a_sweep_and_no_job(processes: Processes, client: Redis) -> None:
    processes.configure(LEASE=2)
    processes.dispatcher()
    processes.worker()
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    job = tasks.record.after(0.1).enqueue()
    assert not client.exists(processes.keys("notify_dispatcher"))
    processes.until_gone([job])


def test_a_lost_time_of_the_next_promotion_costs_only_a_sweep(processes: Processes, client: Redis) -> None:
    processes.configure(LEASE=2)
    processes.dispatcher()
    processes.worker()
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    client.delete(processes.keys("next_promotion"))
    job = tasks.record.after(0.1).enqueue()
    processes.until_gone([job])
