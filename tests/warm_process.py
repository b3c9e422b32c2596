"""Warm process: it has imported Django, Redis's client and the package's commands, and forks each command of a test.

An interpreter needs 0.6 s of CPU time for these imports, which nearly 700 commands of the tests would repeat. A process
of pytest starts one warm process, which runs this file as a program. It imports nothing of the tests, and nothing that
depends on settings: not the backend, which only some projects have.
"""

import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import django

ROOT = Path(__file__).resolve().parent.parent
#: What most commands import, whatever their settings.
IMPORTS = (
    *("asgiref.sync", "concurrent.futures.thread", "multiprocessing.popen_spawn_posix", "redis.asyncio"),
    *("django.contrib.admin", "django.core.management", "django.db.backends.sqlite3.base", "django.views.debug"),
    "django_tasks.base" if django.VERSION < (6,) else "django.tasks.base",
    "django_delayq.checks",
)
#: All modules in it are imported too.
COMMANDS = "django_delayq.management.commands"
#: Most bytes of a request: arguments and environment of a command.
_LONGEST = 1 << 20


def python_path(*folders: Path) -> str:
    """Return the PYTHONPATH of a process: the folders, then this run's own PYTHONPATH, then the repository.

    So a copy of the package with a planted bug comes before the package itself.
    """
    inherited = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    return os.pathsep.join([*map(str, folders), *inherited, str(ROOT)])


class WarmProcess:
    """The warm process, started at the first command. When pytest closes it, or dies, it kills its commands."""

    def __init__(self) -> None:
        self._server: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._server:
            self._requests.close()
            self._server.wait()

    def start(self, arguments: list[str], *, environ: dict[str, str], log: int) -> "ForkedCommand":
        """Fork a process that runs Python with these arguments, of which the first is `-m`; it prints to a file."""
        request = {"arguments": arguments, "environ": environ}
        return ForkedCommand(self, self.ask(request, log), [sys.executable, *arguments])

    def ask(self, request: dict[str, Any], *descriptors: int) -> Any:
        """Send a request with open files, and return the answer."""
        with self._lock:
            if not self._server:
                self._start()
            socket.send_fds(self._requests, [json.dumps(request).encode()], descriptors)
            if not (answer := self._requests.recv(_LONGEST)):
                raise RuntimeError("The warm process of the tests has ended.")
        return json.loads(answer)

    def _start(self) -> None:
        # Of messages, not bytes: the warm process and those that it forks write their answers to one socket.
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            self._server = subprocess.Popen(
                [sys.executable, __file__, str(theirs.fileno()), python_path()],
                # Each command has its own PYTHONPATH.
                env={**os.environ, "PYTHONPATH": "", "PYTHONUNBUFFERED": "1"},
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )


class ForkedCommand:
    """A command that the warm process has forked, with the methods of `subprocess.Popen` that tests use."""

    stdin = None

    def __init__(self, warm: WarmProcess, pid: int, args: list[str]) -> None:
        self._warm, self.pid, self.args = warm, pid, args
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, or None while it runs. Until then an ended process keeps its id, as of a Popen."""
        if self.returncode is None:
            self.returncode = self._warm.ask({"pid": self.pid})
        return self.returncode

    def wait(self) -> int:
        """Wait for the end, and return the exit code."""
        while (code := self.poll()) is None:
            time.sleep(0.005)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal if it has not ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL if it has not ended."""
        self.send_signal(signal.SIGKILL)


# In the warm process


def serve(requests: socket.socket) -> tuple[dict[str, Any], int]:
    """Answer requests until nobody can send more. Return, in each forked process only, its request and its log."""
    pids: set[int] = set()
    while True:
        message, descriptors, *_ = socket.recv_fds(requests, _LONGEST, 1)
        if not message:
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            sys.exit()
        request = json.loads(message)
        if "pid" in request:
            ended, status = os.waitpid(request["pid"], os.WNOHANG)
            pids.discard(ended)
            requests.send(json.dumps(os.waitstatus_to_exitcode(status) if ended else None).encode())
        elif pid := os.fork():
            pids.add(pid)
            os.close(descriptors[0])
        else:
            return request, descriptors[0]


def become(request: dict[str, Any], log: int, requests: socket.socket) -> None:
    """Make this forked process what a new interpreter would be, in a session of its own.

    The seed of its hashes remains that of the warm process.
    """
    os.setsid()
    os.dup2(log, 1)
    os.dup2(log, 2)
    # Only now, so that who starts a command can send a signal to its process group.
    requests.send(json.dumps(os.getpid()).encode())
    requests.close()
    os.close(log)
    os.environ.clear()
    os.environ.update(request["environ"])
    time.tzset()
    folders = search_path(os.environ.get("PYTHONPATH", ""))
    sys.path[:] = [*folders, *(each for each in sys.path if each not in folders)]
    # A copy of the package cannot replace the one that the warm process has imported.
    found = PathFinder.find_spec("django_delayq")
    if found is None or found.origin != sys.modules["django_delayq"].__file__:
        raise ImportError(f"This command needs an interpreter of its own: it would import {found}.")
    sys.argv[:] = request["arguments"][1:]
    sys.orig_argv[:] = [sys.executable, *request["arguments"]]
    sys.modules["__main__"] = ModuleType("__main__")


def search_path(python_path: str) -> list[str]:
    """Return the folders in which `python -m` looks for modules before those that are installed."""
    return [*([] if sys.flags.safe_path else [os.getcwd()]), *filter(None, python_path.split(os.pathsep))]


def warm_up(python_path: str) -> None:
    """Import what most commands import, the package as a command with this PYTHONPATH would."""
    folders = search_path(python_path)
    sys.path[:0] = folders
    for name in IMPORTS:
        importlib.import_module(name)
    for command in pkgutil.iter_modules(importlib.import_module(COMMANDS).__path__):
        importlib.import_module(f"{COMMANDS}.{command.name}")
    del sys.path[: len(folders)]


def prepare_forks() -> None:
    """Do once what each forked process would do: make the scripts, and tell the collector what it need not visit."""
    kind = importlib.import_module("django_delayq.store.client.script").Script
    for script in [each for each in gc.get_objects() if type(each) is kind]:
        assert script.sha
    # The collector writes to each object that it visits, and each forked process would copy that memory.
    gc.collect()
    gc.freeze()


def main(descriptor: int, python_path: str) -> None:
    """Import, serve, and run a command in each forked process."""
    warm_up(python_path)
    prepare_forks()
    requests = socket.socket(fileno=descriptor)
    become(*serve(requests), requests)
    # As the interpreter does for -m.
    runpy._run_module_as_main(sys.argv[0])


if __name__ == "__main__":
    if not sys.flags.safe_path:
        # The folder of this program. No command has it.
        del sys.path[0]
    main(int(sys.argv[1]), sys.argv[2])
