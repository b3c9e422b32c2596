"""Dropping: a shard goes when nothing can come back to it, and when nobody misses what it had."""

from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from django_delayq import Throttle, limit, queue
from django_delayq.clock import ServerClock
from django_delayq.job.job import LimitUse
from django_delayq.job.outcome import Action
from django_delayq.management import resharding
from django_delayq.store.digests import key_digest, routing_of
from django_delayq.store.growth.growth import Growth
from django_delayq.store.store import get_store
from tests.integration.growth.command import shards
from tests.integration.growth.several import HOUR, Process
from tests.sample_app.tasks import noop
from tests.shard_apis import ShardApis

VALUES = [f"value {number}" for number in range(12)]
LIMITS = {"hourly": {"rate": "1/h"}, "alone": {"max_running": 1}}


@pytest.fixture(autouse=True)
def _four_shards(delayq_settings: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "SHARDS": 4, "ON_COMMIT": False, "LIMITS": LIMITS}
    monkeypatch.setattr(resharding, "LEARN_EVERY", 0.0)
    get_store().store_limits()
    yield
    get_store().disconnect_idle()


def run_all(redis: Any) -> None:
    """Let all ready jobs run and end."""
    for shard in range(get_store().shard_count):
        apis = ShardApis(redis, clock=ServerClock(), shard=shard, SHARDS=4, LIMITS=LIMITS)
        worker = apis.worker()
        for claim in worker.take(64).claims:
            worker.settle(claim, Action.ACKNOWLEDGE)
        apis.close()


def test_a_shard_is_not_dropped_while_a_window_is_open_there(delayq_settings: Any) -> None:
    keys = [key for key in VALUES if get_store().layout.home(key_digest(noop.name, key, None)) >= 2]
    windows = {key: noop.using(key=key, unique=Throttle(HOUR)).enqueue() for key in keys}
    assert windows
    run_all(delayq_settings.DELAYQ["REDIS"])
    with pytest.raises(CommandError, match="not empty yet"):
        shards("--shrink", "2")
    for key, first in windows.items():
        later = noop.using(key=key, unique=Throttle(HOUR)).enqueue()
        assert not later.created and later.id == first.id


def test_a_shard_is_not_dropped_while_a_rate_is_not_whole_again(delayq_settings: Any) -> None:
    values = [value for value in VALUES if _home("hourly", value) >= 2]
    for value in values:
        noop.using(limit=("hourly", value)).enqueue()
    run_all(delayq_settings.DELAYQ["REDIS"])
    with pytest.raises(CommandError, match="not empty yet"):
        shards("--shrink", "2")
    assert values and all(limit("hourly", value).counts()["opens_at"] for value in values)


def test_a_shard_is_not_dropped_while_code_has_a_slot_there() -> None:
    value = next(value for value in VALUES if _home("alone", value) >= 2)
    with limit("alone", value, block=5):
        with pytest.raises(CommandError, match="not empty yet"):
            shards("--shrink", "2")
        assert limit("alone", value).counts()["running"] == 1
    assert shards("--shrink", "2")["left"] == {}
    assert get_store().shard_count == 2


def test_a_shard_that_comes_again_has_the_pauses_of_now(delayq_settings: Any) -> None:
    queues = {"fair": {"fair": True}, **dict.fromkeys(["default", "mail", "later", "now"], {})}
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "QUEUES": queues}
    paused = [queue("mail"), queue("fair").tenant("acme"), noop]
    assert all(each.pause() for each in paused) and queue("later").pause(until=HOUR)
    shards("--shrink", "2")
    assert all(each.resume() for each in paused) and queue("later").resume() and queue("now").pause()
    shards("--grow", "4")
    for index in range(4):
        shard = get_store().producer_shard(index)
        assert shard.execute("HKEYS", shard.keys("paused")) == [shard.keys("ready:now").encode()]
        assert not shard.execute("HLEN", shard.keys("paused_tasks")) + shard.execute("HLEN", shard.keys("tenants"))
        assert not shard.execute("ZCARD", shard.keys("pause_ends"))


def test_a_queue_that_is_resumed_meanwhile_is_not_paused_in_new_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    assert queue("mail").pause()
    real, resumes = resharding.Growth.copy_rules, [queue("mail").resume]

    def copy_rules(growth: Any) -> None:
        real(growth)
        if resumes:
            # Only in shards that it knows: the new ones are announced just now.
            resumes.pop()()

    monkeypatch.setattr(resharding.Growth, "copy_rules", copy_rules)
    shards("--grow", "6")
    assert [paused(index) for index in range(6)] == [0] * 6


def test_a_shard_with_jobs_is_not_dropped_while_others_are_announced() -> None:
    jobs = [noop.using(delay=HOUR).enqueue() for _ in range(40)]
    with pytest.raises(CommandError, match="not empty yet"):
        shards("--shrink", "2")
    store = get_store()
    Growth(store.layouts, store.producer_shard).announce(6)
    assert shards("--finish")["left"].keys() == {"2", "3"}
    assert all(job.cancel() for job in jobs)
    assert shards("--finish")["left"] == {}
    assert store.layout.is_finished and store.layout.coming == store.shard_count == 6


def test_a_shard_is_not_dropped_before_all_producers_know_that_it_drains(monkeypatch: pytest.MonkeyPatch) -> None:
    producer, ids, slept = Process(), list[str](), list[float]()
    assert producer.call(producer.enqueue().cancel)

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        ids.extend(producer.enqueue().id for _ in range(20))

    monkeypatch.setattr(resharding, "LEARN_EVERY", 15.0)
    monkeypatch.setattr(resharding, "sleep", sleep)
    with pytest.raises(CommandError, match="not empty yet"):
        shards("--shrink", "2")
    assert len(slept) == 1 and slept[0] > 10 and any(id.endswith(("-2", "-3")) for id in ids)


def test_an_announcement_is_taken_back() -> None:
    store = get_store()
    store.check_shards_once()
    Growth(store.layouts, store.producer_shard).announce(50)
    assert "--shrink 4 to take that back" in shown()
    assert shards("--shrink", "4")["steps"][0] == "The announcement of 50 shards is taken back."
    assert store.shard_count == 4 and not store.layout.coming and "announced" not in shown()


def shown() -> str:
    """Return what the command prints without options."""
    out = StringIO()
    call_command("delayq_shards", stdout=out)
    return out.getvalue()


def paused(index: int) -> int:
    """Return how many queues are paused in a shard."""
    shard = get_store().producer_shard(index)
    return int(shard.execute("HLEN", shard.keys("paused")))


def _home(name: str, value: str) -> int:
    routing = routing_of(noop.name, None, None, [LimitUse(name, value)])
    return get_store().layout.home(routing or b"")
