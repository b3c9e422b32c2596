"""Sleeping and waking: an idle process is silent, a bell or alarm wakes it, and a lost one costs a sweep, not a job.

The sweep comes every 5 s. That something did not wait for it is seen by what was to come later: `next_promotion` names
the moment of the next step, and each test first rings, so that the sleep it looks at has just begun.
"""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from django_delayq import enqueue_many, get_store
from django_delayq.store.client.connection_cache import ConnectionCache, PendingReply
from django_delayq.store.client.resp import encode
from django_delayq.store.client.script import Script
from tests.sample_app import tasks
from tests.subprocesses import Processes, listeners


@pytest.fixture
def processes(tmp_path: Path, delayq_settings: Any) -> Iterator[Processes]:
    with Processes(tmp_path, delayq_settings) as started:
        yield started


def sleep_afresh(client: Redis, processes: Processes) -> float:
    """Ring the alarm of an idle dispatcher; return when its next step comes, in seconds since the epoch."""
    key = processes.keys("next_promotion")
    before = client.get(key)
    client.rpush(processes.keys("notify_dispatcher"), 1)
    after = processes.until(lambda: client.get(key) != before and client.get(key), what="a step")
    processes.until(lambda: not client.llen(processes.keys("notify_dispatcher")), what="the alarm to be heard")
    return float(after) / 1_000_000


def sweep_afresh(client: Redis, processes: Processes, *, bell: str) -> float:
    """Ring a bell of an idle worker; return its exchange's moment, in seconds since the epoch."""
    key = processes.keys("exchanges")
    before = client.hvals(key)
    client.rpush(bell, 1)
    processes.until(lambda: client.hvals(key) != before, what="an exchange")
    [(_, seen)] = client.zrange(processes.keys("workers"), 0, -1, withscores=True)
    return float(seen) / 1_000_000


class Muffled(ConnectionCache):
    """A line whose every command takes down bells and alarm in the same step, before anybody can hear them."""

    def __init__(self, client: Any, bells: list[str]) -> None:
        super().__init__(client)
        self._bells = bells

    def send(self, packed: bytes) -> "MuffledQuestion":
        step = [encode("MULTI"), packed, encode("DEL", *self._bells), encode("EXEC")]
        question = super().send(b"".join(step))
        return MuffledQuestion(self, question._connection)


class MuffledQuestion(PendingReply):
    """Four commands were sent; the answer to the second is in that to the last."""

    def read(self) -> Any:
        answer = self.read_all(4)[3][0]
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def muffled(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process enqueues is heard by nobody."""
    shard = get_store()._producer_shards[0]
    bells = [processes.keys("notify_dispatcher"), processes.keys("notify"), processes.keys.notify("default")]
    monkeypatch.setattr(shard, "connection_cache", Muffled(shard.client, bells))


def test_idle_processes_send_at_most_one_request_in_two_seconds(processes: Processes, client: Redis) -> None:
    enqueue_many([tasks.noop.using(delay=3600, queue=f"queue {n % 3}").job() for n in range(1_000)])
    processes.dispatcher()
    processes.worker()
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    with processes.client() as other, other.monitor() as monitor:
        seconds = 12
        # Not a wait for anything: the requests of this span are counted.
        time.sleep(seconds)
        client.echo("the end")
        sent: dict[str, list[str]] = {"dispatcher": [], "worker": []}
        while (line := monitor.next_command())["command"] != "ECHO the end":
            if line["client_type"] != "lua":
                # The worker listens to bells, and exchanges; all else is the dispatcher's.
                words = line["command"].split()
                of_worker = ":notify" in words[1] if words[0] == "BLPOP" else words[1] == Script("settle_and_claim").sha
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


def test_an_earlier_and_an_earlier_job_each_set_the_timer(processes: Processes, client: Redis) -> None:
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


@pytest.mark.parametrize("queue", ["default", "never heard of"])
def test_a_ready_job_wakes_an_idle_worker(processes: Processes, client: Redis, queue: str) -> None:
    processes.dispatcher()
    processes.worker()
    processes.until_gone([tasks.noop.enqueue()])
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    last = sweep_afresh(client, processes, bell=processes.keys.notify("default"))
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    tasks.record.using(queue=queue).enqueue()
    [run] = processes.until_runs(1)
    assert run["at"] < last + 5


def test_every_idle_worker_hears_of_a_new_queue(processes: Processes, client: Redis, tmp_path: Path) -> None:
    workers = [processes.worker("--concurrency", 1) for _ in range(2)]
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    gate = tmp_path / "gate"
    first = tasks.wait_for.using(queue="new").enqueue(str(gate))
    [run] = processes.until_runs(1)
    # The other one is free. It heard neither of the queue nor of its bell, unless somebody told it.
    [free] = [worker.pid for worker in workers if worker.pid != run["pid"]]
    codes = {name.rsplit(b":", 1)[1]: code for code, name in client.hgetall(processes.keys("worker_names")).items()}
    last = client.zscore(processes.keys("workers"), codes[b"%d" % free]) / 1_000_000
    second = tasks.record.using(queue="new").enqueue()
    [run] = processes.until_runs(1, second.id)
    assert run["pid"] == free
    assert run["at"] < last + 5
    gate.touch()
    processes.until_gone([first, second])


def test_a_bell_wakes_as_many_workers_as_there_is_work_for(processes: Processes, client: Redis, tmp_path: Path) -> None:
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


def test_a_full_worker_passes_the_bell_on(processes: Processes, client: Redis, tmp_path: Path) -> None:
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


@pytest.mark.usefixtures("muffled")
def test_a_lost_bell_costs_a_sweep_and_no_job(processes: Processes, client: Redis) -> None:
    processes.dispatcher()
    processes.worker()
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    job = tasks.record.enqueue()
    assert not client.exists(processes.keys("notify"), processes.keys.notify("default"))
    processes.until_gone([job])


@pytest.mark.usefixtures("muffled")
def test_a_lost_alarm_costs_a_sweep_and_no_job(processes: Processes, client: Redis) -> None:
    processes.configure(LEASE=2)
    processes.dispatcher()
    processes.worker()
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    job = tasks.record.after(0.1).enqueue()
    assert not client.exists(processes.keys("notify_dispatcher"))
    processes.until_gone([job])


def test_a_lost_wake_at_costs_nothing_but_a_sweep(processes: Processes, client: Redis) -> None:
    processes.configure(LEASE=2)
    processes.dispatcher()
    processes.worker()
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    client.delete(processes.keys("next_promotion"))
    job = tasks.record.after(0.1).enqueue()
    processes.until_gone([job])
