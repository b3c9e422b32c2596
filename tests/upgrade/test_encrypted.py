"""Encrypted jobs beside the older release: its worker leaves them to a newer one, and its plain results are read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from django_delayq.job.job import State
from django_delayq.job.result import Result
from django_delayq.store.records import ResultRecord
from tests.sample_app import tasks
from tests.shard_apis import DAY, ShardApis
from tests.subprocesses import Processes
from tests.upgrade.test_claim_records import older


def test_an_older_worker_leaves_an_encrypted_job_to_a_newer_one(
    processes: Processes, older_package: Path, gate: Path
) -> None:
    worker = older(processes, older_package, "run_worker")
    processes.until_known(worker)
    # The older release does not know the setting, and refuses to start with it.
    processes.configure(ENCRYPT=True)
    job = tasks.wait_for.enqueue(str(gate))
    processes.until_state(job, "scheduled")
    assert worker.end() == 0
    assert processes.runs() == []
    gate.touch()
    assert job.reschedule(delay=0)
    processes.worker("--with-dispatcher")
    processes.until_gone([job])
    [run] = processes.runs(job.id)
    assert run["attempt"] == 2


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("pack_cancelled(ended_us=5)", Result(state=State.CANCELLED, ended_us=5)),
        (
            "pack_done(worker='w', started_us=4, ended_us=5, value='[3]')",
            Result(state=State.DONE, ended_us=5, started_us=4, worker="w", value=[3]),
        ),
    ],
    ids=["cancelled", "done"],
)
def test_a_plain_result_of_the_older_release_is_read(
    script: str, expected: Result, in_older_package: Callable[[str, bytes], str], client: Any, redis_url: str
) -> None:
    older_result = in_older_package(f"from django_delayq.job.result import *; print({script}.decode())", b"").strip()
    apis = ShardApis(redis_url, ENCRYPT=True, ENCRYPTION_KEYS=["secret " * 10])
    raw_id = apis.add(ttl=DAY)
    assert apis.operations.cancel(raw_id)
    key = apis.keys.results(raw_id)
    attempts, ending, body = ResultRecord.unpack(client.lindex(key, 0))
    assert ending[:1] == b"\x01"
    lengths = len(attempts).to_bytes(4) + len(older_result).to_bytes(4)
    client.lset(key, 0, lengths + attempts + older_result.encode() + body)
    assert apis.inspection.find(raw_id).result == expected
    apis.close()
