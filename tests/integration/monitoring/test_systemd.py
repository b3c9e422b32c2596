"""Systemd: a socket of the test hears that a process is ready, that it is alive, and that it stops."""

import os
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from django_delayq.monitoring.systemd import Systemd
from tests.subprocesses import Processes

#: Reads what is said until a condition of it holds, and returns it.
Hear = Callable[[Callable[[list[bytes]], object]], list[bytes]]


@pytest.fixture
def heard(tmp_path: Path) -> Iterator[socket.socket]:
    """The socket that systemd would have."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(tmp_path / "notify"))
        sock.settimeout(30)
        yield sock


@pytest.fixture
def hear(heard: socket.socket, processes: Processes) -> Hear:
    """Return what reads it all the time: what nobody reads is not sent any more."""

    def until(condition: Callable[[list[bytes]], object]) -> list[bytes]:
        said: list[bytes] = []
        heard.setblocking(False)

        def is_satisfied() -> object:
            # First: what is said before the end of a process is read after it.
            satisfied = condition(said)
            with suppress(BlockingIOError):
                while True:
                    said.append(heard.recv(100))
            return satisfied

        processes.until(is_satisfied, what="what systemd is to hear")
        return said

    return until


def serves(said: list[bytes]) -> bool:
    """Whether a process was ready, and alive twice. The watchdog may come first: it counts from the start."""
    return b"READY=1" in said and said.count(b"WATCHDOG=1") >= 2


@pytest.mark.parametrize("command", ["run_dispatcher", "run_worker"])
def test_a_process_tells_systemd_what_it_does(command: str, heard: socket.socket, processes: Processes) -> None:
    process = processes.start(command, NOTIFY_SOCKET=heard.getsockname(), WATCHDOG_USEC="200000", WATCHDOG_PID="")
    assert heard.recv(100) == b"READY=1"
    assert process.running


def test_the_watchdog_is_told_until_the_process_stops(heard: socket.socket, processes: Processes, hear: Hear) -> None:
    process = processes.start("run_dispatcher", NOTIFY_SOCKET=heard.getsockname(), WATCHDOG_USEC="200000")
    said = hear(serves)
    assert said.count(b"READY=1") == 1
    assert set(said) == {b"READY=1", b"WATCHDOG=1"}
    process.send(15)
    said = hear(lambda _: not process.running)
    assert process.wait() == 0
    # It is alive while it stops, too.
    assert said.count(b"STOPPING=1") == 1
    assert set(said) <= {b"WATCHDOG=1", b"STOPPING=1"}


def test_a_process_stops_although_nobody_reads_what_it_says(heard: socket.socket, processes: Processes) -> None:
    dispatcher = processes.start("run_dispatcher", NOTIFY_SOCKET=heard.getsockname())
    assert heard.recv(100) == b"READY=1"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                sender.sendto(b"WATCHDOG=1", heard.getsockname())
    assert dispatcher.end() == 0


def test_several_workers_are_one_process_for_systemd(heard: socket.socket, processes: Processes, hear: Hear) -> None:
    environ = {"NOTIFY_SOCKET": heard.getsockname(), "WATCHDOG_USEC": "200000"}
    parent = processes.start("run_worker", "--processes", 2, "--with-dispatcher", **environ)
    said = hear(serves)
    assert set(said) == {b"READY=1", b"WATCHDOG=1"}
    with processes.client() as client:
        said += hear(lambda _: client.hlen(processes.keys("worker_names")) == 2)
    parent.send(15)
    said += hear(lambda _: not parent.running)
    assert parent.wait() == 0
    # Their parent alone tells it.
    assert (said.count(b"READY=1"), said.count(b"STOPPING=1")) == (1, 1)


def test_an_abstract_address_is_one(tmp_path: Path) -> None:
    name = f"delayq-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(f"\0{name}")
        sock.settimeout(30)
        Systemd({"NOTIFY_SOCKET": f"@{name}"}).ready()
        assert sock.recv(100) == b"READY=1"


@pytest.mark.parametrize(
    ("environ", "seconds"),
    [
        ({}, 0.0),
        ({"WATCHDOG_USEC": "3000000"}, 0.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000"}, 3.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 3.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, 0.0),
        ({"NOTIFY_SOCKET": "/x", "WATCHDOG_USEC": "x"}, 0.0),
    ],
)
def test_the_watchdog_of_another_process_or_of_nobody_is_not_told(environ: dict[str, str], seconds: float) -> None:
    assert Systemd(environ).watchdog == seconds


def test_nobody_listens_any_more(tmp_path: Path) -> None:
    Systemd({"NOTIFY_SOCKET": str(tmp_path / "gone")}).stopping()
