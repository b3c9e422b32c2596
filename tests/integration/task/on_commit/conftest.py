"""The fixture of the tests of commits: the number of batches sent."""

from collections.abc import Callable, Iterator

import pytest
from redis import Redis

from tests.sample_app.tasks import noop


@pytest.fixture
def batches(client: Redis) -> Iterator[Callable[[], int]]:
    """Return how many batches of jobs the server has received since the test began."""
    noop.using(on_commit=False).enqueue()
    client.flushdb()
    client.config_resetstat()

    def received() -> int:
        found = client.info("commandstats")
        return sum(found.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))

    yield received
