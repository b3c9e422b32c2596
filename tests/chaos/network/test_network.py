"""The network between the processes and Redis: cut, silent, slow, or ending in the middle of a reply.

Workers and dispatchers use one proxy, the producer (this process) uses another, and the checks connect directly.
"""

import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from redis import Redis

from django_delayq import enqueue_many
from django_delayq.exceptions import StoreUnavailable
from django_delayq.store.client.script import Script
from tests.chaos.network.proxy import Proxy
from tests.sample_app import tasks
from tests.subprocesses import Processes

EXCHANGE, PROMOTE, ENQUEUE = (f"EVALSHA {Script(name).sha}" for name in ("settle_and_claim", "promote", "enqueue"))
#: Bytes of a reply that arrive before the cut. The shortest, of an enqueue, has 23.
SIZES = range(21)
#: A service's warning of an outage.
_OUTAGE = re.compile(r"WARNING (.*?) (?:lost|waits|cannot)\b")


@pytest.fixture
def network(processes: Processes, redis_url: str) -> Iterator[Proxy]:
    """The proxy between Redis and the processes that start from now on."""
    with Proxy(redis_url) as proxy:
        yield proxy


@pytest.fixture
def producer_network(redis_url: str) -> Iterator[Proxy]:
    """The proxy between Redis and the producer."""
    with Proxy(redis_url) as proxy:
        yield proxy


@pytest.fixture
def connect(processes: Processes, delayq_settings: Any, redis_url: str) -> Any:
    """Choose the proxies: `connect(network, LEASE=2)`, `connect(network, producer=producer_network)`."""

    def connected(behind: Proxy | None, *, producer: Proxy | None = None, **delayq: Any) -> None:
        processes.configure(REDIS=behind.url if behind else redis_url, **delayq)
        ours = producer.url if producer else redis_url
        delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "REDIS": ours}

    return connected


def enqueue_spread(count: int, *, within: float) -> list[Any]:
    """Enqueue that many jobs, with due times spread evenly over `within` seconds."""
    return list(enqueue_many([tasks.record.using(delay=within * n / count).job(n) for n in range(count)]))


def check_each_ran_once(processes: Processes, client: Redis, jobs: list[Any]) -> None:
    """Wait until no job is left; check that each ran once as its first attempt, not early, and left no record."""
    processes.until(lambda: not client.hlen(processes.keys("jobs")), what="all jobs to end")
    runs = processes.runs()
    assert sorted(run["id"] for run in runs) == sorted(job.id for job in jobs)
    assert {run["attempt"] for run in runs} == {1}
    assert [run for run in runs if run["at"] < run["due"]] == []
    left = [
        noun
        for noun in ("jobs", "leases", "claim_records", "attempts", "dead_letters")
        if client.exists(processes.keys(noun))
    ]
    assert left == []


# Cuts


def test_jobs_run_once_while_all_connections_are_cut_and_refused(
    processes: Processes, client: Redis, network: Proxy, connect: Any
) -> None:
    connect(network)
    commands = [processes.dispatcher(), processes.worker()]
    jobs = enqueue_spread(600, within=3)
    cuts = 0
    while (seen := len(processes.runs())) < len(jobs) or cuts < 5:
        if seen == len(jobs):
            # All ran between two cuts.
            jobs += enqueue_spread(60, within=0.3)
        network.cut()
        if cuts % 4 == 1:
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        if cuts % 4 == 3:
            network.refuse()
            network.cut()
            network.accept()
        cuts += 1
        enough = min(seen + 20, len(jobs) - 1)
        processes.until(lambda enough=enough: len(processes.runs()) > enough, what="further runs")
    check_each_ran_once(processes, client, jobs)
    for command in commands:
        assert command.running
        assert not command.failures


def resumed(output: str) -> list[str]:
    """Return the services that logged that they work again, after their warning of an outage."""
    warned = _OUTAGE.finditer(output)
    return [found[1] for found in warned if f"{found[1]} works again" in output[found.end() :]]


