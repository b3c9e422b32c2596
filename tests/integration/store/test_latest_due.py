"""The latest due time: beyond it a score would not be exact, so whatever asks for a later one gets this one."""

from collections.abc import Callable

import pytest

from django_delayq.clock import LATEST_US
from django_delayq.job.outcome import Action
from django_delayq.store.promotion import Reclaim
from tests.shard_apis import DAY, SECOND, START, Doors, one_more

#: Longer than there is room for, and such that adding it to a time is not exact.
AGES = 300 * 365 * DAY + 1


def enqueue_after(doors: Doors) -> None:
    assert doors.enqueue(doors.draft(delay=AGES)).due_us == [LATEST_US]


def enqueue_at(doors: Doors) -> None:
    assert doors.enqueue(doors.draft(due=START + AGES)).due_us == [LATEST_US]


def reschedule_after(doors: Doors) -> None:
    assert doors.operations.reschedule(doors.add(), delay_us=AGES) == LATEST_US


def reschedule_at(doors: Doors) -> None:
    assert doors.operations.reschedule(doors.add(), due_us=START + AGES) == LATEST_US


def retry(doors: Doors) -> None:
    doors.add()
    worker = doors.worker()
    [claim] = worker.take().claims
    assert not worker.settle(claim, Action.RETRY, delay=AGES).lost


def requeue(doors: Doors) -> None:
    letter = doors.inspection.dead_letter(doors.add_dead())
    assert letter
    assert doors.operations.requeue(letter.raw_id, died_us=letter.died_us, delay_us=AGES) == LATEST_US


def reclaim(doors: Doors) -> None:
    doors.add()
    doors.worker().take()
    doors.clock.advance(doors.config.worker.lease_us)
    [item] = doors.promotion.read_expired_leases(doors.promote().expired_leases)
    attempts = one_more(item.attempts)
    assert doors.promotion.reclaim([Reclaim(lease=item.lease, attempts=attempts, queue=item.queue, delay_us=AGES)])


@pytest.mark.parametrize(
    "ask",
    [enqueue_after, enqueue_at, reschedule_after, reschedule_at, retry, requeue, reclaim],
    ids=lambda f: f.__name__,
)
def test_no_due_time_is_later_than_scores_are_exact(doors: Doors, ask: Callable[[Doors], None]) -> None:
    ask(doors)
    assert list(doors.schedule().values()) == [LATEST_US]
    doors.clock.now_us = LATEST_US - 1
    assert doors.promote().moved == 0
    doors.clock.now_us = LATEST_US
    assert doors.promote().moved == 1


def test_the_time_before_is_kept_to_the_microsecond(doors: Doors) -> None:
    doors.add(due=LATEST_US - 1)
    doors.add(delay=LATEST_US - START - SECOND)
    assert list(doors.schedule().values()) == [LATEST_US - SECOND, LATEST_US - 1]
