"""Servers: a PostgreSQL and a MariaDB for the tests, each on a unix socket in a folder of its own.

Debian's packages `postgresql` and `mariadb-server` have the programs. Neither runs as root: a test run of root's starts
them as `nobody`.
"""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.subprocesses import until

#: The user of both servers' databases.
_USER = "tests"


class ServerMissing(Exception):
    """A server or its Python driver is not installed."""


@contextmanager
def postgresql() -> Iterator[dict[str, Any]]:
    """Run a PostgreSQL; gives its entry for settings.DATABASES."""
    driver = _driver("psycopg")
    initdb = _program("initdb", *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True))
    with _private_folder() as folder:
        data = folder / "data"
        _run(initdb, "-D", data, "-U", _USER, "-A", "trust", "--no-sync", "--no-locale", "-E", "UTF8")
        options = ["-c", "listen_addresses=", "-c", "fsync=off", "-c", "shared_buffers=8MB", "-c", "max_connections=40"]
        command = [initdb.with_name("postgres"), "-D", data, "-k", folder, *options]
        with _running(command, folder, partial(driver.connect, host=str(folder), user=_USER, dbname="postgres")):
            yield _entry("postgresql", folder, NAME="postgres")


@contextmanager
def mariadb() -> Iterator[dict[str, Any]]:
    """Run a MariaDB; gives its entry for settings.DATABASES."""
    driver = _driver("pymysql")
    server, install = _program("mariadbd", Path("/usr/sbin")), _program("mariadb-install-db")
    with _private_folder() as folder:
        data, socket = folder / "data", folder / "server.sock"
        small = ["--innodb-buffer-pool-size=16M", "--innodb-log-file-size=8M", "--innodb-flush-log-at-trx-commit=0"]
        _run(install, "--no-defaults", f"--datadir={data}", "--skip-test-db", *small)
        # Without users: every client of the socket may do everything.
        options = [f"--datadir={data}", f"--socket={socket}", "--skip-networking", "--skip-grant-tables", *small]
        init = folder / "init.sql"
        init.write_text("CREATE DATABASE tests;\n")
        command = [server, "--no-defaults", *options, f"--init-file={init}"]
        connect = partial(driver.connect, unix_socket=str(socket), user=_USER, database="tests")
        with _running(command, folder, connect):
            yield _entry("mysql", socket, NAME="tests")


def _entry(engine: str, host: Path, **more: Any) -> dict[str, Any]:
    return {"ENGINE": f"django.db.backends.{engine}", "HOST": str(host), "USER": _USER, **more}


def _driver(name: str) -> Any:
    try:
        module: Any = import_module(name)
    except ImportError as error:
        raise ServerMissing(f"there is no {name}: pip install -e '.[dev]'") from error
    if name == "pymysql":
        # Django checks the version of mysqlclient, which PyMySQL replaces.
        module.version_info = (2, 2, 1, "final", 0)
        module.install_as_MySQLdb()
    return module


def _program(name: str, *folders: Path) -> Path:
    found = shutil.which(name, path=os.pathsep.join([*map(str, folders), os.environ.get("PATH", "")]))
    if found is None:
        raise ServerMissing(f"there is no {name}: apt install postgresql mariadb-server")
    return Path(found)


@contextmanager
def _private_folder() -> Iterator[Path]:
    # Not a folder of pytest's: the path of a socket has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="delayq-tests-"))
    try:
        if os.getuid() == 0:
            shutil.chown(folder, "nobody")
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _as_nobody() -> list[str]:
    # The server ends with the test run, even if that is killed.
    who = ["--reuid=nobody", "--regid=nogroup", "--clear-groups"] if os.getuid() == 0 else []
    return ["setpriv", *who, "--pdeathsig=KILL"]


def _run(*command: Any) -> None:
    subprocess.run([*_as_nobody(), *map(str, command)], check=True, capture_output=True, cwd="/", timeout=120)


@contextmanager
def _running(command: list[Any], folder: Path, connect: Callable[[], Any]) -> Iterator[None]:
    log = folder / "server.log"

    def answers() -> bool:
        try:
            connect().close()
        except Exception:
            return server.poll() is not None
        return True

    with open(log, "wb") as output:
        server = subprocess.Popen(
            [*_as_nobody(), *map(str, command)], stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd="/"
        )
    try:
        log_text = partial(log.read_text, errors="replace")
        until(answers, what=f"{command[0]} to answer", details=log_text)
        assert server.poll() is None, log_text()
        yield
    finally:
        # At SIGTERM PostgreSQL waits for its clients. It ends fast at SIGINT, which MariaDB ignores.
        server.send_signal(signal.SIGINT if command[0].name == "postgres" else signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
