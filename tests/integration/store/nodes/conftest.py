"""Fixtures of the tests of TLS: certificates, and a server program that was built with TLS."""

import shutil
from pathlib import Path

import pytest

from django_delayq.testing.local_redis import LocalRedisServer, ServerNotStarted
from tests.servers.certificates import Certificates
from tests.servers.tls_ports import start_with_tls


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of an authority of this session."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="session")
def tls_program(server_program: Path, certificates: Certificates) -> Path:
    """The server under test, or the system's server if that one was built without TLS."""
    system = shutil.which("redis-server")
    for program in dict.fromkeys([server_program, *([Path(system)] if system else [])]):

        def server(port: int, program: Path = program) -> LocalRedisServer:
            return LocalRedisServer(server=program, options={**certificates.server_options, "tls-port": str(port)})

        try:
            started, _ = start_with_tls(server)
        except ServerNotStarted:
            continue
        started.stop()
        return program
    # The wheels with a server are built without TLS, and a contributor may have no other. CI installs Debian's.
    pytest.skip("no server with TLS on this machine")