def test_processes_log_refused_connections_once_and_resume(
    processes: Processes, client: Redis, network: Proxy, connect: Any
) -> None:
    connect(network)
    commands = [processes.dispatcher(), processes.worker()]
    jobs: list[Any] = []
    for _ in range(2):
        begun = [len(command.output) for command in commands]
        network.refuse()
        network.cut()
        for command, at in zip(commands, begun, strict=True):
            processes.until(
                lambda command=command, at=at: "Redis did not answer" in command.output[at:],
                what="the outage to be logged",
            )
        # The outage must be long enough for many retries.
        threading.Event().wait(1.5)
        jobs += enqueue_spread(10, within=0.1)
        logged = [command.output[at:] for command, at in zip(commands, begun, strict=True)]
        network.accept()
        check_each_ran_once(processes, client, jobs)
        for command, at, words in zip(commands, begun, logged, strict=True):
            # The reporter may notice the end of the last outage only now.
            assert not resumed(words)
            # Each service of a process logs it once: the worker, its heartbeats, and the reporter if a report was due.
            services = _OUTAGE.findall(words)
            assert len(services) == len(set(services)) and words.count("WARNING") <= 3
            processes.until(lambda command=command, at=at: resumed(command.output[at:]), what="both to resume")
    assert all(not command.failures for command in commands)


# Replies


def test_jobs_run_once_if_replies_to_worker_and_dispatcher_are_cut_at_any_byte(
    processes: Processes, client: Redis, network: Proxy, connect: Any, gate: Any
) -> None:
    connect(network)
    commands = [processes.dispatcher(), processes.worker()]
    jobs: list[Any] = []

    def until_cut() -> None:
        lost = len(jobs)
        processes.until(lambda: network.lost_replies == lost, what="the cut")
        # One fault at a time: a process that fails repeatedly waits longer each time.
        check_each_ran_once(processes, client, jobs)

    for size in SIZES:
        # The reply contains claims.
        network.cut_reply_after(size, of=EXCHANGE)
        jobs.append(tasks.record.enqueue(size))
        until_cut()
        # The reply confirms an outcome.
        opened = gate.with_name(f"gate {size}")
        jobs.append(tasks.wait_for.enqueue(str(opened)))
        processes.until_runs(1, jobs[-1].id)
        network.cut_reply_after(size, of=EXCHANGE)
        opened.touch()
        until_cut()
        # The reply lists what was promoted.
        network.cut_reply_after(size, of=PROMOTE)
        jobs.append(tasks.record.after(0.01).enqueue(size))
        until_cut()
    for command in commands:
        assert command.running
        assert "a bug" not in command.output


def test_worker_repeats_exchange_whose_reply_is_dropped(
    processes: Processes, client: Redis, network: Proxy, connect: Any
) -> None:
    connect(network)
    commands = [processes.dispatcher(), processes.worker()]
    jobs: list[Any] = []
    for _ in range(5):
        lost = network.lost_replies
        network.drop_replies()
        jobs += enqueue_spread(5, within=0.02)
        processes.until(lambda lost=lost: network.lost_replies > lost + 1, what="replies to be lost")
        network.cut()
        network.restore()
        check_each_ran_once(processes, client, jobs)
    assert all(command.running and not command.failures for command in commands)


def test_producer_whose_reply_is_cut_can_resend_without_second_job(
    processes: Processes, client: Redis, producer_network: Proxy, connect: Any
) -> None:
    connect(None, producer=producer_network)
    # Redis has cached the script of jobs with keys now. Otherwise the first reply would be NOSCRIPT.
    jobs: list[Any] = [tasks.record.using(key="first").enqueue("first")]
    for size in SIZES:
        new = [
            tasks.record.job(size),
            tasks.record.using(key=f"key {size}").job(size),
            tasks.record.after(0.01).job(size),
        ]
        jobs += new
        producer_network.cut_reply_after(size, of=ENQUEUE)
        with pytest.raises(StoreUnavailable) as caught:
            enqueue_many(new)
        assert caught.value.maybe_accepted
        assert list(caught.value.unsent) == new
        # Redis had run the whole script when its reply was lost.
        assert client.hlen(processes.keys("jobs")) == len(jobs)
        caught.value.resend()
        assert client.hlen(processes.keys("jobs")) == len(jobs)
        # The next call uses a new connection and does not read the rest of the last reply.
        jobs.append(tasks.record.enqueue("next"))
        assert jobs[-1].state == "ready"
    assert [job.state for job in jobs if job.state == "unsent"] == []
    processes.dispatcher()
    processes.worker()
    check_each_ran_once(processes, client, jobs)


