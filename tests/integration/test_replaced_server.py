"""A server that is demoted, replaced, flushed or reached by TCP: producers and commands go on with what is there now.

The server's name is a symbolic link to its socket: changing it is what a failover does to a host name, while
connections that are open stay with the old server.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from django_delayq.dispatcher import Dispatcher
from django_delayq.exceptions import StoreRejected
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
        """Lead there from now on, in one step."""
        new = self._link.with_suffix(".new")
        new.symlink_to(server.socket)
        new.replace(self._link)


def demote(server: LocalRedisServer) -> None:
    """Make it a replica of nobody there: it stays reachable and takes no writes."""
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


@pytest.fixture
def processes(tmp_path: Path, delayq_settings: Any) -> Iterator[Processes]:
    with Processes(tmp_path, delayq_settings) as started:
        yield started


# Demoted


def test_a_producer_refused_by_a_demoted_server_looks_for_the_new_one(
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


def test_a_worker_and_a_dispatcher_refused_by_a_demoted_server_look_for_the_new_one(
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
def test_a_lapsed_job_is_read_where_its_lease_is_and_not_on_the_old_server(
    how: str, apis: ShardApis, two: tuple[LocalRedisServer, LocalRedisServer], name: Name
) -> None:
    old, new = two
    apis.promote()
    # Another connection, on which the old server goes on answering.
    apis.client.ping()
    name.lead_to(new)
    if how == "demoted":
        demote(old)
        with pytest.raises(StoreRejected):
            apis.promote()
    else:
        with old.client() as client:
            client.client_kill_filter(_id=str(apis.shard.connection_cache.execute("CLIENT", "ID")))
    raw_id = apis.add()
    apis.worker().take()
    apis.clock.advance(apis.config.worker.lease_us)
    Dispatcher(apis.shard, apis.promotion).promote()
    # Read on the old server, it would be a job of no queue, or one without a body, and dead.
    with new.client(protocol=2) as client:
        assert [member[:12] for member in client.zrange(apis.keys.recovered("default"), 0, -1)] == [raw_id]
        assert not client.exists(apis.keys("leases"), apis.keys("dead_letters"))


def test_commands_find_the_new_server(
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


def test_a_queue_that_is_new_after_a_flush_is_served(processes: Processes, client: Redis) -> None:
    dispatcher, worker = processes.dispatcher(), processes.worker()
    # Both know one queue then; after the flush there is one again, another.
    tasks.record.after(0.01).enqueue("before")
    processes.until_runs(1)
    client.flushall()
    job = tasks.record.using(queue="mail", delay=0.01).enqueue("after")
    [run] = processes.until_runs(1, job.id)
    assert run["queue"] == "mail"
    assert (dispatcher.end(), worker.end()) == (0, 0)


def test_each_dispatcher_is_told_of_a_flush_whoever_comes_first(redis_url: str, client: Redis) -> None:
    apis = ShardApis(redis_url)
    apis.add(delay=MS)
    dispatchers = [Dispatcher(apis.shard, apis.store.promotion(apis.shard)) for _ in range(2)]
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


def test_a_dispatcher_that_was_not_told_of_a_flush_finds_the_queues_that_came_since(
    redis_url: str, client: Redis
) -> None:
    apis = ShardApis(redis_url)
    apis.add(delay=MS)
    # One code for both: as on a server that was set back to a time when it knew this dispatcher.
    known, other = (Dispatcher(apis.shard, apis.promotion) for _ in range(2))
    known.promote()
    client.flushall()
    # Another promotes first, while there is no queue at all; then there is one again, another.
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
    # Where hiredis is installed, it cannot be imported by the worker: found first, and broken.
    (processes.folder / "hiredis.py").write_text("raise ImportError('hidden')\n")
    port = start_redis(port=0).port
    tcp = {"url": f"redis://127.0.0.1:{port}/0", "parameters": {"host": "127.0.0.1", "port": port}}
    processes.configure(REDIS=tcp[form])
    job = tasks.record.enqueue(1)
    assert processes.start("run_worker", "--drain").wait() == 0
    assert [run["id"] for run in processes.runs()] == [job.id]
    assert job.refresh().state == "gone"
