"""The machine: in whatever order transitions come, the whole of Redis is as the model says.

DELAYQ_MACHINE_EXAMPLES chooses how many walks of 40 steps; the default is what every run can afford.
"""

import os

from redis import Redis

from tests.machine.walk import walk


def test_every_walk_leaves_redis_as_the_model_says(client: Redis, redis_url: str) -> None:
    walk(client, redis_url, examples=int(os.environ.get("DELAYQ_MACHINE_EXAMPLES", "250")))
