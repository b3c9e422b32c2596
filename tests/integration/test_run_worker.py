"""manage.py run_worker as a process: its options, what it takes in which order, and how it ends."""

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

from django_delayq import enqueue_many, get_store
from django_delayq.job.attempts import AttemptHistory
from django_delayq.testing.local_redis import LocalRedisServer
from tests.sample_app import tasks
from tests.subprocesses import Command, Processes, listeners


def attempts_of(job: Any) -> AttemptHistory:
    raw_id = bytes.fromhex(job.id.split("-")[0])
    return get_store().lookup(0).find(raw_id, queue=job.job.queue).attempts


def dispatchers_started(worker: Command) -> list[int]:
    return [int(pid) for pid in re.findall(r"^Dispatcher (\d+) serves", worker.output, re.MULTILINE)]


def values(processes: Processes) -> list[Any]:
    return [run["args"][0] for run in processes.runs()]


# Starting, and options


def test_a_ready_job_runs_with_its_arguments(processes: Processes) -> None:
    worker = processes.worker()
    job = tasks.record.enqueue(7, "sieben", where={"a": [None, 1.5]})
    [run] = processes.until_runs(1)
    assert (run["id"], run["attempt"], run["recovered"], run["queue"]) == (job.id, 1, False, "default")
    assert (run["args"], run["kwargs"]) == ([7, "sieben"], {"where": {"a": [None, 1.5]}})
    assert run["pid"] == worker.pid
    processes.until_gone([job])


def test_it_says_what_it_serves_also_into_a_file(processes: Processes) -> None:
    worker = processes.start("run_worker", "--queues", "mail,bulk", "--concurrency", 3, PYTHONUNBUFFERED="")
    processes.until(lambda: f"Worker {worker.pid} serves mail, bulk" in worker.output, what="its first line")
    assert "3 at once" in worker.output


def test_what_tasks_print_is_not_lost_at_the_end(processes: Processes) -> None:
    tasks.say.enqueue("printed by a task")
    worker = processes.worker("--drain", PYTHONUNBUFFERED="")
    assert worker.wait() == 0
    assert "printed by a task" in worker.output


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--fast"], 2, "--fast"),
        (["--concurrency", "many"], 2, "--concurrency"),
        (["--concurrency", "0"], 1, "--concurrency must be 1 to 10,000, got 0"),
        (["--concurrency", "-3"], 1, "--concurrency must be 1 to 10,000, got -3"),
        (["--queues", ""], 1, "--queues: queue must be 1 to 200 bytes"),
        (["--queues", "mail,,bulk"], 1, "--queues: queue must be 1 to 200 bytes"),
        (["--queues", "q" * 201], 1, "--queues: queue must be 1 to 200 bytes"),
        (["--queues", "mial"], 1, "did you mean 'mail'?"),
    ],
)
def test_a_bad_option_is_refused_without_a_traceback(
    processes: Processes, options: list[str], code: int, told: str
) -> None:
    processes.configure(QUEUES={"mail": {}, "bulk": {}})
    worker = processes.start("run_worker", *options)
    assert worker.wait() == code
    assert told in worker.output
    assert "Traceback" not in worker.output


def test_named_queues_are_served_strictly_in_their_order(processes: Processes) -> None:
    enqueue_many(
        [tasks.record.using(queue="b", priority=100).job("b") for _ in range(70)]
        + [tasks.record.using(queue="a", priority=-100).job("a") for _ in range(70)]
        + [tasks.record.using(queue="c").job("c")]
    )
    assert processes.worker("--queues", "a,b", "--concurrency", 1, "--drain").wait() == 0
    assert values(processes) == ["a"] * 70 + ["b"] * 70


def test_without_names_the_best_rank_of_all_queues_runs_first(processes: Processes) -> None:
    # Priority first, then age, whatever the queue: places[i] is the i-th job to be enqueued.
    places = [(f"queue {n % 5}", (0, 100, -100, 7)[n % 4], n) for n in range(100)]
    enqueue_many([tasks.record.using(queue=queue, priority=p).job(n) for queue, p, n in places])
    assert processes.worker("--concurrency", 1, "--drain").wait() == 0
    # Within one millisecond, ranks are equal and the queues' order decides; only priorities are exact.
    run = values(processes)
    assert [places[n][1] for n in run] == sorted((p for _, p, _ in places), reverse=True)
    assert sorted(run) == list(range(100))


def test_concurrency_bounds_how_many_run_at_once(processes: Processes, tmp_path: Path) -> None:
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
    # By now it takes short jobs by the dozen.
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


