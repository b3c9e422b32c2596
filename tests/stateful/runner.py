"""Runner: many random walks of the state machine, for its test and for processes with a planted bug."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from redis import Redis

from django_delayq.conf.config import Config, DispatcherConfig
from django_delayq.conf.redis_settings import RedisConfig
from tests.stateful.actors import World
from tests.stateful.scenarios import DAY_US, Scenarios

#: Steps of one walk.
STEPS = 40


@contextmanager
def scenarios_on(client: Redis, url: str) -> Iterator[Callable[[], Scenarios]]:
    """Yield a function that creates the machine on that server, which is emptied each time."""
    config = Config(redis=RedisConfig.read(url), dispatcher=DispatcherConfig(dead_max_count=4, dead_max_age_us=DAY_US))
    # Each expired lease and each dead letter logs a line, and there are thousands.
    logger = logging.getLogger("django_delayq")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        world = World(client, config)
        with pytest.MonkeyPatch.context() as patch:
            # The clock does not advance between the call and the send, so that the delay counts from both.
            patch.setattr(world.clock, "steady", lambda: 0.0)
            yield partial(Scenarios, world)
    finally:
        logger.setLevel(level)


def walk(client: Redis, url: str, *, examples: int, derandomize: bool = False) -> None:
    """Run that many walks; raises the first failure, shrunk unless `derandomize` is set."""
    profile = settings(
        max_examples=examples,
        stateful_step_count=STEPS,
        deadline=None,
        derandomize=derandomize,
        database=None,
        print_blob=True,
        phases=[Phase.generate] if derandomize else [Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with scenarios_on(client, url) as make_machine:
        run_state_machine_as_test(make_machine, settings=profile)
