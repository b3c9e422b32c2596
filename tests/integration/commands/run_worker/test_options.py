"""Options of run_worker: what a process prints, which jobs it runs, and in which order."""

from pathlib import Path
from typing import Any

import pytest

from django_delayq import enqueue_many
from django_delayq.management.commands import run_worker
from tests.integration.commands.run_worker.runs import values
from tests.sample_app import tasks
from tests.subprocesses import Processes


def test_a_ready_job_runs_with_its_arguments(processes: Processes) -> None:
    worker = processes.worker()
    job = tasks.record.enqueue(7, "sieben", where={"a": [None, 1.5]})
    [run] = processes.until_runs(1)
    assert (run["id"], run["attempt"], run["recovered"], run["queue"]) == (job.id, 1, False, "default")
    assert (run["args"], run["kwargs"]) == ([7, "sieben"], {"where": {"a": [None, 1.5]}})
    assert run["pid"] == worker.pid
    processes.until_gone([job])


def test_it_prints_its_queues_even_into_a_file(processes: Processes) -> None:
    worker = processes.start("run_worker", "--queues", "mail,bulk", "--concurrency", 3, PYTHONUNBUFFERED="")
    processes.until(lambda: f"Worker {worker.pid} serves mail, bulk" in worker.output, what="its first line")
    assert "3 at once" in worker.output


def test_output_of_tasks_is_not_lost_at_the_end(processes: Processes) -> None:
    tasks.say.enqueue("printed by a task")
    worker = processes.worker("--drain", PYTHONUNBUFFERED="")
    assert worker.wait() == 0
    assert "printed by a task" in worker.output


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        (["--fast"], 2, "--fast"),
        (["--concurrency", "many"], 2, "--concurrency"),
        (["--concurrency", "0"], 1, "--concurrency must be a whole number, 1 to 10,000, got 0"),
        (["--concurrency", "-3"], 1, "--concurrency must be a whole number, 1 to 10,000, got -3"),
        (["--queues", ""], 1, "--queues: queue must be 1 to 200 bytes"),
        (["--queues", "mail,,bulk"], 1, "--queues: queue must be 1 to 200 bytes"),
        (["--queues", "q" * 201], 1, "--queues: queue must be 1 to 200 bytes"),
        (["--queues", "mial"], 1, "did you mean 'mail'?"),
        (
            ["--queues", "mial*"],
            1,
            "--queues: pattern 'mial*' matches no queue of DELAYQ['QUEUES'] (did you mean 'mail'?)",
        ),
        (["--queues=-mail,-bulk"], 1, "--queues: -mail, -bulk leaves no queue of DELAYQ['QUEUES']"),
        (["--weights", "mail=0,bulk=1"], 1, "--weights: 'mail=0' must have a whole number, 1 to 100, behind the ="),
        (
            ["--weights", "mail=1", "--queues", "mail"],
            1,
            "--weights: it names the queues itself, so leave out --queues",
        ),
        (["--weights", "mial=1"], 1, "did you mean 'mail'?"),
        (["--queues", "-mail"], 2, "--queues: expected one argument; write --queues=-slow, with =,"),
    ],
)
def test_a_bad_option_is_refused_without_a_traceback(
    delayq_settings: Any, capsys: pytest.CaptureFixture[str], options: list[str], code: int, message: str
) -> None:
    # bad_input/test_commands.py starts processes with bad options; this calls the function that they call.
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "QUEUES": {"mail": {}, "bulk": {}}}
    with pytest.raises(SystemExit) as ended:
        run_worker.Command().run_from_argv(["manage.py", "run_worker", *options])
    assert ended.value.code == code
    printed = capsys.readouterr()
    assert message in printed.err
    assert "Traceback" not in printed.out + printed.err


def test_jobs_of_named_queues_run_strictly_in_the_order_of_the_queues(processes: Processes) -> None:
    enqueue_many(
        [tasks.record.using(queue="b", priority=100).job("b") for _ in range(70)]
        + [tasks.record.using(queue="a", priority=-100).job("a") for _ in range(70)]
        + [tasks.record.using(queue="c").job("c")]
    )
    assert processes.worker("--queues", "a,b", "--concurrency", 1, "--drain").wait() == 0
    assert values(processes) == ["a"] * 70 + ["b"] * 70


def test_without_names_the_best_rank_of_all_queues_runs_first(processes: Processes) -> None:
    # Priority first, then age, in any queue: places[i] is the i-th enqueued job.
    places = [(f"queue {n % 5}", (0, 100, -100, 7)[n % 4], n) for n in range(100)]
    enqueue_many([tasks.record.using(queue=queue, priority=p).job(n) for queue, p, n in places])
    assert processes.worker("--concurrency", 1, "--drain").wait() == 0
    # Ranks are equal within one millisecond, and then the order of the queues decides. Priorities are exact.
    run = values(processes)
    assert [places[n][1] for n in run] == sorted((p for _, p, _ in places), reverse=True)
    assert sorted(run) == list(range(100))


def test_concurrency_limits_how_many_jobs_run_at_once(processes: Processes, tmp_path: Path) -> None:
    gates = [str(tmp_path / f"gate {n}") for n in range(6)]
    jobs = [tasks.wait_for.enqueue(gate) for gate in gates]
    processes.worker("--concurrency", 3)
    begun = processes.until_runs(3)
    for _ in range(3):
        open(gates[[job.id for job in jobs].index(begun[-1]["id"])], "w").close()
        begun = processes.until_runs(len(begun) + 1)
    for gate in gates:
        open(gate, "w").close()
    processes.until_gone(jobs)
    running = 0
    for event in processes.events():
        running += 1 if event["word"] == "run" else -1
        assert running <= 3


def test_short_jobs_do_not_wait_behind_a_long_one_while_another_worker_is_free(
    processes: Processes, gate: Path
) -> None:
    busy = processes.worker("--concurrency", 1)
    # By now it prefetches short jobs by the dozen.
    processes.until_gone(enqueue_many([tasks.noop.job() for _ in range(300)]))
    long, *short = enqueue_many([tasks.wait_for.job(str(gate)), *(tasks.record.job(n) for n in range(20))])
    processes.until_runs(1, long.id)
    free = processes.worker("--concurrency", 1)
    processes.until_gone(short)
    assert {run["pid"] for run in processes.runs() if run["id"] != long.id} == {free.pid}
    assert {run["attempt"] for run in processes.runs()} == {1}
    gate.touch()
    processes.until_gone([long])
    assert busy.running
