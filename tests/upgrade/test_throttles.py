"""Throttled jobs beside processes of the older release: they run them, hold no key for them, and keep their windows."""

from pathlib import Path

from redis import Redis

from django_delayq import RetryPolicy, Throttle
from tests.sample_app import tasks
from tests.subprocesses import Processes
from tests.upgrade.test_claim_records import older


def test_older_processes_run_a_throttled_job_and_its_window_stays(
    processes: Processes, client: Redis, older_package: Path
) -> None:
    retry = RetryPolicy(max_attempts=2, base=0.01, cap=0.02)
    task = tasks.fail.using(key="k", unique=Throttle(600), retry=retry)
    older(processes, older_package, "run_dispatcher")
    processes.until_known(older(processes, older_package, "run_worker"))
    first = task.enqueue(1)
    processes.until_gone([first])
    assert [run["attempt"] for run in processes.runs()] == [1, 2]
    again = task.enqueue(1)
    assert (again.id, again.created) == (first.id, False)
    assert not client.exists(processes.keys("job_extras"), processes.keys("unique_keys"))


def test_a_newer_dispatcher_removes_a_window_that_an_older_one_left(
    processes: Processes, client: Redis, older_package: Path
) -> None:
    dispatcher = older(processes, older_package, "run_dispatcher")
    # By then its signal handlers are installed.
    processes.until(lambda: client.exists(processes.keys("dispatchers")), what="its first promotion")
    processes.until_known(older(processes, older_package, "run_worker"))
    processes.until_gone([tasks.noop.using(key="k", unique=Throttle(0.01)).enqueue()])
    assert dispatcher.end() == 0
    assert client.exists(processes.keys("throttles"), processes.keys("throttle_ends")) == 2
    processes.dispatcher()
    processes.until(
        lambda: not client.exists(processes.keys("throttles"), processes.keys("throttle_ends")), what="the end of it"
    )
