"""Deferral and order: R33 to R35, and R28, R31 and R32 in worker processes."""

import datetime
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.utils import timezone

from django_delayq import get_job, get_store
from django_delayq.store.promotion import Promotion
from django_delayq.testing.fake_clock import FakeClock
from tests.django_tasks.compat import NAME, TaskResultStatus
from tests.django_tasks.conftest import BACKEND
from tests.django_tasks.worker import OneWorker
from tests.inspection import inspection
from tests.sample_app import django_tasks
from tests.shard_apis import HOUR
from tests.subprocesses import Processes


@pytest.fixture
def site(processes: Processes) -> Processes:
    """Processes that know the tasks of Django's."""
    processes.configure(TASK_MODULES=["tests.sample_app.django_tasks"])
    return processes


def finished(site: Processes, result: Any) -> Any:
    """Wait until a result is finished and return it."""

    def look() -> bool:
        result.refresh()
        return bool(result.is_finished)

    site.until(look, what=f"the end of {result.task.name}")
    return result


def test_r33_a_deferred_task_never_starts_early_by_the_clock_of_redis(site: Processes) -> None:
    site.dispatcher()
    site.worker()
    soon = [timezone.now() + datetime.timedelta(milliseconds=ms) for ms in (100, 101, 250, 400, 700)]
    results = [(at, django_tasks.noop.using(run_after=at).enqueue()) for at in soon]
    for at, result in results:
        assert finished(site, result).started_at >= at


def test_r34_a_deferred_task_survives_restarts_and_does_not_expire(site: Processes, client: Any) -> None:
    result = django_tasks.add.using(run_after=timezone.now() + datetime.timedelta(hours=1)).enqueue(1)
    assert {client.ttl(key) for key in client.keys("*")} == {-1}
    # Processes that might keep it in memory are killed too.
    for started in (site.dispatcher(), site.worker()):
        started.kill()
    job = get_job(result.id)
    assert job is not None
    assert job.reschedule(delay=0.3)
    site.worker("--with-dispatcher")
    assert finished(site, result).return_value == 1


def test_r34_a_nearer_deferral_wakes_the_worker_and_ready_tasks_do_not_wait(site: Processes) -> None:
    django_tasks.noop.using(run_after=timezone.now() + datetime.timedelta(hours=1)).enqueue()
    site.dispatcher()
    site.worker()
    nearer = django_tasks.add.using(run_after=timezone.now() + datetime.timedelta(seconds=0.2)).enqueue(1)
    assert finished(site, django_tasks.add.enqueue(2)).return_value == 2
    assert finished(site, nearer).return_value == 1


def test_r34_thousands_due_at_one_instant_run_once_each(site: Processes) -> None:
    at = timezone.now() + datetime.timedelta(seconds=0.5)
    task = django_tasks.write_down.using(run_after=at)
    results = [task.enqueue(str(number)) for number in range(2_000)]
    site.dispatcher()
    for _ in range(2):
        site.worker()
    site.until_empty()
    words = [event["word"] for event in site.events()]
    assert sorted(words, key=int) == [str(number) for number in range(2_000)]
    results[-1].refresh()
    assert results[-1].status == TaskResultStatus.SUCCESSFUL


def order_of(results: dict[str, Any]) -> list[str]:
    """Run what is due, one at a time, and return the names in the order they started."""
    OneWorker().drain(most=500)
    for result in results.values():
        result.refresh()
    return sorted(results, key=lambda name: results[name].started_at)


def test_r35_every_step_of_priority_counts_also_among_deferred_tasks_that_are_due() -> None:
    past = timezone.now() - datetime.timedelta(hours=3)
    steps = list(range(-100, 101))
    # Enqueued in an order that is neither the order of priority nor its reverse.
    shuffled = [steps[(number * 77) % len(steps)] for number in range(len(steps))]
    results = {
        f"{step}": django_tasks.noop.using(priority=step, run_after=past if step % 2 else None).enqueue()
        for step in shuffled
    }
    assert order_of(results) == [f"{step}" for step in reversed(steps)]


