"""Names of queues: those with jobs are listed, empty ones are removed, and unused ones cost nothing."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_delayq.dispatcher.dispatcher import Dispatcher
from django_delayq.job.outcome import Action
from tests.shard_apis import DAY, HOUR, SECOND, ShardApis, settlement

MINUTE = 60 * SECOND
#: After so long without use, a queue is removed by the next two promotions.
LONG = 11 * MINUTE
MANY = 20_000


@pytest.fixture
def dispatcher(apis: ShardApis) -> Iterator[Dispatcher]:
    """A dispatcher that steps when the test calls it."""
    made = Dispatcher(apis.shard, apis.promotion)
    yield made
    made.close()


def step(dispatcher: Dispatcher, count: int = 2) -> None:
    """Promote twice: the first promotion finds unused queues, the next one removes them."""
    for _ in range(count):
        dispatcher.promote()


def served(apis: ShardApis) -> list[str]:
    return apis.shard.read_served_queues()


def version(apis: ShardApis) -> bytes:
    return apis.worker().take(0).queues_version


def calls(apis: ShardApis, act: Callable[[], Any]) -> int:
    """Return the number of commands that Redis runs meanwhile, including those of scripts."""

    def counted() -> int:
        return sum(row["calls"] for row in apis.client.info("commandstats").values())

    apis.client.info("commandstats")
    before = counted()
    act()
    return counted() - before - 1


def test_an_empty_queue_is_removed_with_its_notification_after_ten_minutes(
    apis: ShardApis, dispatcher: Dispatcher
) -> None:
    apis.operations.cancel(apis.add(queue="mail"))
    before = version(apis)
    apis.clock.advance(LONG - 1)
    step(dispatcher)
    assert (served(apis), version(apis)) == (["mail"], before)
    apis.clock.advance(1)
    step(dispatcher)
    assert served(apis) == [] == apis.shard.read_queues()
    assert version(apis) != before
    assert not apis.client.exists(apis.keys.notify("mail"))


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_queue_that_gets_a_job_from_time_to_time_stays_listed(
    apis: ShardApis, dispatcher: Dispatcher, jobs: int
) -> None:
    for _ in range(4):
        apis.clock.advance(8 * MINUTE)
        drafts = [apis.draft(queue="mail") for _ in range(jobs)]
        apis.enqueue(*drafts)
        for draft in drafts:
            apis.operations.cancel(draft.job.raw_id)
        step(dispatcher)
        assert served(apis) == ["mail"]


@pytest.mark.parametrize("place", ["ready", "scheduled", "claimed"])
def test_a_queue_with_a_job_stays_listed(apis: ShardApis, dispatcher: Dispatcher, place: str) -> None:
    apis.add(queue="mail", delay=DAY if place == "scheduled" else None)
    worker = apis.worker()
    claims = worker.take(1, "mail").claims if place == "claimed" else []
    for _ in range(20):
        apis.clock.advance(MINUTE)
        if claims:
            worker.api.heartbeat([claim.lease for claim in claims], {claim.queue for claim in claims})
        step(dispatcher)
    assert apis.shard.read_queues() == ["mail"]
    assert served(apis) == ([] if place == "scheduled" else ["mail"])


RETURNS: dict[str, Callable[[ShardApis, Any], object]] = {
    "enqueue": lambda apis, _: apis.add(queue="mail"),
    "enqueue later": lambda apis, _: apis.add(queue="mail", delay=HOUR),
    "retry": lambda apis, claim: apis.worker().take(0, settle=[settlement(claim, Action.RETRY, delay=HOUR)]),
    "release": lambda apis, claim: apis.worker().take(0, settle=[settlement(claim, Action.RELEASE)]),
    "reclaim": lambda apis, _: apis.expire_leases(),
    "requeue": lambda apis, claim: requeue(apis, claim),
    "move": lambda apis, _: apis.operations.move(apis.add(queue="other"), "mail"),
    "move later": lambda apis, _: apis.operations.move(apis.add(queue="other", delay=HOUR), "mail"),
}


def requeue(apis: ShardApis, claim: Any) -> None:
    apis.worker().take(0, settle=[settlement(claim, Action.DEAD_LETTER)])
    letter = apis.inspection.dead_letter(claim.raw_id)
    assert letter and apis.operations.requeue(claim.raw_id, died_us=letter.moment_us)


@pytest.mark.parametrize("how", RETURNS)
def test_every_operation_that_adds_a_job_lists_its_queue(apis: ShardApis, how: str) -> None:
    apis.add(queue="mail")
    (claim,) = apis.worker().take(1, "mail").claims
    for noun in ("queues", "next_due"):
        apis.client.delete(apis.keys(noun))
    RETURNS[how](apis, claim)
    assert "mail" in apis.shard.read_queues()
    apis.clock.advance(2 * HOUR)
    step(Dispatcher(apis.shard, apis.promotion))
    assert "mail" in served(apis)


@pytest.mark.parametrize("change", ["cancel", "move", "reschedule", "promote"])
def test_a_queue_whose_last_scheduled_job_leaves_is_not_listed_as_due(apis: ShardApis, change: str) -> None:
    raw_id = apis.add(queue="mail", delay=HOUR)
    if change == "cancel":
        apis.operations.cancel(raw_id)
    elif change == "move":
        apis.operations.move(raw_id, "other")
    elif change == "reschedule":
        apis.operations.reschedule(raw_id, delay_us=0)
    else:
        apis.clock.advance(HOUR)
        apis.promote()
    assert "mail" not in [name.decode() for name in apis.client.zrange(apis.keys("next_due"), 0, -1)]


def test_the_first_due_time_of_a_queue_is_known_whatever_changes_it(apis: ShardApis) -> None:
    def first() -> int:
        return int(apis.client.zscore(apis.keys("next_due"), "mail") or 0)

    apis.add(queue="mail", delay=HOUR)
    apis.add(queue="mail", delay=2 * HOUR)
    assert first() == apis.clock.now_us + HOUR
    soon = apis.add(queue="mail", delay=MINUTE)
    assert first() == apis.clock.now_us + MINUTE
    # Edited manually: the next job repairs it.
    apis.client.delete(apis.keys("next_due"))
    apis.add(queue="mail", delay=3 * HOUR)
    assert first() == apis.clock.now_us + MINUTE
    apis.operations.reschedule(soon, delay_us=5 * HOUR)
    assert first() == apis.clock.now_us + HOUR


def test_a_paused_queue_is_shown_while_it_is_paused(apis: ShardApis, dispatcher: Dispatcher) -> None:
    survey = apis.store.dashboard(0)
    apis.operations.cancel(apis.add(queue="a:b ü"))
    apis.operations.pause("a:b ü", by="ann")
    apis.clock.advance(LONG)
    step(dispatcher)
    assert list(survey.snapshot().queues) == ["a:b ü"]
    apis.operations.resume("a:b ü")
    assert list(survey.snapshot().queues) == []


def test_manually_edited_names_are_dropped_and_do_not_keep_the_dispatcher_busy(
    apis: ShardApis, dispatcher: Dispatcher
) -> None:
    odd = [b"\xff", b"a b", b"a%41", b"%FF", b"a:b", b"%"]
    for noun in ("queues", "next_due"):
        apis.client.zadd(apis.keys(noun), dict.fromkeys([*odd, b"gone"], 1))
    step(dispatcher, 3)
    assert dispatcher.promote().sleep_us == apis.config.dispatcher.sweep_us
    assert apis.shard.read_queues() == []


def test_many_names_used_once_cost_a_promotion_and_an_exchange_nothing(apis: ShardApis, dispatcher: Dispatcher) -> None:
    apis.add(queue="mail")
    step(dispatcher)
    worker = apis.worker()
    alone = (calls(apis, dispatcher.promote), calls(apis, lambda: worker.take(1, *served(apis))))
    pipeline = apis.client.pipeline(transaction=False)
    for number in range(MANY):
        pipeline.zadd(apis.keys("queues"), {f"customer-{number}": apis.clock.now_us})
        pipeline.rpush(apis.keys.notify(f"customer-{number}"), 1)
    pipeline.execute()
    apis.clock.advance(LONG)
    apis.add(queue="mail")
    for _ in range(MANY):
        if served(apis) == ["mail"]:
            break
        dispatcher.promote()
    assert (calls(apis, dispatcher.promote), calls(apis, lambda: worker.take(1, *served(apis)))) <= (
        2 * alone[0],
        2 * alone[1],
    )
    assert not list(apis.client.scan_iter(f"{apis.keys('notify')}:customer*", 1_000))


def test_many_names_due_next_month_cost_a_promotion_and_an_exchange_nothing(
    apis: ShardApis, dispatcher: Dispatcher
) -> None:
    apis.add(queue="mail", delay=HOUR)
    step(dispatcher)
    alone = calls(apis, dispatcher.promote)
    for at in range(0, 5_000, 250):
        apis.enqueue(*[apis.draft(queue=f"customer-{at + number}", delay=30 * DAY) for number in range(250)])
    assert calls(apis, dispatcher.promote) <= 2 * alone
    assert served(apis) == []
    assert len(apis.shard.read_queues()) == 5_001