# --drain


def test_drain_runs_what_is_ready_or_due_and_leaves_what_is_later(processes: Processes) -> None:
    ready = enqueue_many([tasks.noop.using(queue=f"queue {n % 4}").job() for n in range(700)])
    due = tasks.record.after(0.2).enqueue("due")
    later = tasks.record.after(hours=1).enqueue("later")
    processes.until(lambda: due.due is None or due.due.timestamp() < now(processes), what="the due time")
    assert due.refresh().state == "scheduled"  # nobody promotes it but the worker itself
    assert processes.worker("--drain").wait() == 0
    assert values(processes) == ["due"]
    assert {job.refresh().state for job in ready} == {"gone"}
    assert later.refresh().state == "scheduled"


def now(processes: Processes) -> float:
    """Return the server's time."""
    with processes.client() as client:
        seconds, micros = client.time()
    return float(seconds + micros / 1_000_000)


def test_drain_does_not_wait_for_later_retries(processes: Processes) -> None:
    job = tasks.later.enqueue(3600)
    assert processes.worker("--drain").wait() == 0
    assert job.refresh().state == "scheduled"
    assert len(processes.runs()) == 1


def test_drain_looks_at_its_own_queues_only(processes: Processes) -> None:
    other = tasks.record.using(queue="other").enqueue("other")
    late = tasks.record.using(queue="other").after(0.05).enqueue("late")
    tasks.record.using(queue="own").enqueue("own")
    assert processes.worker("--drain", "--queues", "own").wait() == 0
    assert values(processes) == ["own"]
    assert other.refresh().state == "ready"
    assert late.refresh().state in ("scheduled", "ready")


def test_drain_does_not_wait_for_jobs_that_others_hold(processes: Processes, gate: Path) -> None:
    other = processes.worker()
    held = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    assert processes.worker("--drain").wait() == 0
    assert held.refresh().state == "claimed"
    assert other.running


def test_drain_waits_for_what_runs_and_takes_what_came_meanwhile(processes: Processes, gate: Path) -> None:
    tasks.wait_for.enqueue(str(gate))
    worker = processes.worker("--drain", "--concurrency", 1)
    processes.until_runs(1)
    tasks.record.enqueue("came meanwhile")
    assert worker.running
    gate.touch()
    assert worker.wait() == 0
    assert [event["word"] for event in processes.events()] == ["run", "end", "run"]


def test_drain_of_nothing_ends(processes: Processes) -> None:
    assert processes.worker("--drain").wait() == 0
    assert processes.worker("--drain", "--queues", "empty").wait() == 0


# --with-dispatcher


def test_a_child_dispatcher_is_restarted_and_ends_with_the_worker(processes: Processes, client: Redis) -> None:
    worker = processes.worker("--with-dispatcher")
    [first] = processes.until(lambda: dispatchers_started(worker), what="the dispatcher")
    os.kill(first, signal.SIGKILL)
    processes.until(lambda: len(dispatchers_started(worker)) > 1, what="the next dispatcher")
    # The worker listens to its bells, the dispatcher to the alarm.
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    job = tasks.record.after(0.1).enqueue()
    processes.until_gone([job])
    assert worker.end() == 0
    second = dispatchers_started(worker)[-1]
    assert second != first
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)
    assert "Traceback" not in worker.output
    assert "Fatal" not in worker.output


def test_a_child_dispatcher_ends_with_a_killed_worker(processes: Processes, client: Redis) -> None:
    worker = processes.worker("--with-dispatcher")
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    worker.kill()
    processes.until(lambda: listeners(client) == 0, what="the dispatcher's end")


def test_a_terminal_s_interrupt_ends_both(processes: Processes, client: Redis) -> None:
    worker = processes.worker("--with-dispatcher")
    processes.until(lambda: listeners(client) == 2, what="both to listen")
    worker.send_all(signal.SIGINT)
    assert worker.wait() == 0
    processes.until(lambda: listeners(client) == 0, what="the dispatcher's end")
    assert "Traceback" not in worker.output
    assert "Fatal" not in worker.output


# --reload


