"""Awkward tasks: errors that cannot be printed, hidden coroutines, chains, and enqueueing from a signal handler."""

from typing import Any

from django_delayq import get_store
from tests.inspection import inspection
from tests.sample_app import tasks
from tests.subprocesses import Processes


def test_an_error_that_cannot_be_printed_is_a_failure_and_costs_no_slot(processes: Processes) -> None:
    failing = [tasks.fail_unprintably.enqueue(how) for how in ("notes", "syntax")]
    next_one = tasks.record.enqueue()
    assert processes.worker("--drain", "--concurrency", 1).wait() == 0
    assert [run["id"] for run in processes.runs()] == [job.id for job in (*failing, next_one)]
    for job, name in zip(failing, ("Unprintable", "SyntaxError"), strict=True):
        assert job.refresh().state == "dead"
        letter = inspection().dead_letter(bytes.fromhex(job.id.split("-")[0]))
        assert letter is not None and letter.job is not None
        assert letter.attempts.ended == 1 and name in letter.attempts.last_error


def test_a_coroutine_behind_a_plain_decorator_runs_to_its_end(processes: Processes) -> None:
    job = tasks.record_wrapped.enqueue(7)
    worker = processes.worker("--drain")
    assert worker.wait() == 0
    [run] = processes.runs(job.id)
    assert run["value"] == 7
    assert "never awaited" not in worker.output


def test_a_drain_of_two_shards_runs_what_its_jobs_enqueue(processes: Processes) -> None:
    processes.configure(SHARDS=2)
    tasks.chain.enqueue(12)
    assert processes.worker("--drain", "--concurrency", 1).wait() == 0
    runs = processes.runs()
    assert [run["left"] for run in runs] == list(range(12, -1, -1))
    # Otherwise the test proves nothing.
    assert {run["id"].split("-")[1] for run in runs} == {"0", "1"}


#: Runs in a process of its own, because a deadlock would never end in this one. `make` is one of the two below.
HANDLER = """
import signal
from tests.sample_app.tasks import noop

def make(): return {make}

def handle(*_):
    handled.append(make())
    if len(handled) < {count}:
        signal.setitimer(signal.ITIMER_REAL, {pause})

handled, made = [], []
signal.signal(signal.SIGALRM, handle)
signal.setitimer(signal.ITIMER_REAL, {pause})
while len(handled) < {count}:
    made.append(make())
assert len({{*handled, *made}}) == len(handled) + len(made)
print("ids:", len(handled) + len(made))
"""


def ids_made(processes: Processes, **parts: Any) -> int:
    """Make jobs in a signal handler and in the thread it interrupts; returns how many."""
    process = processes.start("shell", "-c", HANDLER.format(**parts))
    assert process.wait() == 0, process.output
    return int(process.output.rpartition("ids:")[2])


def test_a_signal_handler_may_make_jobs_while_its_thread_makes_jobs(processes: Processes) -> None:
    # Without calls to Redis, nearly every signal arrives while an id is made.
    assert ids_made(processes, make="noop.job().id", count=2_000, pause=0.000_05) >= 2_000


def test_a_signal_handler_may_enqueue_while_its_thread_enqueues(processes: Processes) -> None:
    number = ids_made(processes, make="noop.enqueue().id", count=2_000, pause=0.000_2)
    shard = get_store().shards[0]
    assert shard.client.zcard(shard.keys.ready("default")) == number
