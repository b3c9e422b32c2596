"""The pytest plugin: the fixtures `delayq` and `delayq_redis_url`. Imports no Django when pytest loads it."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django_delayq.testing import DelayQ


@pytest.fixture
def delayq() -> "Iterator[DelayQ]":
    """The queue in a test's hands, with a private Redis: `delayq.enqueued`, `delayq.advance(minutes=10, run=True)`."""
    # Imported here, since pytest loads this file before anybody has told Django of its settings.
    from django_delayq.testing import DelayQ

    with DelayQ() as queue:
        yield queue


@pytest.fixture(scope="session")
def delayq_redis_url() -> str:
    """The URL of the test run's private Redis, started when it is first asked for."""
    # As above.
    from django_delayq.testing.server import server_url

    return server_url()