def test_refused_connection_reports_that_nothing_was_sent(
    processes: Processes, client: Redis, producer_network: Proxy, connect: Any
) -> None:
    connect(None, producer=producer_network)
    producer_network.refuse()
    with pytest.raises(StoreUnavailable) as caught:
        tasks.record.enqueue()
    assert not caught.value.maybe_accepted
    assert client.dbsize() == 0
    producer_network.accept()
    caught.value.resend()
    assert client.hlen(processes.keys("jobs")) == 1


# Silence


def test_silent_network_times_out_and_lost_claims_are_refused(
    processes: Processes, client: Redis, network: Proxy, producer_network: Proxy, connect: Any, gate: Any
) -> None:
    connect(network, producer=producer_network, LEASE=2, ENQUEUE_TIMEOUT=1)
    silenced = [processes.dispatcher(), processes.worker("--queues", "default")]
    job = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    # A claim that its worker has not confirmed would cost no attempt.
    processes.until(lambda: not client.exists(processes.keys("unconfirmed")), what="the claim to be confirmed")
    network.hold()
    producer_network.hold()
    # The first request uses the existing connection, the second a new one.
    kept = [tasks.record.using(queue="kept").job(n) for n in range(2)]
    for handle in kept:
        with pytest.raises(StoreUnavailable) as caught:
            enqueue_many([handle])
        assert caught.value.maybe_accepted
        assert client.zcard(processes.keys.ready("kept")) == 0
    connect(None, LEASE=2)
    others = [processes.start("run_dispatcher"), processes.start("run_worker")]
    _, second = processes.until_runs(2, job.id)
    assert (second["attempt"], second["recovered"]) == (2, True)
    gate.touch()
    processes.until_gone([job])
    for command in silenced:
        processes.until(
            lambda command=command: "Redis did not answer" in command.output, what="both to log the timeout"
        )
    for command in others:
        assert command.end() == 0
    producer_network.release()
    network.release()
    processes.until(lambda: "lease lost, its outcome (succeeded) was refused" in silenced[1].output, what="the refusal")
    # The held requests arrive after all. A resend of them creates no second job.
    processes.until(lambda: client.zcard(processes.keys.ready("kept")) == 2, what="the late requests")
    enqueue_many(kept)
    assert client.zcard(processes.keys.ready("kept")) == client.hlen(processes.keys("jobs")) == 2
    after = tasks.record.after(0.1).enqueue("after")
    processes.until_gone([after])
    assert [run["attempt"] for run in processes.runs(job.id)] == [1, 2]
    assert [run["attempt"] for run in processes.runs(after.id)] == [1]
    assert not client.exists(processes.keys("leases"), processes.keys("claim_records"), processes.keys("dead_letters"))
    for command in silenced:
        processes.until(lambda command=command: "works again" in command.output, what="both to resume")
        assert not command.failures


# Delay


def test_slow_network_loses_no_lease(processes: Processes, client: Redis, network: Proxy, connect: Any) -> None:
    connect(network, LEASE=5)
    commands = [processes.dispatcher(), processes.worker()]
    network.delay(0.2, 0.15)
    # The job runs longer than a lease, so heartbeats must pass the slow network in time.
    jobs = [tasks.nap.enqueue(6), *enqueue_spread(100, within=4)]
    check_each_ran_once(processes, client, jobs)
    for command in commands:
        assert command.end() == 0
        for word in ("lease lost", "lease expired", "waits for Redis", "Traceback"):
            assert word not in command.output
