"""Forks: processes forked after the first use of the store share no socket and no id. Forks in tasks are harmless."""

import subprocess
import sys
from typing import Any

import pytest
from redis import Redis

from tests.sample_app import forking_tasks
from tests.stateful import invariants, redis_state
from tests.subprocesses import ROOT, Processes

# The script forks in its own process, because Python warns about a fork of a process with threads.
PRODUCERS = """
import os, sys, threading, django
django.setup()
from django_delayq import get_store
from tests.sample_app.tasks import noop
jobs, children, threads = (int(word) for word in sys.argv[1:])

def produce(name):
    made = [noop.using(delay=3600).enqueue(name, n).id for n in range(jobs // threads)]
    # One write: lines of others do not come between.
    os.write(1, "".join(f"{job}\\n" for job in made).encode())

def in_threads(name):
    many = [threading.Thread(target=produce, args=(f"{name}.{n}",)) for n in range(threads)]
    for thread in many:
        thread.start()
    for thread in many:
        thread.join()

# As gunicorn --preload: the parent has used the store, and goes on using it beside its children.
noop.using(delay=3600).enqueue("parent")
mine = get_store()._producer_shards[0].client.client_id()
pids = []
for child in range(children):
    pid = os.fork()
    if pid == 0:
        in_threads(child)
        assert get_store()._producer_shards[0].client.client_id() != mine
        os._exit(0)
    pids.append(pid)
in_threads("parent")
codes = [os.waitpid(pid, 0)[1] for pid in pids]
assert codes == [0] * children, codes
"""


# The fork happens while another thread is in its first use of the store. That thread does not exist in the child, which
# must not wait for it.
INTERRUPTED = """
import os, signal, sys, threading, django
from django.conf import settings
url, asked, answer, parent = settings.DELAYQ["REDIS"], threading.Event(), threading.Event(), os.getpid()

def where():
    if threading.current_thread() is first:
        asked.set()
        answer.wait()
    return url

settings.DELAYQ = {"REDIS": where}
django.setup()
from django_delayq import get_store
from django_delayq.store import store
from tests.sample_app.tasks import noop

def make():
    with store._lock:
        asked.set()
        answer.wait()

def connect():
    get_store().shards
    get_store()._producer_shards

first = threading.Thread(target={"make": make, "connect": connect}[sys.argv[1]], daemon=True)
first.start()
asked.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(30)
    noop.using(delay=3600).enqueue("child")
    get_store().shards
    os._exit(0)
answer.set()
assert os.waitpid(pid, 0)[1] == 0
noop.using(delay=3600).enqueue("parent")
"""


def produce(jobs: int, children: int, threads: int) -> list[str]:
    """Fork that many children, which enqueue that many jobs each, as the parent does; return the ids of all jobs."""
    command = [sys.executable, "-c", PRODUCERS, *map(str, (jobs, children, threads))]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""
    return ended.stdout.split()


@pytest.mark.parametrize(("jobs", "children", "threads"), [(1_000, 8, 1), (200, 3, 4)])
def test_forked_producers_make_distinct_jobs(
    jobs: int, children: int, threads: int, client: Redis, delayq_settings: Any, processes: Processes
) -> None:
    ids = produce(jobs, children, threads)
    assert len(ids) == len(set(ids)) == jobs * (children + 1)
    stored = {raw_id.hex() for raw_id in client.hkeys(processes.keys("jobs"))}
    # One more job: the parent enqueued it before the fork.
    assert len(stored) == len(ids) + 1
    assert {job.split("-")[0] for job in ids} <= stored
    invariants.check_each_job_is_in_one_place(redis_state.read(client, processes.keys), processes.keys)


@pytest.mark.parametrize("use", ["make", "connect"])
def test_fork_during_first_use_gives_parent_and_child_their_own_stores(
    use: str, client: Redis, delayq_settings: Any, processes: Processes
) -> None:
    command = [sys.executable, "-W", "ignore", "-c", INTERRUPTED, use]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False)
    assert ended.returncode == 0, ended.stderr
    assert client.hlen(processes.keys("jobs")) == 2


def test_forks_inside_tasks_neither_repeat_nor_end_jobs(processes: Processes) -> None:
    processes.configure(TASK_MODULES=("tests.sample_app.forking_tasks",), LEASE=3)
    dispatcher, worker = processes.dispatcher(), processes.worker()
    beside = [forking_tasks.slow.enqueue() for _ in range(4)]
    jobs = [forking_tasks.fork.enqueue(how) for how in ("exit", "enqueue", "kill")]
    processes.until_gone([*jobs, *beside])
    runs = processes.until_runs(8)
    # A child enqueued one more job, which runs like any other.
    [born] = [run for run in runs if run.get("how") == "from a child"]
    assert sorted(run["id"] for run in runs if run != born) == sorted(job.id for job in [*jobs, *beside])
    assert {run["attempt"] for run in runs} == {1}
    assert sorted(event["id"] for event in processes.events("end")) == sorted(job.id for job in jobs)
    assert worker.end() == dispatcher.end() == 0
    assert "lease" not in worker.output + dispatcher.output
