"""Several dispatchers on a shard: one promotes, the others check whether it did, and any takes over if it did not."""

from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest
from redis import Redis

from django_delayq import enqueue_many
from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.store.client.script import Script
from django_delayq.store.promotion import Promotion, PromotionResult
from tests.sample_app import tasks
from tests.shard_apis import HOUR, SECOND, ShardApis
from tests.subprocesses import Processes

SWEEP = 5.0
#: Seconds that a follower may wake after the other dispatcher: its delay, and what this machine adds.
AFTER = 1.0


class Counted(Promotion):
    """A Promotion that counts its calls."""

    promotions = 0

    def promote(self, *args: Any, **options: Any) -> PromotionResult:
        self.promotions += 1
        return super().promote(*args, **options)


@pytest.fixture
def apis(client: Redis, redis_url: str) -> Iterator[ShardApis]:
    opened = ShardApis(redis_url)
    yield opened
    opened.close()


def dispatcher(apis: ShardApis) -> tuple[Dispatcher, Counted]:
    counted = Counted(apis.shard)
    return Dispatcher(apis.shard, counted), counted


def two(apis: ShardApis) -> tuple[Dispatcher, Counted, Dispatcher, Counted]:
    """Return one that promotes and one that follows it, for a job that is due in a second."""
    apis.add(delay=SECOND)
    first, counted = dispatcher(apis)
    second, other = dispatcher(apis)
    assert first.step() == pytest.approx(1.0)
    wait = second.step()
    assert wait is not None and 1.02 <= wait <= 1.06
    counted.promotions = other.promotions = 0
    return first, counted, second, other


def test_a_follower_only_checks_if_the_other_promoted(apis: ShardApis) -> None:
    began = monotonic()
    first, counted, second, other = two(apis)
    apis.add(delay=3 * SECOND)
    apis.clock.advance(SECOND)
    first.step()
    wait = second.step()
    assert (counted.promotions, other.promotions) == (1, 0)
    # By the host's clock, 1 s from the second's step to the known moment, and 2 s from there to the next.
    assert wait is not None and 3.0 - (monotonic() - began) < wait < 3.0 + AFTER
    assert apis.inspection.counts().ready == {"default": 1}


def test_a_follower_promotes_if_the_other_did_not(apis: ShardApis) -> None:
    _, _, second, other = two(apis)
    apis.clock.advance(SECOND)
    second.step()
    assert other.promotions == 1
    assert apis.inspection.counts().ready == {"default": 1}
    # From now on it wakes in time.
    apis.add(delay=SECOND)
    assert second.step() == pytest.approx(1.0, abs=0.01)


def test_a_notified_follower_promotes_at_once_and_then_in_time(apis: ShardApis) -> None:
    first, _, second, other = two(apis)
    apis.clock.advance(SECOND)
    # The other has promoted since; only this one is notified.
    first.step()
    apis.add(delay=SECOND // 2)
    second.listen()
    second.on_wakeup()
    assert second.step() == pytest.approx(0.5)
    assert other.promotions == 1


def test_a_dispatcher_that_is_early_for_its_own_moment_goes_on_promoting(apis: ShardApis) -> None:
    first, counted, _, _ = two(apis)
    apis.clock.advance(SECOND - 500)
    assert first.step() == pytest.approx(0.0005, abs=0.0005)
    apis.clock.advance(500)
    first.step()
    assert counted.promotions == 2
    assert apis.inspection.counts().ready == {"default": 1}


@pytest.mark.parametrize("turn", [-HOUR, HOUR])
def test_after_a_clock_was_set_a_follower_promotes(apis: ShardApis, turn: int) -> None:
    first, _, second, other = two(apis)
    apis.clock.advance(turn)
    first.step()
    wait = second.step()
    # Twice if Redis has forgotten it meanwhile.
    assert other.promotions >= 1
    assert wait is not None and wait <= SWEEP + AFTER


@pytest.mark.parametrize("found", [None, b"x", b"-5", b""])
def test_a_lost_or_damaged_announcement_is_no_reason_to_wait(apis: ShardApis, found: bytes | None) -> None:
    _, _, second, other = two(apis)
    if found is None:
        apis.client.delete(apis.keys("next_promotion"))
    else:
        apis.client.set(apis.keys("next_promotion"), found)
    second.step()
    assert other.promotions == 1


def test_of_three_dispatchers_one_promotes_for_each_moment(processes: Processes, client: Redis) -> None:
    for _ in range(3):
        processes.dispatcher()
    worker = processes.worker()
    moments, promote = 40, f"EVALSHA {Script('promote').sha}"
    enqueue_many([tasks.record.using(delay=2 + n / 10).job(n) for n in range(moments)])
    with processes.client() as other, other.monitor() as monitor:
        runs = processes.until_runs(moments)
        client.echo("the end")
        promotions = 0
        while (line := monitor.next_command())["command"] != "ECHO the end":
            promotions += line["command"].startswith(promote)
    assert len({run["id"] for run in runs}) == moments
    assert worker.running
    late = sorted(run["at"] - run["due"] for run in runs)
    print(f"{promotions / moments:.2f} promotions a moment; late {late[moments // 2] * 1_000:.1f} ms (median)")
    # If followers promoted too, it would be three.
    assert promotions <= 2.2 * moments


def test_if_the_one_that_promotes_is_killed_another_takes_over(processes: Processes, client: Redis) -> None:
    # No worker: its fallback dispatcher would promote.
    ready, dispatchers = processes.keys.ready("default"), [processes.dispatcher() for _ in range(3)]
    for number in range(4):
        tasks.record.after(0.2).enqueue(number)
        processes.until(lambda: client.zcard(ready) > number, what=f"job {number} to be ready")  # noqa: B023
        if number == 1:
            processes.dispatcher()
            processes.until(lambda: client.zcard(processes.keys("dispatchers")) == 4, what="a fourth to promote once")
        # One of the first three promoted, and each of them is killed while another one runs.
        if number < 3:
            dispatchers[number].kill()
