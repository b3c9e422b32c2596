"""The state machine: for any order of transitions, all keys in Redis are as the model expects.

DELAYQ_STATEFUL_EXAMPLES chooses how many walks of 40 steps; the default is what every run can afford.
"""

import os

from redis import Redis

from django_delayq.job.outcome import OutcomeKind
from tests.stateful.machine.limited import Limited
from tests.stateful.machine.runner import scenarios_to, walk
from tests.stateful.machine.scenarios import DAY_US
from tests.stateful.machine.scheduled import Scheduled
from tests.stateful.machine.strategies import Request
from tests.stateful.model.values import Place

EXAMPLES = int(os.environ.get("DELAYQ_STATEFUL_EXAMPLES", "100"))


def test_redis_equals_model_after_every_walk(client: Redis, redis_url: str) -> None:
    walk(client, redis_url, examples=EXAMPLES)


def test_redis_equals_model_after_every_walk_with_limits(client: Redis, redis_url: str) -> None:
    walk(client, redis_url, examples=max(1, EXAMPLES // 2), machine=Limited)


def test_redis_equals_model_after_every_walk_with_schedules(client: Redis, redis_url: str) -> None:
    walk(client, redis_url, examples=max(1, EXAMPLES // 2), machine=Scheduled)


def test_an_encrypted_store_equals_the_model_too(client: Redis, redis_url: str) -> None:
    walk(client, redis_url, examples=max(1, EXAMPLES // 8), encrypt=True)
    walk(client, redis_url, examples=max(1, EXAMPLES // 16), encrypt=True, machine=Scheduled)


def test_what_one_promotion_does_not_remove_the_next_one_does(client: Redis, redis_url: str) -> None:
    """More silent processes than one promotion removes: random walks seldom have so many."""
    with scenarios_to(client, redis_url) as roads:
        road = roads()
        road.enqueue([Request() for _ in range(54)])
        # A dispatcher that meets a new queue promotes twice.
        road.look()
        worker = road.fresh_worker()
        while road.world.model.at(Place.READY):
            worker.exchange(54, endings=[OutcomeKind.REJECTED] * len(worker.held))
        worker.exchange(0, endings=[OutcomeKind.REJECTED] * len(worker.held))
        for _ in range(60):
            worker.restart()
            worker.exchange(1)
        road.world.advance_to(road.world.model.now + DAY_US)
        for left in (11, 0):
            road.look()
            road.check()
            assert len(road.world.model.workers) == left
        assert not road.world.model.at(Place.DEAD)
        road.teardown()