def test_r35_a_run_after_that_is_past_means_now_and_goes_before_what_was_not_deferred() -> None:
    now = timezone.now()
    ago = [now - datetime.timedelta(minutes=minutes) for minutes in (5, 30, 10)]
    results = {f"deferred {number}": django_tasks.noop.using(run_after=at).enqueue() for number, at in enumerate(ago)}
    results |= {f"at once {number}": django_tasks.noop.enqueue() for number in range(3)}
    order = order_of(results)
    # Each group in the order of enqueueing.
    assert order == [*(f"deferred {number}" for number in range(3)), *(f"at once {number}" for number in range(3))]


def test_r35_deferred_tasks_that_came_due_go_by_their_run_after(moved_clock: FakeClock) -> None:
    now = timezone.now()
    later = [now + datetime.timedelta(hours=hours) for hours in (3, 1, 2)]
    results = {f"{number}": django_tasks.noop.using(run_after=at).enqueue() for number, at in enumerate(later)}
    moved_clock.advance(4 * HOUR)
    promotion = Promotion(get_store().shards[0])
    while any(inspection().counts().scheduled.values()):
        promotion.promote(["default"])
    assert order_of(results) == ["1", "2", "0"]


def test_r28_and_r31_a_task_that_kills_its_process_fails_alone(site: Processes) -> None:
    site.dispatcher()
    site.worker("--pool", "processes", "--concurrency", 2)
    deadly = django_tasks.die.enqueue()
    others = [django_tasks.leave.enqueue(), django_tasks.add.enqueue(2)]
    assert [finished(site, result).status for result in others] == [
        TaskResultStatus.FAILED,
        TaskResultStatus.SUCCESSFUL,
    ]
    finished(site, deadly)
    assert (deadly.status, deadly.attempts, len(deadly.errors)) == (TaskResultStatus.FAILED, 3, 3)
    assert {error.exception_class_path for error in deadly.errors} == {"django_delayq.exceptions.JobCrashed"}
    assert "exit code 9" in deadly.errors[0].traceback


@pytest.mark.parametrize("pool", ["threads", "processes", "asyncio"])
def test_a_result_is_complete_whatever_runs_the_task(site: Processes, pool: str) -> None:
    site.dispatcher()
    worker = site.worker("--pool", pool, "--concurrency", 2)
    results = [django_tasks.describe.enqueue(1), django_tasks.adescribe.enqueue(), django_tasks.aecho.enqueue(2)]
    described, attempt, echoed = (finished(site, result).return_value for result in results)
    assert described["workers"] == results[0].worker_ids
    assert str(worker.pid) in results[0].worker_ids[0]
    assert (described["status"], described["given"], attempt, echoed) == ("RUNNING", [1], 1, [[2], {}])
    failed = finished(site, django_tasks.fail.enqueue())
    assert failed.errors[0].exception_class is ValueError
    assert "the cause" in failed.errors[0].traceback


def test_r26_workers_of_two_processes_have_different_names(site: Processes, gate: Path) -> None:
    site.dispatcher()
    for _ in range(2):
        site.worker("--concurrency", 1)
    results = [django_tasks.wait_for.enqueue(str(gate)) for _ in range(2)]
    site.until(lambda: len(site.events("waits")) == 2, what="both to run")
    for result in results:
        result.refresh()
        assert result.status == TaskResultStatus.RUNNING
    gate.touch()
    assert len({finished(site, result).worker_ids[0] for result in results}) == 2


def test_r32_sigterm_lets_a_running_task_end_and_records_it(site: Processes, gate: Path) -> None:
    worker = site.worker()
    result = django_tasks.wait_for.enqueue(str(gate))
    site.until(lambda: site.events("waits"), what="the task to run")
    worker.send(signal.SIGTERM)
    gate.touch()
    assert worker.wait() == 0
    result.refresh()
    assert result.return_value == "seen"


