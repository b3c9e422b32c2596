"""Sentinel: a master with replicas and three Sentinels, all with passwords. Processes follow the master.

With WAIT_REPLICAS for all replicas no accepted job is lost, whether the master is killed, or replaced while it still
accepts jobs.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from django_delayq.exceptions import NotReplicated
from tests.chaos.harness.options import sized
from tests.chaos.harness.steady_load import SteadyLoad
from tests.sample_app import tasks
from tests.servers.sentinel_group import SentinelGroup
from tests.subprocesses import Processes, until


@pytest.fixture
def group(server_program: Path, request: pytest.FixtureRequest) -> Iterator[SentinelGroup]:
    """A master with one replica, or with as many as the test says."""
    options = {"password": "of-data", "sentinel_password": "of-sentinels", "replicas": getattr(request, "param", 1)}
    with SentinelGroup(server=server_program, **options) as started:
        yield started


#: The delay of every second job, in seconds: all processes have left the old master by then, so it runs no job that the
#: new one does not know.
DELAY = 4.0
#: Seconds before its end whose steps a master may not have replicated, and seconds after the promotion of another in
#: which processes may still reach it: they ask the Sentinels once a second.
LAG = 3.0


def replace_master(group: SentinelGroup, *, kill: bool) -> tuple[float, float]:
    """Make the Sentinels promote a replica. Return when that began and ended, in seconds since the epoch."""
    before, began = group.master(), time.time()
    if kill:
        before.kill()
        until(lambda: group.master() is not before, what="a promoted replica")
    else:
        group.fail_over()
    promoted = time.time()
    if kill:
        group.rejoin(before)
    return began, promoted


def now_or_later(number: int) -> Any:
    """Make a job that is due at once or, for every second number, after DELAY."""
    return tasks.record.using(delay=DELAY if number % 2 else None).job(number)


def fail_over_under_load(
    processes: Processes, group: SentinelGroup, print_now: Callable[[str], None], *, count: int
) -> None:
    """Replace the master so many times, by turns killed and asked for, and check the jobs."""
    processes.configure(REDIS=group.setting, LEASE=3, WAIT_REPLICAS=group.replicas, WAIT_TIMEOUT=0.5)
    commands = [processes.dispatcher(), processes.worker(), processes.worker()]
    promotions = []
    with SteadyLoad(now_or_later) as load:
        for number in range(count):
            load.until_accepted(50)
            promotions.append(replace_master(group, kill=number % 2 == 0))
            load.until_accepted(50)
            if number + 1 < count:
                group.wait_until_replicated()
    processes.until_empty()
    load.check(processes, commands, forgotten=[(began - LAG, promoted + LAG) for began, promoted in promotions])
    starts = [run["at"] for run in processes.runs()]
    pauses = [min(start for start in starts if start > promoted) - promoted for _, promoted in promotions]
    print_now(
        f"{count} failovers: {len(load.accepted)} accepted, {len(load.doubtful)} not confirmed, "
        f"{len(load.refused)} refused; jobs began again after {max(pauses):.2f} s at most"
    )
    assert [command.end() for command in commands] == [0, 0, 0]
    assert not any(command.failures for command in commands)


def test_no_accepted_job_is_lost_when_the_master_is_replaced(
    processes: Processes, group: SentinelGroup, print_now: Callable[[str], None]
) -> None:
    fail_over_under_load(processes, group, print_now, count=2)


@pytest.mark.parametrize("group", [2], indirect=True, ids=["two replicas"])
def test_a_replaced_master_accepts_nothing_while_its_clients_reach_no_sentinel(
    processes: Processes, group: SentinelGroup
) -> None:
    known = group.sentinels[0]
    processes.configure(
        REDIS={**group.setting, "sentinels": [("127.0.0.1", known.port)]},
        LEASE=3,
        WAIT_REPLICAS=group.replicas,
        WAIT_TIMEOUT=0.5,
    )
    commands = [processes.dispatcher(), processes.worker()]
    with SteadyLoad(now_or_later) as load:
        load.until_accepted(50)
        assert known.pid is not None
        os.kill(known.pid, signal.SIGSTOP)
        began = time.time()
        # The old master does not know that it was replaced.
        group.fail_over(by=1)
        error = load.until_error()
        assert isinstance(error, NotReplicated) and error.maybe_accepted
        os.kill(known.pid, signal.SIGCONT)
        load.until_accepted(50)
        reached = time.time()
    processes.until_empty()
    load.check(processes, commands, forgotten=[(began - LAG, reached)])


@pytest.mark.slow
@pytest.mark.parametrize("group", [1, 2], indirect=True, ids=["one replica", "two replicas"])
def test_no_accepted_job_is_lost_in_twenty_failovers(
    processes: Processes, group: SentinelGroup, print_now: Callable[[str], None]
) -> None:
    fail_over_under_load(processes, group, print_now, count=sized("FAILOVERS", 20))