def test_reload_starts_anew_when_code_changes_and_ends_running_jobs_first(processes: Processes, gate: Path) -> None:
    module = processes.folder / "reloaded_tasks.py"
    module.write_text(
        "from django.utils.autoreload import file_changed\n"
        "from tests.sample_app.tasks import note\n"
        "note('loaded')\n"
        "def changed(**kwargs):\n"
        "    note('changed')\n"
        "file_changed.connect(changed)\n"
    )
    processes.configure(TASK_MODULES=("reloaded_tasks",))
    worker = processes.worker("--reload")
    job = tasks.wait_for.enqueue(str(gate))
    [run] = processes.until_runs(1)

    # A change before the reloader's first look is none, so it is repeated.
    def seen() -> bool:
        newer = module.stat().st_mtime + 1
        os.utime(module, (newer, newer))
        return bool(processes.events("changed"))

    processes.until(seen, what="the change to be seen")
    later = tasks.record.enqueue()
    gate.touch()
    processes.until_gone([job, later])
    events = [(event["word"], event["pid"] == run["pid"]) for event in processes.events()]
    # The reloader's parent process loads the code as well.
    assert [event for event in events if event != ("loaded", False)] == [
        ("loaded", True),
        ("run", True),
        ("changed", True),
        ("end", True),
        ("run", False),
    ]
    assert events.index(("end", True)) < len(events) - 2
    worker.send(signal.SIGTERM)
    assert worker.wait() == 0


# Without a dispatcher


def test_without_a_dispatcher_an_idle_worker_promotes(processes: Processes) -> None:
    processes.configure(LEASE=2)
    processes.worker()
    job = tasks.record.after(0.1).enqueue()
    processes.until_gone([job])


def test_without_a_dispatcher_a_busy_worker_promotes(processes: Processes) -> None:
    # Its sweep is 1 s: it learns that nobody promotes 2 s after it last did so itself.
    processes.configure(LEASE=2)
    naps = enqueue_many([tasks.nap.job(0.05) for _ in range(150)])
    processes.worker("--concurrency", 1)
    processes.until_runs(1)
    urgent = tasks.record.using(priority=100, delay=0.1).enqueue("urgent")
    processes.until_runs(1, urgent.id)
    assert naps[-1].refresh().state == "ready"


def test_without_a_dispatcher_lapsed_leases_are_taken_back(processes: Processes, gate: Path) -> None:
    processes.configure(LEASE=2)
    lost = processes.worker()
    job = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    lost.kill()
    gate.touch()
    processes.worker()
    processes.until_gone([job])
    assert [run["attempt"] for run in processes.runs()] == [1, 2]


# Ending


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_worker_ends_with_code_0(processes: Processes, number: signal.Signals) -> None:
    worker = processes.worker()
    worker.send(number)
    assert worker.wait() == 0
    assert "Traceback" not in worker.output


def test_a_running_job_ends_within_grace_under_its_lease(processes: Processes, client: Redis, gate: Path) -> None:
    processes.configure(LEASE=2, GRACE=600)
    processes.dispatcher()
    worker = processes.worker()
    job = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    worker.send(signal.SIGTERM)

    def lease_end() -> float:
        [(_, end)] = client.zrange(processes.keys("leases"), 0, -1, withscores=True)
        return float(end)

    first = lease_end()
    # Two leases on: without the heartbeat the dispatcher had taken the job back.
    processes.until(lambda: lease_end() > first + 4_000_000, what="the heartbeat to go on")
    waiting = tasks.record.enqueue("not taken any more")
    assert worker.running
    gate.touch()
    assert worker.wait() == 0
    assert [event["word"] for event in processes.events()] == ["run", "end"]
    assert job.refresh().state == "gone"
    assert waiting.refresh().state == "ready"


def test_claims_that_have_not_begun_are_released_uncounted(processes: Processes, gate: Path) -> None:
    processes.configure(GRACE=600)
    worker = processes.worker("--concurrency", 1)
    processes.until_gone(enqueue_many([tasks.noop.job() for _ in range(300)]))
    # With the bell comes one job alone; those behind it are claimed together.
    alone, signals = tasks.noop.job(), tasks.signal_worker.job(int(signal.SIGTERM), str(gate))
    _, first, *others = enqueue_many([alone, signals, *(tasks.record.job(n) for n in range(20))])
    [run] = processes.until_runs(1)
    assert run["held"] > 1
    for job in others:
        processes.until_state(job, "ready")
    gate.touch()
    assert worker.wait() == 0
    assert first.refresh().state == "gone"
    assert [event["word"] for event in processes.events()] == ["run", "end"]
    assert {attempts_of(job).ended for job in others} == {0}
    assert processes.worker("--drain", "--concurrency", 1).wait() == 0
    assert [run["args"] for run in processes.runs()[1:]] == [[n] for n in range(20)]
    assert {run["attempt"] for run in processes.runs()} == {1}


