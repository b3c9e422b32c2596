"""The pytest plugin: the fixtures `delayq` and `delayq_redis_url`. Loading it does not import Django."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from django_delayq.testing import DelayQ


@pytest.fixture
def delayq() -> "Iterator[DelayQ]":
    """The test's own queue on a private Redis: `delayq.enqueued`, `delayq.advance(minutes=10, run=True)`."""
    # Imported here, because pytest loads this file before Django's settings are configured.
    from django_delayq.testing import DelayQ

    with DelayQ() as queue:
        yield queue


@pytest.fixture(scope="session")
def delayq_redis_url() -> str:
    """The URL of the test run's private Redis, which starts at its first use."""
    # Imported here for the same reason.
    from django_delayq.testing.server import server_url

    return server_url()
