"""The units are valid for systemd, stop in time, and confine the process."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.deployment.files import LEASE, STOP, UNITS, judge, unit


@pytest.fixture
def installed(tmp_path: Path) -> list[Path]:
    """The units in a folder, with a program that exists, and an instance of each template."""
    found = []
    for path in UNITS:
        copy = tmp_path / path.name.replace("@.", "@mail.")
        copy.write_text(path.read_text().replace("/srv/shop/.venv/bin/python", sys.executable))
        found.append(copy)
        if copy.name != path.name:
            shutil.copy(copy, tmp_path / path.name)
    return found


def test_systemd_has_nothing_to_say_about_the_units(installed: list[Path]) -> None:
    said = judge("systemd-analyze", "verify", "--recursive-errors=no", *installed, package="Debian's systemd")
    # It ignores a key that it does not know, and exits with 0. What it says of other units does not matter here.
    assert [line for line in said.splitlines() if "delayq-" in line] == []


def test_the_units_confine_the_process(installed: list[Path]) -> None:
    for path in installed:
        judge("systemd-analyze", "security", "--offline=true", "--threshold=20", path, package="Debian's systemd")


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_waits_until_the_process_serves_and_restarts_it(path: Path) -> None:
    found = unit(path)
    assert found["Type"] == ["notify"] and found["Restart"] == ["always"] and found["StartLimitIntervalSec"] == ["0"]
    # The processes of --processes do not report to systemd.
    assert "--processes" not in found["ExecStart"][0]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_aborts_what_hangs_and_its_stacks_are_printed(path: Path) -> None:
    found = unit(path)
    # It reports after half of the time. So one that cannot for a lease is aborted, and not earlier.
    assert found["WatchdogSec"] == [str(2 * LEASE)]
    assert "PYTHONFAULTHANDLER=1" in found["Environment"]
    # What jobs have started gets no signal until the time is over.
    assert (found["KillMode"], found["KillSignal"]) == (["mixed"], ["SIGTERM"])


def test_a_worker_has_the_time_that_its_jobs_have_and_ten_seconds() -> None:
    stop = {path.name: int(unit(path)["TimeoutStopSec"][0]) for path in UNITS}
    assert stop == {"delayq-worker.service": STOP, "delayq-worker@.service": STOP, "delayq-dispatcher.service": 10}


def test_the_units_of_workers_differ_in_the_queue_alone() -> None:
    all_queues, one_queue = (unit(path) for path in UNITS if "worker" in path.name)
    differ = {key for key in all_queues.keys() | one_queue.keys() if all_queues.get(key) != one_queue.get(key)}
    assert differ == {"Description", "ExecStart"}
