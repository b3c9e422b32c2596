"""The commands on a terminal: questions, progress bars, the view that updates, and exit codes of a process."""

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from select import select
from time import monotonic
from typing import Any

import pytest

from django_delayq import enqueue_many, jobs, queue
from django_delayq.management.operating import NOT_CONFIRMED, NOT_FOUND
from tests.sample_app import tasks
from tests.subprocesses import Processes, python_path


def environment(processes: Processes) -> dict[str, str]:
    """Return the environment of a command of the project."""
    project = {"DJANGO_SETTINGS_MODULE": "process_settings", "PYTHONPATH": python_path(processes.folder)}
    return {**os.environ, **project}


class Terminal:
    """One command whose standard input, output and errors are a terminal."""

    def __init__(self, processes: Processes, *command: str) -> None:
        self._terminal, slave = pty.openpty()
        environ = {**environment(processes), "COLUMNS": "160"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "django", *command], env=environ, stdin=slave, stdout=slave, stderr=slave
        )
        os.close(slave)
        self.output = ""

    def read_until(self, text: str) -> None:
        """Read what the command prints until it has printed this."""
        until = monotonic() + 30
        while text not in self.output:
            if not self._read(until):
                raise AssertionError(f"{text!r} does not appear in:\n{self.output}")

    def answer(self, text: str) -> None:
        """Type a line."""
        os.write(self._terminal, text.encode() + b"\n")

    def wait(self) -> int:
        """Read to the end; return the exit code."""
        while self._read(monotonic() + 30):
            pass
        return self.process.wait(30)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._terminal)

    def _read(self, until: float) -> bool:
        if not select([self._terminal], [], [], max(0.0, until - monotonic()))[0]:
            return False
        with suppress(OSError):
            # Linux reports the end of a terminal as an error.
            if part := os.read(self._terminal, 65_536):
                self.output += part.decode()
                return True
        return False


@pytest.fixture
def terminal(processes: Processes) -> Iterator[Callable[..., Terminal]]:
    """Start a command on a terminal of its own: `terminal("delayq_cancel", "--all")`."""
    started: list[Terminal] = []

    def start(*command: str) -> Terminal:
        started.append(Terminal(processes, *command))
        return started[-1]

    yield start
    for each in started:
        each.close()


@pytest.fixture(autouse=True)
def waiting(processes: Processes, settings: Any) -> None:
    """600 jobs wait."""
    enqueue_many([tasks.noop.after(hours=1).job(number) for number in range(600)])


@pytest.mark.parametrize("answer", ["", "n", "nonsense"])
def test_nothing_changes_unless_the_answer_is_yes(terminal: Callable[..., Terminal], answer: str) -> None:
    command = terminal("delayq_cancel", "--all")
    command.read_until("Cancel 600 jobs? [y/N] ")
    command.answer(answer)
    assert command.wait() == NOT_CONFIRMED
    assert "Nothing was changed." in command.output
    assert jobs().count() == 600


def test_a_yes_changes_all_and_a_bar_shows_the_progress(terminal: Callable[..., Terminal]) -> None:
    command = terminal("delayq_cancel", "--all")
    command.read_until("[y/N] ")
    command.answer("y")
    assert command.wait() == 0
    bars = re.findall(r"\[(#*) *\] ([\d,]+) of 600, ([\d,]+) changed", command.output)
    assert [(len(bar), seen, changed) for bar, seen, changed in bars] == [
        (0, "0", "0"),
        (12, "250", "250"),
        (25, "500", "500"),
        (30, "600", "600"),
    ]
    assert command.output.rstrip().endswith("Cancelled 600.")
    assert jobs().count() == 0


def test_the_view_of_stats_updates_until_ctrl_c(terminal: Callable[..., Terminal]) -> None:
    command = terminal("delayq_stats", "--watch", "500ms")
    command.read_until("scheduled 600  ready 0")
    queue("default").pause(by="ann")
    command.read_until("paused by ann")
    jobs().cancel()
    command.read_until("scheduled 0  ready 0")
    command.process.send_signal(signal.SIGINT)
    assert command.wait() == 0
    assert "Traceback" not in command.output
    assert command.output.startswith("\x1b[H")


def test_a_process_exits_with_the_code_of_its_error(processes: Processes) -> None:
    for command, code in (
        (("delayq_jobs", "nonsense"), NOT_FOUND),
        (("delayq_cancel", "--all"), NOT_CONFIRMED),
        (("delayq_requeue", "--spread", "soon"), 2),
        (("delayq_jobs", "--due-before", "99999999999d"), 2),
        (("delayq_stats", "--watch", "0s"), 2),
        (("delayq_cancel",), 2),
        (("delayq_jobs", "--state", "ready"), 0),
    ):
        assert processes.start(*command).wait() == code, command


def test_no_bar_is_printed_where_nobody_looks(processes: Processes) -> None:
    command = processes.start("delayq_cancel", "--all", "--yes")
    assert command.wait() == 0
    assert command.output == "Cancelled 600.\n"


def test_an_unreachable_redis_is_an_error(processes: Processes, delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {"REDIS": "redis://127.0.0.1:1/0"}
    processes.configure()
    for name in ("delayq_stats", "delayq_jobs"):
        command = processes.start(name)
        assert command.wait() == 1
        assert "CommandError: Redis did not answer" in command.output
        assert "Traceback" not in command.output


@pytest.mark.parametrize(
    "command",
    [("delayq_stats", "--watch", "500ms", "--json"), ("delayq_stats",), ("delayq_jobs", "--limit", "0")],
    ids=" ".join,
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_command_whose_output_nobody_reads_ends_quietly(
    processes: Processes, command: tuple[str, ...], unbuffered: str
) -> None:
    read_end, write_end = os.pipe()
    os.close(read_end)
    done = subprocess.run(
        [sys.executable, "-m", "django", *command],
        env={**environment(processes), "PYTHONUNBUFFERED": unbuffered},
        stdin=subprocess.DEVNULL,
        stdout=write_end,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(write_end)
    assert (done.returncode, done.stderr) == (0, "")


def test_help_lists_the_exit_codes(processes: Processes) -> None:
    for name in ("delayq_stats", "delayq_run"):
        command = processes.start(name, "--help")
        assert command.wait() == 0
        assert "3 no such job, queue or schedule" in " ".join(command.output.split())
