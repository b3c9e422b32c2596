"""Fixture of the tests of roles: one server with a user per role."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from django_delayq.testing.local_redis import LocalRedisServer
from tests.integration.acl.steps import RoleServer


@pytest.fixture(scope="module")
def role_server(server_program: Path) -> Iterator[RoleServer]:
    with LocalRedisServer(server=server_program, port=0) as server:
        made = RoleServer(server)
        yield made
        made.close()
