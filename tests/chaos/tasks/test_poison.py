"""Poison: jobs that end their process are dead after exactly `max_attempts`, and other jobs run beside them."""

import time
from collections import Counter
from collections.abc import Callable

import pytest

from django_delayq import RetryPolicy, enqueue_many
from tests.chaos.harness.case import AcceptedJob, Case
from tests.chaos.harness.checker import check
from tests.chaos.harness.options import sized
from tests.chaos.harness.report import left_over, read_dead, read_runs
from tests.chaos.harness.supervisor import Supervisor
from tests.sample_app import tasks
from tests.subprocesses import Processes

#: How a job ends its process -> how its last attempt ended. A job that raises SystemExit just fails.
KINDS = {"exit": "crashed", "kill": "crashed", "segfault": "crashed", "memory": "crashed", "leave": "failed"}
ATTEMPTS = 3
#: Other jobs for each poison job. Their attempts are few, so that a poison job that costs them attempts is noticed.
OTHERS = 5
LEASE = 2.0
#: Seconds for one job of each kind.
PATIENCE = 120.0


def poison_many(processes: Processes, count: int, *, patience: float, pool: str = "threads") -> str:
    """Run that many poison jobs of each kind beside other jobs; return the summary line."""
    processes.configure(LEASE=LEASE)
    supervisor = Supervisor(processes, workers=2, dispatchers=1, pool=pool)
    supervisor.expects_crashes = True
    began = time.monotonic()
    drafts = []
    for number in range(count):
        for how in KINDS:
            drafts.append((tasks.crash.job(how), how))
            other = tasks.work.using(retry=RetryPolicy(max_attempts=5, base=0.01, cap=0.02))
            drafts += [(other.job(0.001 * number % 0.02), "") for _ in range(OTHERS)]
    enqueue_many([job for job, _ in drafts])
    accepted_jobs = [
        AcceptedJob(id=job.id, due=job.due.timestamp(), max_attempts=ATTEMPTS if how else 5, poison=how in KINDS)
        for job, how in drafts
    ]

    with processes.client() as client:

        def ended() -> bool:
            supervisor.restart_ended()
            return not client.hlen(processes.keys("jobs"))

        processes.until(ended, what="all to end", patience=patience)
        supervisor.finish()
        dead, left = read_dead(client, processes.keys), left_over(client, processes.keys)
    runs = read_runs(processes.events())
    result = check(Case(accepted_jobs=accepted_jobs, runs=runs, dead=dead, deaths=supervisor.deaths, lease=LEASE))
    result.left += [*supervisor.errors, *left]
    assert not result.violations, str(result)
    kinds = {job.id: how for job, how in drafts}
    last = Counter((kinds[letter.id], letter.endings[-1]) for letter in dead)
    assert last == dict.fromkeys(KINDS.items(), count)
    most = max(run.attempt for run in runs if not kinds[run.id])
    if pool == "processes":
        assert (most, supervisor.restarts) == (1, 0), "a child's end cost another job an attempt, or ended the worker"
    return (
        f"poison: {len(KINDS)} x {count} dead after {ATTEMPTS} attempts, {len(accepted_jobs) - len(dead)} others ran, "
        f"at most as attempt {most}; {supervisor.restarts} workers ended, {time.monotonic() - began:.0f} s"
    )


def test_crashing_jobs_die_after_max_attempts_and_other_jobs_run(
    processes: Processes, print_now: Callable[[str], None]
) -> None:
    print_now(poison_many(processes, 1, patience=PATIENCE))


def test_crashing_jobs_in_process_pool_cost_other_jobs_no_attempt(
    processes: Processes, print_now: Callable[[str], None]
) -> None:
    print_now(poison_many(processes, 1, patience=PATIENCE, pool="processes"))


@pytest.mark.slow
def test_many_crashing_jobs_do_not_fail_other_jobs(processes: Processes, print_now: Callable[[str], None]) -> None:
    count = sized("POISON", 200)
    print_now(poison_many(processes, count, patience=PATIENCE * count))
