"""`with limit(…)` outside a job: the slot is taken, and given back whatever happens in the block."""

import asyncio
import logging
from collections.abc import Iterator

import pytest
from redis import Redis

from django_delayq import get_store, limit
from django_delayq.exceptions import LimitClosed, RetryLater
from tests.sample_app import limit_tasks
from tests.subprocesses import Processes, until


@pytest.fixture(autouse=True)
def limited(processes: Processes) -> None:
    """Declare and store the limits."""
    processes.configure(LIMITS=limit_tasks.LIMITS)
    get_store().store_limits()


@pytest.fixture
def damaged(client: Redis, processes: Processes) -> Iterator[str]:
    """Return the key that a test gives another type, and delete it at the end."""
    yield processes.keys("limit_rules")
    client.delete(processes.keys("limit_rules"))


def test_a_block_has_a_slot_until_its_end() -> None:
    with pytest.raises(TypeError, match="block="), limit("one"):
        raise AssertionError("it has no slot")
    with limit("one", block=1):
        assert limit("one").counts()["running"] == 1
        with pytest.raises(LimitClosed, match="closed for 0.05 s"), limit("one", block=0.05):
            raise AssertionError("it has no slot")
    assert limit("one").counts()["running"] == 0


def test_a_fault_of_redis_at_the_end_does_not_replace_the_error_of_the_block(
    client: Redis, damaged: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RetryLater), limit("one", block=1):
        client.delete(damaged)
        client.set(damaged, "x")
        raise RetryLater(30)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "The slot of the limit 'one' is free later: Redis reported a fault" in caplog.text


def test_a_fault_of_redis_at_the_end_is_no_error_of_a_block_that_is_done(client: Redis, damaged: str) -> None:
    with limit("one", block=1):
        client.delete(damaged)
        client.set(damaged, "x")


def test_a_block_that_is_cancelled_while_it_requests_a_slot_has_none(client: Redis) -> None:
    async def wait_for_a_slot() -> None:
        async with limit("one", block=5):
            raise AssertionError("it was cancelled")

    def is_requested() -> bool:
        # A script that Redis answers when the pause ends.
        return any(each["cmd"].startswith("eval") and "b" in each["flags"] for each in client.client_list())

    async def cancel_it() -> None:
        client.client_pause(60_000, all=False)
        try:
            waiting = asyncio.ensure_future(wait_for_a_slot())
            await asyncio.to_thread(until, is_requested, what="the request of a slot")
            waiting.cancel()
        finally:
            client.client_unpause()
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(cancel_it())
    assert limit("one").counts()["running"] == 0
