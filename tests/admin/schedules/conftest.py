"""Fixtures of the tests of recurring schedules: pages and store have one clock, on a Monday at half past nine."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from django_delayq import runtime
from django_delayq.clock import moment_us
from django_delayq.conf.settings import drop_config
from django_delayq.testing.fake_clock import FakeClock
from tests.shard_apis import ShardApis

#: It is half past ten in Berlin, the time zone of the pages.
NOW_US = moment_us(datetime(2027, 1, 4, 9, 30, tzinfo=UTC))


@pytest.fixture
def clock(delayq_settings: Any) -> Iterator[FakeClock]:
    """The clock of the pages."""
    with runtime.override(clock=FakeClock(NOW_US)):
        # The store of the pages is made with the clock of that time.
        drop_config()
        yield runtime.current().clock  # type: ignore[misc]
    drop_config()


@pytest.fixture
def stock(clock: FakeClock, redis_url: str) -> Iterator[ShardApis]:
    """The APIs of the store behind the pages."""
    apis = ShardApis(redis_url, clock=clock)
    yield apis
    apis.close()


@pytest.fixture
def shards(clock: FakeClock, delayq_settings: Any, redis_url: str) -> Iterator[list[ShardApis]]:
    """The APIs of each of three shards."""
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 3}
    apis = [ShardApis(redis_url, shard=number, SHARDS=3, clock=clock) for number in range(3)]
    yield apis
    for each in apis:
        each.close()
