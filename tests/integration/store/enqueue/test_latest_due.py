"""The latest due time: a later one is not exact in a score, so a job with a later one gets this one."""

from collections.abc import Callable

import pytest

from django_delayq.clock import LATEST_US
from django_delayq.job.outcome import Action
from django_delayq.store.promotion import Reclaim
from tests.shard_apis import DAY, SECOND, START, ShardApis, one_more

#: Longer than the range of scores; the sum with a time is not exact.
AGES = 300 * 365 * DAY + 1


def enqueue_after(apis: ShardApis) -> None:
    assert apis.enqueue(apis.draft(delay=AGES)).due_us == [LATEST_US]


def enqueue_at(apis: ShardApis) -> None:
    assert apis.enqueue(apis.draft(due=START + AGES)).due_us == [LATEST_US]


def reschedule_after(apis: ShardApis) -> None:
    assert apis.operations.reschedule(apis.add(), delay_us=AGES) == LATEST_US


def reschedule_at(apis: ShardApis) -> None:
    assert apis.operations.reschedule(apis.add(), due_us=START + AGES) == LATEST_US


def retry(apis: ShardApis) -> None:
    apis.add()
    worker = apis.worker()
    [claim] = worker.take().claims
    assert not worker.settle(claim, Action.RETRY, delay=AGES).lost


def requeue(apis: ShardApis) -> None:
    letter = apis.inspection.dead_letter(apis.add_dead())
    assert letter
    assert apis.operations.requeue(letter.raw_id, died_us=letter.moment_us, delay_us=AGES) == LATEST_US


def reclaim(apis: ShardApis) -> None:
    apis.add()
    apis.worker().take()
    apis.clock.advance(apis.config.worker.lease_us)
    [item] = apis.promotion.read_expired_leases(apis.promote().expired_leases)
    attempts = one_more(item.attempts)
    assert apis.promotion.reclaim([Reclaim(lease=item.lease, attempts=attempts, queue=item.queue, delay_us=AGES)])


@pytest.mark.parametrize(
    "ask",
    [enqueue_after, enqueue_at, reschedule_after, reschedule_at, retry, requeue, reclaim],
    ids=lambda f: f.__name__,
)
def test_no_due_time_is_later_than_the_latest_exact_score(apis: ShardApis, ask: Callable[[ShardApis], None]) -> None:
    ask(apis)
    assert list(apis.scheduled().values()) == [LATEST_US]
    apis.clock.now_us = LATEST_US - 1
    assert apis.promote().moved == 0
    apis.clock.now_us = LATEST_US
    assert apis.promote().moved == 1


def test_the_time_before_is_kept_to_the_microsecond(apis: ShardApis) -> None:
    apis.add(due=LATEST_US - 1)
    apis.add(delay=LATEST_US - START - SECOND)
    assert list(apis.scheduled().values()) == [LATEST_US - SECOND, LATEST_US - 1]
