"""ProcessRunner: it notices every odd end of a child process, and begins no claim that must not begin."""

import multiprocessing
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.job import Claim, Job
from django_delayq.job.outcome import UNSTARTED, OutcomeKind
from django_delayq.worker.pools.child import ChildProcess
from django_delayq.worker.pools.processes import ProcessRunner
from tests.factories import claim_for
from tests.sample_app import tasks

TASKS = "tests.sample_app.tasks."


@pytest.fixture
def ledger(tmp_path: Any, monkeypatch: pytest.MonkeyPatch, delayq_settings: Any) -> Any:
    monkeypatch.setenv("DELAYQ_TEST_LEDGER", str(tmp_path / "ledger"))
    return tmp_path / "ledger"


@pytest.fixture
def runner() -> Iterator[ProcessRunner]:
    # A process that is not killed waits for a next claim, and Python waits for its end before it exits.
    with closing(ProcessRunner()) as runner:
        yield runner


def suspect(task: Any, *args: Any, **job: Any) -> Claim:
    """Make a claim of a job whose last attempt crashed."""
    made = Job(raw_id=bytes(12), shard=0, task=task.name, queue="default", args=list(args), **job)
    return claim_for(made, attempts=AttemptHistory(ended=1, crash_suspected=True))


def test_a_process_forked_by_a_suspect_does_not_hide_its_end(runner: ProcessRunner, ledger: Any) -> None:
    # The grandchild holds the pipe open for an hour, or until it is killed.
    outcome = runner.run(suspect(tasks.fork_and_exit, 3_600), lambda: True)
    assert outcome.kind is OutcomeKind.CRASHED
    os.kill(int(ledger.read_text()), 9)


def test_a_suspect_whose_lease_was_lost_meanwhile_does_not_begin(runner: ProcessRunner, ledger: Any) -> None:
    assert runner.run(suspect(tasks.record), lambda: False).kind is OutcomeKind.UNSTARTED
    assert not ledger.exists()


def test_a_suspect_over_its_hard_limit_is_killed(runner: ProcessRunner, ledger: Any) -> None:
    outcome = runner.run(suspect(tasks.nap, 3_600, hard_timeout_us=300_000), lambda: True)
    assert outcome.kind is OutcomeKind.CRASHED
    assert "hard limit of 0.3 s" in outcome.error


def test_a_suspect_that_closed_its_descriptors_is_killed_at_its_hard_limit(runner: ProcessRunner, ledger: Any) -> None:
    # Its process sends no more replies, and lives for a while.
    outcome = runner.run(suspect(tasks.close_and_nap, 15, hard_timeout_us=300_000), lambda: True)
    assert outcome.kind is OutcomeKind.CRASHED
    assert "hard limit of 0.3 s" in outcome.error


@pytest.mark.parametrize("is_idle", [True, False])
def test_the_end_of_a_process_is_noticed_if_other_code_collected_its_exit_code(
    runner: ProcessRunner, ledger: Any, is_idle: bool
) -> None:
    others = set(multiprocessing.active_children())
    runner.prepare()
    (child,) = set(multiprocessing.active_children()) - others

    def end_child() -> bool:
        os.kill(child.pid, signal.SIGKILL)  # type: ignore[arg-type]
        return os.waitpid(child.pid, 0)[0] == child.pid  # type: ignore[arg-type]

    if is_idle:
        end_child()
        assert (runner.count, runner.ready_count) == (0, 0)
        assert runner.run(suspect(tasks.record), lambda: True).kind is OutcomeKind.SUCCEEDED
    else:
        # The job has no hard limit.
        outcome = runner.run(suspect(tasks.record), end_child)
        assert outcome.kind is OutcomeKind.CRASHED
        assert "other code collected its exit code" in outcome.error
        assert not ledger.exists()


def test_a_suspect_that_writes_into_the_pipe_of_its_process_has_crashed(runner: ProcessRunner, ledger: Any) -> None:
    outcome = runner.run(suspect(tasks.write_to_descriptors), lambda: True)
    assert outcome.kind is OutcomeKind.CRASHED
    assert "Its answer could not be read" in outcome.error
    assert (runner.count, runner.ready_count) == (0, 0)
    assert runner.run(suspect(tasks.record), lambda: True).kind is OutcomeKind.SUCCEEDED
    assert (runner.count, runner.ready_count) == (1, 1)


def test_a_process_without_a_descriptor_left_fails_the_attempt(runner: ProcessRunner, ledger: Any) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(highest + 1 - len(os.listdir("/proc/self/fd")) + 1)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    try:
        while True:
            try:
                taken.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        outcome = runner.run(suspect(tasks.record), lambda: True)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)
    assert outcome.kind is OutcomeKind.FAILED
    assert "No process could be started" in outcome.error


def test_after_processes_that_do_not_start_the_wait_grows(
    runner: ProcessRunner, ledger: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = list[float]()
    monkeypatch.setattr(runner._closed, "wait", waits.append)
    claim = suspect(tasks.record)

    def run() -> bool:
        return runner.run(claim, lambda: True) is not UNSTARTED

    with monkeypatch.context() as broken:
        broken.setattr(ChildProcess, "wait_ready", ChildProcess.kill)
        assert not any(run() for _ in range(7))
    assert waits == [1, 2, 4, 8, 16, 30, 30]
    assert run() and len(waits) == 7
    with monkeypatch.context() as broken:
        broken.setattr(ChildProcess, "wait_ready", ChildProcess.kill)
        assert not run()
    assert waits[7:] == [1], "one that starts resets the back-off"
