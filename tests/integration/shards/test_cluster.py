"""Cluster of one node: every key of a script is in the slot of its shard, or the server refuses the call."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from django_delayq.conf.settings import drop_config
from django_delayq.exceptions import ScriptFault, StoreUnavailable
from django_delayq.job.job import State
from django_delayq.store.client.script import Script
from django_delayq.store.store import get_store
from django_delayq.task.handle import JobHandle
from django_delayq.task.outbox import enqueue_many
from django_delayq.testing.local_redis import LocalRedisServer
from tests.exercise_all_apis import exercise_all_apis
from tests.sample_app import tasks
from tests.shard_apis import HOUR, ShardApis

SHARDS = 3


@pytest.fixture(scope="module")
def cluster_url(server_program: Path) -> Iterator[str]:
    """The URL of a node that serves all 16,384 slots."""
    # A cluster node needs a port, even if clients use its socket.
    with LocalRedisServer(server=server_program, port=0, options={"cluster-enabled": "yes"}) as server:
        with server.client() as client:
            client.execute_command("CLUSTER", "ADDSLOTS", *range(16_384))
            # A node waits two seconds before its cluster is up.
            give_up = time.monotonic() + 20
            while b"cluster_state:ok" not in client.execute_command("CLUSTER", "INFO"):
                assert time.monotonic() < give_up, client.execute_command("CLUSTER", "INFO")
                time.sleep(0.02)
        yield server.url


@pytest.fixture
def emptied_url(cluster_url: str) -> Iterator[str]:
    """The URL of the emptied cluster."""
    apis = ShardApis(cluster_url)
    apis.client.flushall()
    yield cluster_url
    apis.close()


@pytest.mark.parametrize("shard", range(SHARDS))
def test_every_api_works_on_every_shard_of_a_cluster(emptied_url: str, shard: int) -> None:
    apis = ShardApis(emptied_url, shard=shard, SHARDS=SHARDS)
    exercise_all_apis(apis)
    # Each shard stores the layout.
    keys = [key for key in apis.client.keys("*}:*") if not key.endswith(b":shards")]
    assert len({apis.client.execute_command("CLUSTER", "KEYSLOT", key) for key in keys}) == 1
    apis.close()


def test_each_shard_has_a_slot_of_its_own(emptied_url: str) -> None:
    apis = ShardApis(emptied_url, SHARDS=SHARDS)
    keys = [shard.keys("jobs") for shard in apis.store.shards]
    assert len({apis.client.execute_command("CLUSTER", "KEYSLOT", key) for key in keys}) == SHARDS
    apis.close()


def test_a_script_with_a_key_of_another_shard_is_refused(emptied_url: str) -> None:
    """The other tests rely on this refusal."""
    apis = ShardApis(emptied_url, SHARDS=SHARDS)
    foreign = apis.store.shards[1].keys
    raw_id = apis.add(delay=HOUR)
    with pytest.raises(ScriptFault, match="same slot"):
        args = [1, b"", 0, 1, raw_id + b"\x64\x02", 0, b"", 0]
        apis.shard.run(Script("cancel"), args, more_keys=foreign.places("default"))
    assert apis.where(raw_id) == ["scheduled:default"]
    apis.close()


@pytest.mark.parametrize("shard", range(SHARDS))
def test_one_pop_can_wait_for_all_notifications_of_a_shard(emptied_url: str, shard: int) -> None:
    apis = ShardApis(emptied_url, shard=shard, SHARDS=SHARDS)
    waker = apis.shard.blocking_listener()
    waker.listen([apis.keys.notify("a"), apis.keys.notify("b"), apis.keys("notify")], now=0.0)
    apis.add(queue="b")
    assert waker.read_notification() in (apis.keys.notify("b"), apis.keys("notify"))
    waker.close()
    apis.close()


def test_handles_lead_to_jobs_on_all_shards(emptied_url: str, settings: Any) -> None:
    settings.DELAYQ = {"REDIS": emptied_url, "SHARDS": SHARDS, "ON_COMMIT": False}
    handles = enqueue_many([tasks.noop.after(hours=1).job(number) for number in range(60)])
    assert isinstance(handles, list)
    assert {handle.id[-1] for handle in handles} == {"0", "1", "2"}
    assert all(fresh(handle).state is State.SCHEDULED for handle in handles)
    assert all(handle.reschedule(delay=0) for handle in handles)
    assert all(fresh(handle).state is State.READY for handle in handles)
    assert all(fresh(handle).cancel() for handle in handles)
    keyed = [tasks.noop.using(delay=5, key=f"{number}").enqueue() for number in range(12)]
    again = [tasks.noop.using(delay=5, key=f"{number}").enqueue() for number in range(12)]
    assert [handle.id for handle in again] == [handle.id for handle in keyed]
    for shard in get_store().shards:
        shard.client.connection_pool.disconnect()
    drop_config()


def test_a_command_waits_for_a_cluster_that_is_down(start_redis: Callable[..., LocalRedisServer]) -> None:
    # Without slots the node replies CLUSTERDOWN.
    apis = ShardApis(start_redis(port=0, options={"cluster-enabled": "yes"}).url)
    with pytest.raises(StoreUnavailable) as error:
        apis.add()
    assert error.value.retryable
    assert not error.value.maybe_accepted
    apis.close()


def test_a_command_waits_for_a_replica_without_its_primary(start_redis: Callable[..., LocalRedisServer]) -> None:
    apis = ShardApis(start_redis().url)
    apis.client.config_set("replica-serve-stale-data", "no")
    apis.client.replicaof("127.0.0.1", "1")
    # The replica replies MASTERDOWN.
    with pytest.raises(StoreUnavailable) as error:
        apis.shard.read_queues()
    assert error.value.retryable
    apis.close()


def test_jobs_of_every_shard_run(emptied_url: str, tmp_path: Path) -> None:
    (tmp_path / "cluster_settings.py").write_text(
        "from tests.settings import *\n"
        f"DELAYQ = {{'REDIS': {emptied_url!r}, 'SHARDS': {SHARDS}, 'TASK_MODULES': ['tests.sample_app.tasks']}}\n"
    )
    ledger, root = tmp_path / "ledger", Path(__file__).parents[3]
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "cluster_settings", "DELAYQ_TEST_LEDGER": str(ledger)}
    environment["PYTHONPATH"] = f"{tmp_path}{os.pathsep}{root}"
    send = "import django; django.setup(); from tests.sample_app.tasks import record"
    send += "; record.enqueue_many([(n,) for n in range(40)])"
    for command in (["-c", send], ["-m", "django", "run_worker", "--drain"]):
        subprocess.run([sys.executable, *command], env=environment, cwd=root, check=True, timeout=60)
    runs = [json.loads(line) for line in ledger.read_text().splitlines()]
    assert sorted(run["args"] for run in runs) == [[number] for number in range(40)]
    assert {run["id"][-1] for run in runs} == {"0", "1", "2"}


def fresh(handle: JobHandle) -> JobHandle:
    """Return a handle that knows only the id."""
    return JobHandle(raw_id=bytes.fromhex(handle.id[:24]), shard=int(handle.id[25:]))
