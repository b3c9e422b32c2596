"""Walk: many random walks through the machine. What the test calls, and the processes with a planted bug."""

import logging
from functools import partial

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from redis import Redis

from django_delayq.config import Config, DispatcherConfig
from django_delayq.redis_config import RedisConfig
from django_delayq.store import intake
from tests.machine.actors import World
from tests.machine.roads import DAY_US, Roads

#: Steps of one walk.
STEPS = 40


def walk(client: Redis, url: str, *, examples: int, derandomize: bool = False) -> None:
    """Walk `examples` times; raises the first failure, made small unless derandomized."""
    config = Config(redis=RedisConfig.read(url), dispatcher=DispatcherConfig(dead_max_count=4, dead_max_age_us=DAY_US))
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
    # Every lapsed lease and dead letter is a line, and there are thousands.
    logger = logging.getLogger("django_delayq")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with pytest.MonkeyPatch.context() as patch:
            # A delay counts from the call: the caller's clock stands still too.
            patch.setattr(intake, "monotonic", lambda: 0.0)
            run_state_machine_as_test(partial(Roads, World(client, config)), settings=profile)
    finally:
        logger.setLevel(level)
