"""Sentinel: a master with two replicas and three Sentinels, all with passwords. Processes follow the master."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.harness.steady_load import SteadyLoad
from tests.servers.sentinel_group import SentinelGroup
from tests.subprocesses import Command, Processes


@pytest.fixture
def group(server_program: Path) -> Iterator[SentinelGroup]:
    with SentinelGroup(server=server_program, password="of-data", sentinel_password="of-sentinels") as started:
        yield started


@pytest.fixture
def commands(processes: Processes, group: SentinelGroup) -> list[Command]:
    """A dispatcher and two workers."""
    processes.configure(REDIS=group.setting, LEASE=3)
    return [processes.dispatcher(), processes.worker(), processes.worker()]


def finish(load: SteadyLoad, processes: Processes, commands: list[Command]) -> None:
    """Wait until all jobs have ended, check them, and end the processes."""
    processes.until_empty()
    load.check(processes, commands)
    assert [command.end() for command in commands] == [0] * len(commands)
    assert not any(command.failures for command in commands)


def test_jobs_go_on_after_failover(processes: Processes, group: SentinelGroup, commands: list[Command]) -> None:
    with SteadyLoad() as load:
        load.until_accepted(100)
        group.fail_over()
        load.until_accepted(200)
    print([str(error) for error in load.errors])
    finish(load, processes, commands)


def test_a_killed_master(processes: Processes, group: SentinelGroup, commands: list[Command]) -> None:
    with SteadyLoad() as load:
        load.until_accepted(100)
        group.master().kill()
        load.until_accepted(200)
    print([str(error) for error in load.errors])
    print(commands[0].output)
    print(commands[1].output)
    finish(load, processes, commands)
