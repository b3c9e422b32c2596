"""The fixture of the tests of roles: one server with a user for each role."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from django_delayq.testing.local_redis import LocalRedisServer
from tests.integration.acl.steps import Ground


@pytest.fixture(scope="module")
def ground(server_program: Path) -> Iterator[Ground]:
    with LocalRedisServer(server=server_program, port=0) as server:
        made = Ground(server)
        yield made
        made.close()
