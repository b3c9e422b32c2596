"""Fixtures of the tests of TLS: certificates, and a server program that was built with TLS."""

import shutil
from pathlib import Path

import pytest

from django_delayq.testing.local_redis import LocalRedisServer, ServerNotStarted, free_port
from tests.servers.certificates import Certificates


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of an authority of this session."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def tls_program(server_program: Path, certificates: Certificates) -> Path:
    """The server under test, or the system's server if that one was built without TLS."""
    system = shutil.which("redis-server")
    for program in dict.fromkeys([server_program, *([Path(system)] if system else [])]):
        options = {**certificates.server_options, "tls-port": str(free_port())}
        try:
            with LocalRedisServer(server=program, options=options):
                return program
        except ServerNotStarted:
            continue
    # The wheels with a server are built without TLS, and a contributor may have no other. CI installs Debian's.
    pytest.skip("no server with TLS on this machine")
