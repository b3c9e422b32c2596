"""Fixtures of the tests of limits: some limits, stored as a worker stores them, and several shards."""

from collections.abc import Iterator
from typing import Any

import pytest

from django_delayq.worker.claiming.turned_away import turn_away
from django_delayq.worker.settlement import decide_settlement
from tests.admin.conftest import RedisClock
from tests.admin.jobs import HOSTILE
from tests.shard_apis import ShardApis

LIMITS = {
    "stripe": {"rate": "100/s", "burst": 20, "max_running": 5},
    "slow": {"rate": "2/h", "burst": 1},
    "single": {"max_running": 1},
    "accounts": {"max_running": 1},
    HOSTILE[:60]: {"rate": "50/m"},
}


@pytest.fixture
def stock(delayq_settings: Any, redis_url: str) -> Iterator[ShardApis]:
    """The APIs of the store behind the pages, with these limits."""
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "LIMITS": LIMITS}
    apis = ShardApis(redis_url, clock=RedisClock(), LIMITS=LIMITS)
    apis.store.store_limits()
    yield apis
    apis.close()


@pytest.fixture
def shards(delayq_settings: Any, redis_url: str) -> Iterator[list[ShardApis]]:
    """The APIs of each of three shards."""
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "LIMITS": LIMITS, "SHARDS": 3}
    apis = [ShardApis(redis_url, shard=number, SHARDS=3, clock=RedisClock(), LIMITS=LIMITS) for number in range(3)]
    apis[0].store.store_limits()
    yield apis
    for each in apis:
        each.close()


def work(apis: ShardApis, number: int = 8) -> int:
    """Let a worker claim jobs and turn away those of paused tasks; return how many it would run."""
    worker = apis.worker()
    to_run, others = turn_away(worker.take(number))
    worker.take(0, settle=[decide_settlement(claim, outcome, worker="w") for claim, outcome in others])
    return len(to_run)
