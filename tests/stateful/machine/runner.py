"""Runner: many random walks through the machine, for the test and for processes with a planted bug."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from redis import Redis

from django_delayq.conf.config import Config, DispatcherConfig, TaskConfig
from django_delayq.conf.redis_settings import RedisConfig
from tests.stateful.machine.actors import OPTIONS, World
from tests.stateful.machine.scenarios import DAY_US, Scenarios

#: Steps of one walk.
STEPS = 40


@contextmanager
def scenarios_to(
    client: Redis, url: str, *, encrypt: bool = False, machine: type[Scenarios] = Scenarios
) -> Iterator[Callable[[], Scenarios]]:
    """Yield a factory of the machine on that server, empty each time."""
    dispatcher = DispatcherConfig(dead_max_count=4, dead_max_age_us=DAY_US)
    config = Config(
        redis=RedisConfig.read(url),
        tasks=TaskConfig(queues=OPTIONS),
        dispatcher=dispatcher,
        encrypt=encrypt,
        encryption_keys=("s" * 32,),
    )
    # Every expired lease and dead letter logs a line, and there are thousands.
    logger = logging.getLogger("django_delayq")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        world = World(client, config)
        with pytest.MonkeyPatch.context() as patch:
            # A delay counts from the call; here it counts from the send.
            patch.setattr(world.clock, "steady", lambda: 0.0)
            yield partial(machine, world)
    finally:
        logger.setLevel(level)


def walk(
    client: Redis,
    url: str,
    *,
    examples: int,
    derandomize: bool = False,
    encrypt: bool = False,
    machine: type[Scenarios] = Scenarios,
) -> None:
    """Walk `examples` times. Raises the first failure, reduced unless derandomized."""
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
    with scenarios_to(client, url, encrypt=encrypt, machine=machine) as roads:
        run_state_machine_as_test(roads, settings=profile)