def test_grace_is_for_what_runs_and_an_idle_worker_ends_without_redis_too(
    processes: Processes, start_redis: Callable[..., LocalRedisServer]
) -> None:
    server = start_redis()
    processes.configure(REDIS=server.url, GRACE=1_000)
    worker = processes.worker()
    with server.client() as client:
        processes.until(lambda: listeners(client), what="the worker to listen")
    server.kill()
    processes.until(lambda: "lost its bell" in worker.output, what="it to miss Redis")
    # It had asked for jobs and was not answered: it tries for some seconds, not for GRACE.
    assert worker.end() == 0
    assert "ends without an answer" in worker.output and "Traceback" not in worker.output


def test_a_worker_ends_at_once_where_it_cannot_learn_which_queues_there_are(
    processes: Processes, start_redis: Callable[..., LocalRedisServer]
) -> None:
    server = start_redis()
    processes.configure(REDIS=server.url, GRACE=1_000)
    with server.client() as client:
        client.execute_command("ACL SETUSER default -zrange")
    worker = processes.worker()
    processes.until(lambda: "Worker of" in worker.output, what="it to say what it waits for")
    assert "Redis refused" in worker.output
    assert worker.end() == 0
    assert "ends without" not in worker.output and "Traceback" not in worker.output


@pytest.mark.parametrize("grace", [0, 1])
def test_what_outlasts_grace_is_given_back_counted_and_at_once(processes: Processes, gate: Path, grace: int) -> None:
    processes.configure(GRACE=grace)
    worker = processes.worker()
    job = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    assert worker.end() == 0
    given_back = attempts_of(job)
    assert (given_back.ended, given_back.crash_suspected) == (1, False)
    gate.touch()
    # --drain does not wait for anything later: without back-off, the job is due by now.
    assert processes.worker("--drain").wait() == 0
    assert [(run["attempt"], run["recovered"]) for run in processes.runs()] == [(1, False), (2, False)]
    assert job.refresh().state == "gone"


def test_a_second_signal_gives_back_at_once(processes: Processes, gate: Path) -> None:
    processes.configure(GRACE=600)
    worker = processes.worker()
    job = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    worker.send(signal.SIGTERM)

    # Signals that come before the first was heeded count as one; so further ones follow.
    def ended() -> bool:
        worker.send(signal.SIGINT)
        return not worker.running

    processes.until(ended, what="the end")
    assert worker.wait() == 0
    assert attempts_of(job).ended == 1
    assert job.refresh().state == "ready"


# Suspects, which run in a process of their own


@pytest.fixture
def suspect(processes: Processes, gate: Path) -> Iterator[tuple[Command, Any]]:
    """A worker that runs a job for the second time, after a crash, and the job."""
    processes.configure(LEASE=2, GRACE=600)
    processes.dispatcher()
    crashed = processes.worker()
    job = tasks.wait_for.enqueue(str(gate))
    processes.until_runs(1)
    crashed.kill()
    worker = processes.worker()
    processes.until_runs(2)
    yield worker, job


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_suspect_has_its_grace_when_the_whole_group_is_signalled(
    processes: Processes, gate: Path, suspect: tuple[Command, Any], number: signal.Signals
) -> None:
    # Ctrl-C in a terminal, and systemd at its defaults, signal every process of the group.
    worker, job = suspect
    worker.send_all(number)
    gate.touch()
    assert worker.wait() == 0
    assert [event["word"] for event in processes.events()] == ["run", "run", "end"]
    assert job.refresh().state == "gone"


def test_a_suspect_that_is_given_back_is_interrupted_not_crashed(
    processes: Processes, suspect: tuple[Command, Any]
) -> None:
    worker, job = suspect

    def ended() -> bool:
        worker.send(signal.SIGTERM)
        return not worker.running

    processes.until(ended, what="the end")
    history = attempts_of(job).history
    assert [entry["ending"] for entry in history] == ["lease expired", "interrupted"], json.dumps(history)


def test_a_suspect_may_start_processes(processes: Processes, gate: Path) -> None:
    processes.configure(LEASE=2)
    processes.dispatcher()
    crashed = processes.worker()
    job = tasks.crash_then_start_process.enqueue(str(gate))
    crashed.wait()
    processes.worker()
    processes.until_state(job, "gone", "dead")
    assert gate.exists()
    assert [run["attempt"] for run in processes.runs()] == [1, 2]
