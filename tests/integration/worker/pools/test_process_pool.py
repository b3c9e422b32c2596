"""Process pool: children run several tasks, are replaced at their limits, and a crash ends only one child."""

import os
import signal
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from django_delayq.job.retry import RetryPolicy
from tests.sample_app import tasks
from tests.sample_app.misbehaving import by_rules
from tests.subprocesses import Processes
from tests.warm_process import ROOT

#: A manage.py that starts a worker in each process that imports it. Its second start fails at once.
UNGUARDED = """\
from pathlib import Path

from django.core.management import execute_from_command_line

Path(__file__).with_name("started").touch(exist_ok=False)
execute_from_command_line(["manage.py", "run_worker", "--pool=processes", "--concurrency=1"])
"""


def pids(processes: Processes) -> list[int]:
    return [run["pid"] for run in processes.runs()]


def has_ended(pid: int) -> bool:
    """Return whether a process is gone, or a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def test_jobs_run_in_children_that_are_used_again(processes: Processes) -> None:
    jobs = [tasks.record.enqueue(number) for number in range(20)]
    worker = processes.worker("--pool=processes", "--concurrency=2")
    processes.until_gone(jobs)
    used = set(pids(processes))
    assert worker.pid not in used
    assert 1 <= len(used) <= 2
    assert worker.end() == 0
    processes.until(lambda: all(map(has_ended, used)), what="the children to end")


def test_a_child_is_replaced_after_its_number_of_jobs(processes: Processes) -> None:
    jobs = [tasks.record.enqueue(number) for number in range(9)]
    processes.worker("--pool=processes", "--concurrency=1", "--max-jobs=3")
    processes.until_gone(jobs)
    used = pids(processes)
    assert [used.count(pid) for pid in dict.fromkeys(used)] == [3, 3, 3]


def test_a_child_is_replaced_when_it_has_grown(processes: Processes) -> None:
    jobs = [tasks.record.enqueue(number) for number in range(3)]
    processes.worker("--pool=processes", "--concurrency=1", "--max-memory=1")
    processes.until_gone(jobs)
    assert len(set(pids(processes))) == 3


def test_a_manage_py_that_runs_its_command_when_it_is_imported_is_told_the_cure(
    processes: Processes, tmp_path: Path
) -> None:
    tasks.record.enqueue(1)
    script = tmp_path / "manage.py"
    script.write_text(UNGUARDED)
    program = f"import runpy; runpy.run_path({str(script)!r}, run_name='__main__')"
    worker = processes.start_program(program, cwd=ROOT)
    processes.until(lambda: 'put the call under `if __name__ == "__main__":`' in worker.output, what="the cure")


@pytest.mark.parametrize("how", ["exit", "kill", "segfault"])
def test_a_task_that_kills_its_process_costs_one_attempt_of_one_job(processes: Processes, how: str, gate: Path) -> None:
    retry = RetryPolicy(max_attempts=2, base=0.01)
    processes.dispatcher()
    worker = processes.worker("--pool=processes", "--concurrency=3")
    waiting = tasks.wait_for.enqueue(str(gate))
    processes.until_state(waiting, "claimed")
    deadly = tasks.crash.using(retry=retry).enqueue(how)
    others = [tasks.record.enqueue(number) for number in range(5)]
    processes.until_state(deadly, "dead")
    gate.touch()
    processes.until_gone([waiting, *others])
    attempts = [run["attempt"] for run in processes.runs()]
    assert sorted(attempts) == [1] * 7 + [2]
    assert worker.end() == 0


def test_a_task_over_its_hard_limit_is_killed_and_its_neighbour_is_not(processes: Processes, gate: Path) -> None:
    once = RetryPolicy(max_attempts=1)
    processes.worker("--pool=processes", "--concurrency=2")
    waiting = tasks.wait_for.enqueue(str(gate))
    endless = tasks.nap.using(hard_timeout=0.3, timeout=0.3, retry=once).enqueue(3_600)
    processes.until_state(endless, "dead")
    gate.touch()
    processes.until_gone([waiting])
    assert [run["attempt"] for run in processes.runs(waiting.id)] == [1]


def test_a_task_that_announces_bytes_which_never_come_is_killed_at_its_hard_limit(processes: Processes) -> None:
    processes.worker("--pool=processes", "--concurrency=1")
    promised, after = tasks.promise_bytes.enqueue(), tasks.record.enqueue("after")
    processes.until_state(promised, "dead")
    processes.until_gone([after])


def test_children_end_with_a_worker_that_is_killed(processes: Processes, gate: Path) -> None:
    worker = processes.worker("--pool=processes", "--concurrency=1")
    tasks.wait_for.enqueue(str(gate))
    [run] = processes.until_runs(1)
    os.kill(worker.pid, signal.SIGKILL)

    processes.until(lambda: has_ended(run["pid"]), what="the child to end")


def test_rules_and_computed_delays_cross_the_pipe_of_a_child(processes: Processes) -> None:
    processes.configure(TASK_MODULES=["tests.sample_app.misbehaving.by_rules"])
    processes.dispatcher()
    processes.worker("--pool=processes", "--concurrency=1")
    dead = by_rules.fail_with_rules.enqueue("dead")
    processes.until_state(dead, "dead")
    again = by_rules.fail_with_rules.enqueue("again")
    processes.until_gone([again])
    assert [(run["args"], run["attempt"]) for run in processes.runs()] == [(["again"], 2)]


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--max-jobs=3"], "--max-jobs needs --pool processes"),
        (["--pool=processes", "--max-jobs=0"], "--max-jobs must be at least 1, got 0"),
        (["--pool=processes", "--max-memory=-1"], "--max-memory must be at least 1, got -1"),
        (["--pool=fibres"], "invalid choice: 'fibres'"),
    ],
)
def test_options_that_could_not_work_are_refused(delayq_settings: object, options: list[str], error: str) -> None:
    with pytest.raises(CommandError, match=error):
        call_command("run_worker", *options)
