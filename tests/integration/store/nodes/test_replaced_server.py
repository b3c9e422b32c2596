"""Replaced server: producers and commands continue after it is demoted, replaced or flushed, and over TCP.

The server's name is a symbolic link to its socket: changing it is what a failover does to a host name, while
connections that are open stay with the old server.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.exceptions import StoreRejected
from django_delayq.store.promotion import Promotion
from django_delayq.testing.local_redis import LocalRedisServer
from tests.sample_app import tasks
from tests.shard_apis import MS, SECOND, ShardApis
from tests.subprocesses import Processes


class Name:
    """A name that leads to one of several servers."""

    def __init__(self, link: Path) -> None:
        self._link = link
        self.url = f"unix://{link}"

    def lead_to(self, server: LocalRedisServer) -> None:
        """Point the name to this server, atomically."""
        new = self._link.with_suffix(".new")
        new.symlink_to(server.socket)
        new.replace(self._link)


def demote(server: LocalRedisServer) -> None:
    """Make it a replica of a server that does not exist: it stays reachable and refuses writes."""
    with server.client() as client:
        client.replicaof("127.0.0.1", 1)


@pytest.fixture
def name(tmp_path: Path) -> Name:
    return Name(tmp_path / "name.sock")


@pytest.fixture
def two(start_redis: Callable[..., LocalRedisServer], name: Name) -> tuple[LocalRedisServer, LocalRedisServer]:
    """Two servers; the name leads to the first."""
    old, new = start_redis(), start_redis()
    name.lead_to(old)
    return old, new


@pytest.fixture
def apis(two: Any, name: Name) -> Iterator[ShardApis]:
    opened = ShardApis(name.url)
    yield opened
    opened.close()


# Demoted


def test_a_producer_refused_by_a_demoted_server_connects_to_the_new_one(
    apis: ShardApis, two: tuple[LocalRedisServer, LocalRedisServer], name: Name
) -> None:
    old, new = two
    apis.add()
    demote(old)
    name.lead_to(new)
    with pytest.raises(StoreRejected) as caught:
        apis.add()
    assert caught.value.code == "READONLY" and not caught.value.maybe_accepted
    raw_id = apis.add()
    with new.client() as client:
        assert client.hkeys(apis.keys("jobs")) == [raw_id]


def test_a_worker_and_a_dispatcher_refused_by_a_demoted_server_connect_to_the_new_one(
    apis: ShardApis, two: tuple[LocalRedisServer, LocalRedisServer], name: Name
) -> None:
    old, new = two
    worker = apis.worker()
    assert not worker.take().claims
    demote(old)
    name.lead_to(new)
    with pytest.raises(StoreRejected):
        worker.take()
    raw_id = apis.add(delay=SECOND)
    apis.clock.advance(SECOND)
    assert apis.promote().moved == 1
    # The dispatcher shares the worker's pool here; in a process of its own it is refused first.
    assert [claim.raw_id for claim in worker.take().claims] == [raw_id]
    with new.client() as client:
        client.replicaof("127.0.0.1", 1)
    with pytest.raises(StoreRejected):
        apis.promote("default")


@pytest.mark.parametrize("how", ["demoted", "cut off"])
def test_a_job_with_an_expired_lease_is_read_on_the_server_that_has_the_lease(
    how: str, apis: ShardApis, two: tuple[LocalRedisServer, LocalRedisServer], name: Name
) -> None:
    old, new = two
    apis.promote()
    # Another connection, which stays with the old server.
    apis.client.ping()
    name.lead_to(new)
    if how == "demoted":
        demote(old)
        with pytest.raises(StoreRejected):
            apis.promote()
    else:
        with old.client() as client:
            client.client_kill_filter(_id=str(apis.shard.execute("CLIENT", "ID")))
    raw_id = apis.add()
    apis.worker().take()
    apis.clock.advance(apis.config.worker.lease_us)
    Dispatcher(apis.shard, apis.promotion).promote()
    # Read on the old server, it would have no queue or no body, and become a dead letter.
    with new.client(protocol=2) as client:
        assert [member[:12] for member in client.zrange(apis.keys.recovered("default"), 0, -1)] == [raw_id]
        assert not client.exists(apis.keys("leases"), apis.keys("dead_letters"))


def test_commands_connect_to_the_new_server(
    two: tuple[LocalRedisServer, LocalRedisServer], name: Name, processes: Processes
) -> None:
    old, new = two
    processes.configure(REDIS=name.url, LEASE=2)
    processes.dispatcher()
    processes.worker()
    tasks.record.after(0.01).enqueue("old")
    processes.until_runs(1)
    demote(old)
    name.lead_to(new)
    with pytest.raises(StoreRejected):
        tasks.record.enqueue("refused")
    tasks.record.after(0.01).enqueue("new")
    processes.until(lambda: [run["args"] for run in processes.runs()] == [["old"], ["new"]], what="the second run")


# Flushed


def test_jobs_of_a_new_queue_run_after_a_flush(processes: Processes, client: Redis) -> None:
    dispatcher, worker = processes.dispatcher(), processes.worker()
    # Both know one queue; after the flush there is another one, so the number of queues is the same.
    tasks.record.after(0.01).enqueue("before")
    processes.until_runs(1)
    client.flushall()
    job = tasks.record.using(queue="mail", delay=0.01).enqueue("after")
    [run] = processes.until_runs(1, job.id)
    assert run["queue"] == "mail"
    assert (dispatcher.end(), worker.end()) == (0, 0)


def test_each_dispatcher_learns_of_a_flush_in_any_order(redis_url: str, client: Redis) -> None:
    apis = ShardApis(redis_url)
    apis.add(delay=MS)
    dispatchers = [Dispatcher(apis.shard, Promotion(apis.shard)) for _ in range(2)]
    for dispatcher in dispatchers:
        dispatcher.promote()
    client.flushall()
    dispatchers[0].promote()
    raw_id = apis.add(queue="mail", delay=MS)
    apis.clock.advance(MS)
    dispatchers[1].promote()
    assert apis.where(raw_id) == ["ready:mail"]
    for dispatcher in dispatchers:
        dispatcher.close()
    apis.close()


def test_a_dispatcher_that_missed_a_flush_finds_the_new_queues(redis_url: str, client: Redis) -> None:
    apis = ShardApis(redis_url)
    apis.add(delay=MS)
    # One id for both, as on a server that went back to a time when it knew this dispatcher.
    known, other = (Dispatcher(apis.shard, apis.promotion) for _ in range(2))
    known.promote()
    client.flushall()
    # Another dispatcher promotes first, while there is no queue; then a new queue appears.
    other.promote()
    raw_id = apis.add(queue="mail", delay=MS)
    apis.clock.advance(MS)
    known.promote()
    assert apis.where(raw_id) == ["ready:mail"]
    for dispatcher in (known, other):
        dispatcher.close()
    apis.close()


# By TCP


@pytest.mark.parametrize("form", ["url", "parameters"])
def test_a_worker_drains_by_tcp_without_the_fast_parser(
    form: str, start_redis: Callable[..., LocalRedisServer], processes: Processes
) -> None:
    # If hiredis is installed, the worker finds a broken module of this name first.
    (processes.folder / "hiredis.py").write_text("raise ImportError('hidden')\n")
    port = start_redis(port=0).port
    tcp = {"url": f"redis://127.0.0.1:{port}/0", "parameters": {"host": "127.0.0.1", "port": port}}
    processes.configure(REDIS=tcp[form])
    job = tasks.record.enqueue(1)
    assert processes.start("run_worker", "--drain").wait() == 0
    assert [run["id"] for run in processes.runs()] == [job.id]
    assert job.refresh().state == "gone"
