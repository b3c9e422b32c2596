"""Fault runs: no job is lost, early, repeated without a fault, or left over, under any mix of faults.

Each test has a short form for every change and a long form for `make chaos`. DELAYQ_CHAOS_SEED repeats a run.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.chaos.harness.fault_run import DURABLE, Plan, Report
from tests.chaos.harness.options import sized

RunFaults = Callable[[Plan], Report]
KILLS = {"kill_worker": 4, "kill_dispatcher": 1}
#: All faults of processes, of Redis, and of the network.
MIXED = {
    **{"kill_worker": 3, "kill_dispatcher": 1, "freeze_worker": 1},
    **{"cut_clients": 1, "flush_scripts": 1, "restart_redis": 1, "keep_redis_busy": 1, "fill_memory": 1},
    **{"demote_redis": 1, "cut_network": 1, "refuse_connections": 1, "hold_network": 1, "slow_network": 1},
    **{"drop_replies": 1, "cut_reply": 2},
}


def kills(count: int, jobs: int) -> Plan:
    return Plan(name="kills", jobs=jobs, faults=KILLS, count=count, pause=0.35)


def restarts(count: int, jobs: int) -> Plan:
    return Plan(name="restarts", jobs=jobs, faults={"restart_redis": 1}, count=count, pause=0.7, redis=DURABLE)


def without_fsync(count: int, jobs: int) -> Plan:
    """Redis acknowledges before fsync. A killed server loses nothing, because the host keeps the written data.

    With `appendfsync everysec` it could: while an fsync lasts, Redis answers before it writes, for up to two seconds.
    """
    return replace(restarts(count, jobs), name="restarts, no fsync", redis={**DURABLE, "appendfsync": "no"})


def mixed(seconds: float) -> Plan:
    return Plan(
        name="mixed faults",
        jobs=int(seconds * 40),
        faults=MIXED,
        seconds=seconds,
        least=6,
        pause=0.4,
        poison=0.004,
        network=True,
        redis=DURABLE,
    )


def test_no_job_is_lost_while_processes_are_killed(run_faults: RunFaults) -> None:
    report = run_faults(kills(15, 1_100))
    assert report.kills == 15
    # Kills of idle workers would prove nothing.
    assert report.result.cut_short


def test_no_job_is_lost_while_redis_is_killed(run_faults: RunFaults) -> None:
    report = run_faults(restarts(2, 800))
    assert report.faults["restart_redis"] == 2


def test_no_job_is_lost_while_redis_without_fsync_is_killed(run_faults: RunFaults) -> None:
    report = run_faults(without_fsync(2, 800))
    assert report.faults["restart_redis"] == 2


def test_no_job_is_lost_under_all_faults(run_faults: RunFaults) -> None:
    # At least six faults, each of another kind.
    assert len(run_faults(mixed(16)).faults) >= 6


@pytest.mark.slow
def test_no_job_is_lost_in_thousand_kills(run_faults: RunFaults) -> None:
    run_faults(kills(sized("KILLS", 1_000), sized("JOBS", 100_000)))


@pytest.mark.slow
def test_no_job_is_lost_in_hundred_restarts_of_redis(run_faults: RunFaults) -> None:
    count = sized("RESTARTS", 100)
    run_faults(restarts(count, count * 300))


@pytest.mark.slow
def test_no_job_is_lost_in_half_an_hour_of_faults(run_faults: RunFaults) -> None:
    assert run_faults(mixed(60 * sized("MINUTES", 30))).faults.keys() == MIXED.keys()


@pytest.mark.slow
def test_each_job_runs_once_among_20_workers_and_5_dispatchers(run_faults: RunFaults) -> None:
    # A flushed script does not explain a repeated run.
    plan = Plan(name="crowd", jobs=5_000, faults={"flush_scripts": 1}, count=10, workers=20, dispatchers=5)
    assert run_faults(plan).result.finished > 4_500