def test_r32_an_idle_worker_does_not_wait_for_its_grace(site: Processes) -> None:
    # Longer than these tests wait for anything.
    site.configure(GRACE=600)
    assert site.worker().end() == 0


def test_r06_undeclared_queues_are_run_without_flags(site: Processes) -> None:
    site.worker("--with-dispatcher")
    for queue in ("never named before", "ü:*"):
        assert finished(site, django_tasks.add.using(queue_name=queue).enqueue(1)).return_value == 1


def test_r22_a_worker_of_one_alias_runs_nothing_of_another(site: Processes) -> None:
    second = django_tasks.describe.using(backend="second").enqueue()
    first = django_tasks.describe.enqueue()
    site.start("run_worker", "--drain").wait()
    first.refresh()
    second.refresh()
    assert (first.status, second.status) == (TaskResultStatus.SUCCESSFUL, TaskResultStatus.READY)
    drained = site.start("run_worker", "--drain", "--backend", "second")
    assert drained.wait() == 0, drained.output
    second.refresh()
    assert second.return_value["backend"] == "second"


def test_r22_a_dispatcher_of_an_alias_promotes_its_tasks(site: Processes) -> None:
    later = django_tasks.describe.using(
        backend="second", run_after=timezone.now() + datetime.timedelta(seconds=0.2)
    ).enqueue()
    # One job at once: with more, the child processes take longer to start than the test waits, on a busy machine.
    options = ("--backend", "second", "--processes", "2", "--pool", "processes", "--concurrency", "1")
    site.start("run_worker", *options, "--with-dispatcher")
    assert finished(site, later).return_value["backend"] == "second"


@pytest.mark.parametrize(
    "command", [("run_worker",), ("run_dispatcher",), ("delayq_check",), ("delayq_acl",)], ids=lambda words: words[0]
)
def test_an_alias_of_another_backend_ends_a_command_with_a_clear_error(site: Processes, command: tuple[str]) -> None:
    started = site.start(*command, "--backend", "third")
    assert started.wait() == 1
    assert "TASKS has no alias 'third'" in started.output
    assert "'default', 'second'" in started.output


def test_checks_and_rules_of_another_store(site: Processes, drain: Callable[..., int]) -> None:
    django_tasks.describe.using(backend="second").enqueue(1)
    django_tasks.succeed_at.using(backend="second").enqueue()
    checked = site.start("delayq_check", "--backend", "second", "--json")
    assert checked.wait() == 1
    assert '"task": "tests.sample_app.django_tasks.succeed_at"' in checked.output
    assert '"waiting": 2' in checked.output
    acl = site.start("delayq_acl", "producer", "--backend", "second")
    assert acl.wait() == 0
    assert "~delayq-second:*" in acl.output


def test_the_same_worker_runs_both_kinds_of_task(site: Processes) -> None:
    from tests.sample_app import tasks

    site.worker("--with-dispatcher")
    kept = tasks.noop.using(store_result=True, delay=0.1).enqueue()
    result = django_tasks.add.enqueue(1, 2)
    assert kept.wait(30) is None
    assert kept.state == "done"
    job = get_job(result.id)
    assert job is not None
    assert job.wait(30) == 3


@pytest.mark.parametrize("pool", ["threads", "processes"])
def test_r31_a_worker_knows_tasks_that_were_declared_for_another_backend(
    site: Processes, tasks_settings: Any, pool: str
) -> None:
    immediate = {"BACKEND": f"{NAME}.backends.immediate.ImmediateBackend", "QUEUES": []}
    tasks_settings.TASKS = {"default": immediate, "later": {"BACKEND": BACKEND, "QUEUES": []}}
    site.configure()
    site.worker("--with-dispatcher", "--skip-checks", "--pool", pool, "--concurrency", 2)
    result = finished(site, django_tasks.add.using(backend="later").enqueue(1, 2))
    assert (result.status, result.return_value, result.backend) == (TaskResultStatus.SUCCESSFUL, 3, "later")
