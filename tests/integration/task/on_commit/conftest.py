"""The fixture of the tests of commits: the number of batches sent."""

from collections.abc import Callable, Iterator

import pytest
from redis import Redis

from django_delayq import get_store
from tests.sample_app.tasks import noop


@pytest.fixture
def batches(client: Redis) -> Iterator[Callable[[], int]]:
    """Return how many batches of jobs the server has received since the test began."""
    # The server learns the scripts for one job and for several; a first call of each counts twice.
    task = noop.using(on_commit=False)
    task.enqueue()
    task.enqueue_many([(1,), (2,)])
    client.flushdb()
    # The first process of all stores the layout of the shards.
    get_store().check_shards()
    client.config_resetstat()

    def received() -> int:
        found = client.info("commandstats")
        return sum(found.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))

    yield received
