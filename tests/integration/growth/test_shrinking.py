"""Shrinking: a shard is dropped once nothing is in it, and no producer sends anything there."""

import threading
from collections.abc import Iterator
from contextlib import suppress
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_delayq import Throttle, limit, queue
from django_delayq.exceptions import LimitClosed
from django_delayq.job.ids import shard_of
from django_delayq.job.job import LimitUse
from django_delayq.management import growing
from django_delayq.store.digests import key_digest, routing_of
from django_delayq.store.store import get_store
from tests.integration.growth.several import HOUR, Process
from tests.sample_app.tasks import noop


@pytest.fixture(autouse=True)
def _four_shards(delayq_settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    limits = {"api": {"max_running": 1}}
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 4, "ON_COMMIT": False, "LIMITS": limits}
    monkeypatch.setattr(growing, "LEARN_EVERY", 0.0)
    get_store().check_shards()
    get_store().store_limits()
    yield
    get_store().disconnect_idle()


def change(*options: str) -> None:
    """Run the command, which fails as long as something is left."""
    with suppress(CommandError):
        call_command("delayq_shards", *options, "--yes", "--wait", "0", stdout=StringIO())


def test_a_window_keeps_its_shard() -> None:
    key = next(key for key in map(str, range(40)) if shard_of(key_digest(noop.name, key, None), 4) == 3)
    throttled = noop.using(key=key, unique=Throttle(HOUR), delay=HOUR)
    assert throttled.enqueue().created
    store = get_store()
    shard = store.producer_shard(3)
    # The job has ended; its window is open.
    for noun in ("jobs", "job_extras"):
        shard.execute("DEL", shard.keys(noun))
    change("--shrink", "2")
    assert not store.layout.is_finished
    assert not throttled.enqueue().created


def test_a_slot_keeps_its_shard() -> None:
    value = next(v for v in map(str, range(40)) if shard_of(routing_of("", None, None, [LimitUse("api", v)]), 4) == 3)
    with limit("api", value, block=0.1):
        change("--shrink", "2")
        assert not get_store().layout.is_finished
        with pytest.raises(LimitClosed), limit("api", value, block=0.1):
            pass
    change("--finish")
    assert get_store().layout.is_finished and get_store().shard_count == 2


def test_it_waits_until_producers_know_the_smaller_number(monkeypatch: pytest.MonkeyPatch) -> None:
    other, sent = Process(), threading.Event()
    other.enqueue().cancel()

    def enqueue_meanwhile(seconds: float) -> None:
        if not sent.is_set():
            sent.set()
            ids.extend(other.enqueue().id for _ in range(40))

    ids = list[str]()
    monkeypatch.setattr(growing, "sleep", enqueue_meanwhile)
    change("--shrink", "2")
    assert {id.split("-")[1] for id in ids} == {"0", "1", "2", "3"}
    assert not get_store().layout.is_finished


def test_pauses_of_dropped_shards_are_forgotten() -> None:
    assert queue("mail").pause() and queue("other").pause(until=None)
    change("--shrink", "2")
    assert get_store().shard_count == 2
    assert queue("mail").resume()
    change("--grow", "4")
    assert [paused(index) for index in range(4)] == [1] * 4


def test_a_queue_that_is_resumed_meanwhile_is_not_paused_in_new_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    assert queue("mail").pause()
    real, resumes = growing.Growth.copy_rules, [queue("mail").resume]

    def copy_rules(growth: Any) -> None:
        real(growth)
        if resumes:
            # Only in shards that it knows: the new ones are announced just now.
            resumes.pop()()

    monkeypatch.setattr(growing.Growth, "copy_rules", copy_rules)
    change("--grow", "6")
    assert [paused(index) for index in range(6)] == [0] * 6


def paused(index: int) -> int:
    """Return how many queues are paused in a shard."""
    shard = get_store().producer_shard(index)
    return int(shard.execute("HLEN", shard.keys("paused")))
