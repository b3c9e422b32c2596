"""A primary and its replica: a primary that requires a replica refuses writes without it, and a failover keeps jobs."""

import os
import signal
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from redis import Redis

from django_delayq import enqueue_many
from django_delayq.exceptions import StoreRejected
from django_delayq.testing.local_redis import LocalRedisServer
from tests.chaos.harness.steady_load import SteadyLoad
from tests.chaos.network.proxy import Proxy
from tests.chaos.redis.redis_outages import logged_once, wait_out, warnings
from tests.sample_app import tasks
from tests.subprocesses import Processes, until

Pair = tuple[LocalRedisServer, LocalRedisServer]


@pytest.fixture
def pair(start_redis: Callable[..., LocalRedisServer]) -> Iterator[Pair]:
    """A primary, and a replica with the same data."""
    primary = start_redis(port=0, options={"repl-diskless-sync-delay": "0", "repl-ping-replica-period": "1"})
    replica = start_redis(port=0, options={"replicaof": f"127.0.0.1 {primary.port}"})
    until(lambda: replicated(primary, replica), what="the replica to catch up")
    yield primary, replica
    # A frozen replica would not react to SIGTERM.
    if replica.pid is not None:
        os.kill(replica.pid, signal.SIGCONT)


def replicated(primary: LocalRedisServer, replica: LocalRedisServer) -> bool:
    """Return whether the replica has everything that the primary has written."""
    with primary.client() as source, replica.client() as copy:
        written, has = source.info("replication"), copy.info("replication")
        return has.get("master_link_status") == "up" and has["slave_repl_offset"] >= written["master_repl_offset"]


def test_primary_without_its_replica_refuses_writes_until_it_returns(processes: Processes, pair: Pair) -> None:
    primary, replica = pair
    processes.configure(REDIS=primary.url, LEASE=2)
    commands = [processes.dispatcher(), processes.worker()]
    with primary.client() as client:
        client.config_set("min-replicas-max-lag", 2)
        client.config_set("min-replicas-to-write", 1)
    with SteadyLoad() as load:
        load.until_accepted()
        with logged_once(processes, commands):
            before = warnings(commands)
            assert replica.pid is not None
            os.kill(replica.pid, signal.SIGSTOP)
            error = load.until_error()
            assert isinstance(error, StoreRejected)
            assert (error.code, error.maybe_accepted) == ("NOREPLICAS", False)
            wait_out(processes, commands, since=before)
            os.kill(replica.pid, signal.SIGCONT)
        load.until_accepted()
    processes.until_empty()
    load.check(processes, commands)


def test_after_failover_replicated_jobs_run_and_lost_outcomes_are_repeated(
    processes: Processes, pair: Pair, gate: Path
) -> None:
    primary, replica = pair
    with Proxy(primary.url) as name:
        processes.configure(REDIS=name.url, LEASE=2)
        commands = [processes.dispatcher(), processes.worker("--concurrency", 2)]
        naps = [tasks.nap.using(delay=n % 2 * 0.2).job(0.02) for n in range(240)]
        # Two jobs at the gate occupy both slots, so that the others cannot end too early.
        held = [tasks.wait_for.job(str(gate)) for _ in range(2)]
        jobs = enqueue_many([*(tasks.nap.job(0.02) for _ in range(60)), *held, *naps])
        processes.until_runs(50)
        until(lambda: replicated(primary, replica), what="all jobs to be replicated")
        with replica.client(protocol=2) as client:
            # From here on the replica receives no writes of the primary.
            client.replicaof("NO", "ONE")
            remembered = ids(client, processes)
        gate.touch()
        with primary.client(protocol=2) as client:
            until(lambda: len(ids(client, processes)) < len(remembered) - 50, what="many unreplicated outcomes")
            primary.kill()
        name.set_upstream(replica.url)
        name.cut()
        processes.until_empty()
        after = tasks.record.after(0.1).enqueue()
        processes.until_gone([after])
        attempts: dict[str, list[int]] = defaultdict(list)
        for run in processes.runs():
            attempts[run["id"]].append(run["attempt"])
        assert attempts.keys() == {job.id for job in [*jobs, after]}, "lost"
        # Jobs whose outcome was replicated do not run again. Jobs whose outcome was lost do.
        again = {job for job, numbers in attempts.items() if len(numbers) > 1}
        assert again and {bytes.fromhex(job.split("-")[0]) for job in again} <= remembered
        assert max(len(numbers) for numbers in attempts.values()) == 2
        with replica.client(protocol=2) as client:
            assert not client.exists(*(processes.keys(noun) for noun in ("leases", "claim_records", "dead_letters")))
        assert [command.end() for command in commands] == [0, 0]
        assert not any(command.failures for command in commands)


def ids(client: Redis, processes: Processes) -> set[bytes]:
    """Return the raw ids of all jobs in Redis that have not ended."""
    return set(client.hkeys(processes.keys("jobs")))
