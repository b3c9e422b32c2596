"""Names of queues: those with work are known, empty ones are forgotten, and cost nothing."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_delayq.dispatcher import Dispatcher
from django_delayq.job.outcome import Action
from tests.shard_apis import DAY, HOUR, SECOND, Doors, settlement

MINUTE = 60 * SECOND
#: Unused for so long, a queue is forgotten by the next two steps.
LONG = 11 * MINUTE
MANY = 20_000


@pytest.fixture
def dispatcher(doors: Doors) -> Iterator[Dispatcher]:
    """A dispatcher that steps when it is told to."""
    made = Dispatcher(doors.shard, doors.promotion)
    yield made
    made.close()


def step(dispatcher: Dispatcher, count: int = 2) -> None:
    """Promote: the first step finds what is old, the next one forgets it."""
    for _ in range(count):
        dispatcher.promote()


def served(doors: Doors) -> list[str]:
    return doors.shard.read_served_queues()


def version(doors: Doors) -> bytes:
    return doors.worker().take(0).queues_version


def calls(doors: Doors, act: Callable[[], Any]) -> int:
    """Return the number of commands that Redis carries out meanwhile, those inside of scripts too."""

    def counted() -> int:
        return sum(row["calls"] for row in doors.client.info("commandstats").values())

    doors.client.info("commandstats")
    before = counted()
    act()
    return counted() - before - 1


def test_an_empty_queue_is_forgotten_with_its_bell_after_ten_minutes(doors: Doors, dispatcher: Dispatcher) -> None:
    doors.operations.cancel(doors.add(queue="mail"))
    before = version(doors)
    doors.clock.advance(LONG - 1)
    step(dispatcher)
    assert (served(doors), version(doors)) == (["mail"], before)
    doors.clock.advance(1)
    step(dispatcher)
    assert served(doors) == [] == doors.shard.read_queues()
    assert version(doors) != before
    assert not doors.client.exists(doors.keys.notify("mail"))


@pytest.mark.parametrize("place", ["ready", "scheduled", "claimed"])
def test_a_queue_with_a_job_is_remembered(doors: Doors, dispatcher: Dispatcher, place: str) -> None:
    doors.add(queue="mail", delay=DAY if place == "scheduled" else None)
    worker = doors.worker()
    claims = worker.take(1, "mail").claims if place == "claimed" else []
    for _ in range(20):
        doors.clock.advance(MINUTE)
        if claims:
            worker.door.heartbeat([claim.lease for claim in claims], {claim.queue for claim in claims})
        step(dispatcher)
    assert doors.shard.read_queues() == ["mail"]
    assert served(doors) == ([] if place == "scheduled" else ["mail"])


RETURNS: dict[str, Callable[[Doors, Any], object]] = {
    "enqueue": lambda doors, _: doors.add(queue="mail"),
    "enqueue later": lambda doors, _: doors.add(queue="mail", delay=HOUR),
    "retry": lambda doors, claim: doors.worker().take(0, settle=[settlement(claim, Action.RETRY, delay=HOUR)]),
    "release": lambda doors, claim: doors.worker().take(0, settle=[settlement(claim, Action.RELEASE)]),
    "reclaim": lambda doors, _: doors.lapse(),
    "requeue": lambda doors, claim: requeue(doors, claim),
    "move": lambda doors, _: doors.operations.move(doors.add(queue="other"), "mail"),
    "move later": lambda doors, _: doors.operations.move(doors.add(queue="other", delay=HOUR), "mail"),
}


def requeue(doors: Doors, claim: Any) -> None:
    doors.worker().take(0, settle=[settlement(claim, Action.DEAD_LETTER)])
    letter = doors.inspection.dead_letter(claim.raw_id)
    assert letter and doors.operations.requeue(claim.raw_id, died_us=letter.died_us)


@pytest.mark.parametrize("how", RETURNS)
def test_whatever_puts_a_job_there_makes_its_queue_known(doors: Doors, how: str) -> None:
    doors.add(queue="mail")
    (claim,) = doors.worker().take(1, "mail").claims
    for noun in ("queues", "next_due"):
        doors.client.delete(doors.keys(noun))
    RETURNS[how](doors, claim)
    assert "mail" in doors.shard.read_queues()
    doors.clock.advance(2 * HOUR)
    step(Dispatcher(doors.shard, doors.promotion))
    assert "mail" in served(doors)


@pytest.mark.parametrize("change", ["cancel", "move", "reschedule", "promote"])
def test_a_queue_whose_last_scheduled_job_leaves_is_not_known_as_due(doors: Doors, change: str) -> None:
    raw_id = doors.add(queue="mail", delay=HOUR)
    if change == "cancel":
        doors.operations.cancel(raw_id)
    elif change == "move":
        doors.operations.move(raw_id, "other")
    elif change == "reschedule":
        doors.operations.reschedule(raw_id, delay_us=0)
    else:
        doors.clock.advance(HOUR)
        doors.promote()
    assert "mail" not in [name.decode() for name in doors.client.zrange(doors.keys("next_due"), 0, -1)]


def test_the_first_due_time_of_a_queue_is_known_whatever_changes_it(doors: Doors) -> None:
    def first() -> int:
        return int(doors.client.zscore(doors.keys("next_due"), "mail") or 0)

    doors.add(queue="mail", delay=HOUR)
    doors.add(queue="mail", delay=2 * HOUR)
    assert first() == doors.clock.now_us + HOUR
    soon = doors.add(queue="mail", delay=MINUTE)
    assert first() == doors.clock.now_us + MINUTE
    # Damaged by hand: the next job makes up for it.
    doors.client.delete(doors.keys("next_due"))
    doors.add(queue="mail", delay=3 * HOUR)
    assert first() == doors.clock.now_us + MINUTE
    doors.operations.reschedule(soon, delay_us=5 * HOUR)
    assert first() == doors.clock.now_us + HOUR


def test_a_paused_queue_stays_on_view_while_it_is_paused(doors: Doors, dispatcher: Dispatcher) -> None:
    survey = doors.store.dashboard(0)
    doors.operations.cancel(doors.add(queue="a:b ü"))
    doors.operations.pause("a:b ü", by="ann")
    doors.clock.advance(LONG)
    step(dispatcher)
    assert list(survey.snapshot().queues) == ["a:b ü"]
    doors.operations.resume("a:b ü")
    assert list(survey.snapshot().queues) == []


def test_names_written_by_hand_are_dropped_and_do_not_keep_the_dispatcher_awake(
    doors: Doors, dispatcher: Dispatcher
) -> None:
    odd = [b"\xff", b"a b", b"a%41", b"%FF", b"a:b", b"%"]
    for noun in ("queues", "next_due"):
        doors.client.zadd(doors.keys(noun), dict.fromkeys([*odd, b"gone"], 1))
    step(dispatcher, 3)
    assert dispatcher.promote().sleep_us == doors.config.dispatcher.sweep_us
    assert doors.shard.read_queues() == []


def test_many_names_used_once_cost_a_promotion_and_an_exchange_nothing(doors: Doors, dispatcher: Dispatcher) -> None:
    doors.add(queue="mail")
    step(dispatcher)
    worker = doors.worker()
    alone = (calls(doors, dispatcher.promote), calls(doors, lambda: worker.take(1, *served(doors))))
    pipeline = doors.client.pipeline(transaction=False)
    for number in range(MANY):
        pipeline.zadd(doors.keys("queues"), {f"customer-{number}": doors.clock.now_us})
        pipeline.rpush(doors.keys.notify(f"customer-{number}"), 1)
    pipeline.execute()
    doors.clock.advance(LONG)
    doors.add(queue="mail")
    for _ in range(MANY):
        if served(doors) == ["mail"]:
            break
        dispatcher.promote()
    assert (calls(doors, dispatcher.promote), calls(doors, lambda: worker.take(1, *served(doors)))) <= (
        2 * alone[0],
        2 * alone[1],
    )
    assert not list(doors.client.scan_iter(f"{doors.keys('bell')}:customer*", 1_000))


def test_many_names_due_next_month_cost_a_promotion_and_an_exchange_nothing(
    doors: Doors, dispatcher: Dispatcher
) -> None:
    doors.add(queue="mail", delay=HOUR)
    step(dispatcher)
    alone = calls(doors, dispatcher.promote)
    for at in range(0, 5_000, 250):
        doors.enqueue(*[doors.draft(queue=f"customer-{at + number}", delay=30 * DAY) for number in range(250)])
    assert calls(doors, dispatcher.promote) <= 2 * alone
    assert served(doors) == []
    assert len(doors.shard.read_queues()) == 5_001
