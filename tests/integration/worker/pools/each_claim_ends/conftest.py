"""Fixtures of the tests of pools: the ledger, claims to run, and each pool."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.ids import next_id
from django_delayq.job.job import Claim, Job
from django_delayq.task import registry
from django_delayq.task.task import Task
from django_delayq.worker.pools.asyncio import AsyncioPool
from django_delayq.worker.pools.base import Pool
from tests.factories import claim_for
from tests.integration.worker.pools.each_claim_ends.pools import Ledger, Make, threads_of


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, delayq_settings: Any) -> Ledger:
    monkeypatch.setenv("DELAYQ_TEST_LEDGER", str(tmp_path / "ledger"))
    return Ledger()


@pytest.fixture
def make(registered: Any) -> Make:
    """Make a claim of a job whose task is the given function."""
    registered()

    def made(func: Any, *args: Any, suspect: bool = False, **job: Any) -> Claim:
        name = func.name if isinstance(func, Task) else f"shop.{func.__name__}"
        if not isinstance(func, Task):
            registry._tasks[name] = Task(func=func, name=name)
        made = Job(raw_id=next_id(), shard=0, task=name, queue="default", args=list(args), **job)
        return claim_for(made, attempts=AttemptHistory(ended=1, crash_suspected=suspect))

    return made


@pytest.fixture(params=[threads_of, AsyncioPool])
def pool(request: Any) -> Iterator[Pool]:
    made = request.param(2)
    yield made
    made.close()


@pytest.fixture
def loop() -> Iterator[AsyncioPool]:
    made = AsyncioPool(4)
    yield made
    made.close()
