"""Tests of the state machine: in any order of transitions, all of Redis is as the model expects.

DELAYQ_STATEFUL_EXAMPLES is the number of walks of 40 steps. The default is small enough for every run.
"""

import os

from redis import Redis

from django_delayq.job.outcome import OutcomeKind
from tests.stateful.runner import scenarios_on, walk
from tests.stateful.scenarios import DAY_US
from tests.stateful.strategies import Request
from tests.stateful.values import Place


def test_redis_equals_model_after_every_walk(client: Redis, redis_url: str) -> None:
    walk(client, redis_url, examples=int(os.environ.get("DELAYQ_STATEFUL_EXAMPLES", "250")))


def test_next_promotion_removes_remaining_records_of_dead_workers(client: Redis, redis_url: str) -> None:
    """There are more dead processes than one promotion removes, which random walks seldom produce."""
    with scenarios_on(client, redis_url) as make_machine:
        machine = make_machine()
        machine.enqueue([Request() for _ in range(54)])
        # A dispatcher promotes again when it finds a new queue.
        machine.step_dispatcher()
        worker = machine.new_worker()
        while machine.world.model.at(Place.READY):
            worker.exchange(54, endings=[OutcomeKind.REJECTED] * len(worker.held))
        worker.exchange(0, endings=[OutcomeKind.REJECTED] * len(worker.held))
        for _ in range(60):
            worker.restart()
            worker.exchange(1)
        machine.world.set_time(machine.world.model.now + DAY_US)
        for left in (11, 0):
            machine.step_dispatcher()
            machine.check()
            assert len(machine.world.model.workers) == left
        assert not machine.world.model.at(Place.DEAD)
        machine.teardown()
