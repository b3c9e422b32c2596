"""Replication: with WAIT_REPLICAS a call ends when so many replicas have what it wrote, or says that they have not."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from redis import Redis

from django_delayq import enqueue_many, jobs
from django_delayq.exceptions import DelayQError, NotReplicated
from django_delayq.store.store import get_store
from django_delayq.testing.local_redis import LocalRedisServer
from tests.sample_app import tasks
from tests.subprocesses import until

HOUR = timedelta(hours=1)


@pytest.fixture
def replica(start_redis: Callable[..., LocalRedisServer], settings: Any) -> Iterator[LocalRedisServer]:
    """The replica of the primary that DELAYQ names."""
    primary = start_redis(port=0, options={"repl-diskless-sync-delay": "0"})
    follower = start_redis(port=0, options={"replicaof": f"127.0.0.1 {primary.port}"})
    with follower.client() as client:
        until(lambda: client.info("replication")["master_link_status"] == "up", what="the replica to follow")
    settings.DELAYQ = {"REDIS": primary.url, "WAIT_REPLICAS": 1, "WAIT_TIMEOUT": 20, "ENQUEUE_TIMEOUT": 30}
    yield follower
    resume(follower)


@contextmanager
def stopped(server: LocalRedisServer, settings: Any) -> Iterator[None]:
    """Freeze a replica; meanwhile calls wait for it for 50 ms only."""
    assert server.pid is not None
    before = settings.DELAYQ
    os.kill(server.pid, signal.SIGSTOP)
    settings.DELAYQ = {**before, "WAIT_TIMEOUT": 0.05}
    yield
    resume(server)
    settings.DELAYQ = before


def resume(server: LocalRedisServer) -> None:
    if server.pid is not None:
        os.kill(server.pid, signal.SIGCONT)


def replicated_ids(server: LocalRedisServer) -> set[bytes]:
    """Return the ids of the jobs that a replica has."""
    with server.client() as client:
        found: set[bytes] = set(client.hkeys("delayq:{0}:jobs"))
        return found


def test_an_accepted_job_is_on_the_replica(replica: LocalRedisServer) -> None:
    handles = [tasks.noop.after(HOUR).enqueue(), *enqueue_many(tasks.noop.after(HOUR).job(n) for n in range(600))]
    assert {bytes.fromhex(handle.id[:24]) for handle in handles} == replicated_ids(replica)


@pytest.mark.parametrize("key", [None, "k"])
def test_without_the_replica_the_job_exists_and_resend_confirms_it(
    replica: LocalRedisServer, settings: Any, key: str | None
) -> None:
    handle = tasks.noop.using(delay=HOUR, key=key).job()
    with stopped(replica, settings):
        with pytest.raises(NotReplicated, match=r"0 of 1 replicas confirmed it") as caught:
            enqueue_many([handle])
        error = caught.value
        assert (error.maybe_accepted, error.retryable, error.replicas, error.unsent) == (True, True, 0, [handle])
        assert get_store().snapshot().total.scheduled == 1
        # Nothing is written the second time, and the replica still has nothing.
        with pytest.raises(NotReplicated):
            error.resend()
    error.resend()
    assert handle.refresh().state == "scheduled" and handle.draft is None
    assert replicated_ids(replica) == {bytes.fromhex(handle.id[:24])}


def call_of_each_kind() -> dict[str, Callable[[], Any]]:
    waiting = [tasks.noop.after(HOUR).enqueue() for _ in range(3)]
    tasks.noop.schedules.set("old", every=HOUR)
    return {
        "enqueue": lambda: tasks.noop.enqueue(),
        "replace": lambda: tasks.noop.using(key="k", unique="replace", delay=HOUR).enqueue(),
        "cancel": waiting[0].cancel,
        "reschedule": lambda: waiting[1].reschedule(delay=7_200),
        "cancel many": lambda: jobs(queue="default").cancel(),
        "set a schedule": lambda: tasks.noop.schedules.set("new", every=HOUR),
        "delete a schedule": lambda: tasks.noop.schedules.delete("old"),
    }


def test_every_change_of_jobs_and_schedules_waits(replica: LocalRedisServer, settings: Any) -> None:
    calls = call_of_each_kind()
    with stopped(replica, settings):
        for name, call in calls.items():
            with pytest.raises(NotReplicated):
                call()
                pytest.fail(f"{name} did not wait")


def test_reads_and_workers_do_not_wait(replica: LocalRedisServer, settings: Any) -> None:
    handle = tasks.noop.after(HOUR).enqueue()
    with stopped(replica, settings):
        assert handle.refresh().state == "scheduled"
        assert get_store().snapshot().total.scheduled == 1
        get_store().shards[0].notify(["default"])


def test_the_wait_ends_within_the_time_of_the_call(replica: LocalRedisServer, settings: Any) -> None:
    # The server knows the script from now on, so that the call waits once.
    tasks.noop.enqueue()
    with stopped(replica, settings):
        settings.DELAYQ = {**settings.DELAYQ, "WAIT_TIMEOUT": 3_600, "ENQUEUE_TIMEOUT": 5}
        # Not StoreUnavailable, which the time limit of the call would raise.
        with pytest.raises(NotReplicated):
            tasks.noop.enqueue()


def test_a_primary_that_becomes_a_replica_confirms_nothing(replica: LocalRedisServer, settings: Any) -> None:
    """The script has run, so the error must not say that it has not."""
    # From now on the server knows the script.
    tasks.noop.enqueue()
    primary = Redis.from_url(settings.DELAYQ["REDIS"])
    errors: list[DelayQError] = []

    def enqueue() -> None:
        try:
            tasks.noop.enqueue()
        except DelayQError as error:
            errors.append(error)

    assert replica.pid is not None
    os.kill(replica.pid, signal.SIGSTOP)
    thread = threading.Thread(target=enqueue)
    thread.start()
    until(lambda: primary.info("clients")["blocked_clients"] == 1, what="the call to wait")
    primary.replicaof("127.0.0.1", "1")
    thread.join()
    [error] = errors
    assert isinstance(error, NotReplicated) and error.maybe_accepted
    primary.close()
