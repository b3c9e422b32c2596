"""RQ: a job is a hash, a queue a list; a worker forks for each job unless told otherwise."""

import os
import sys

from redis import Redis
from rq import Queue

from benchmarks.peers import work

NAME = "RQ"
CONFIGURATIONS = {
    "default": "rq worker: a fork for each job",
    "tuned": "SimpleWorker, results not kept, no log lines of jobs",
}
_ONE = "one job at a time in a worker"
CANNOT = {"waits_threads": _ONE, "waits_asyncio": _ONE}
WAITS: dict[str, str] = {}
TUNED = os.environ["BENCH_CONFIGURATION"] == "tuned"

queue = Queue(connection=Redis.from_url(os.environ["BENCH_URL"]))
OPTIONS = {"result_ttl": 0} if TUNED else {}


def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    args = (work.TASKS[task], number, *work.PAYLOAD)
    if at_us is None:
        queue.enqueue(*args, **OPTIONS)
    else:
        queue.enqueue_at(work.moment(at_us), *args, **OPTIONS)


def send_many(task: str, jobs: list[tuple[int, int | None]]) -> None:
    """Enqueue jobs in bulk; delayed ones have no such call."""
    if jobs[0][1] is not None:
        for number, at_us in jobs:
            send(task, number, at_us)
        return
    for first in range(0, len(jobs), 500):
        chunk = jobs[first : first + 500]
        made = [Queue.prepare_data(work.TASKS[task], (number, *work.PAYLOAD), **OPTIONS) for number, _ in chunk]
        queue.enqueue_many(made)


def workers(processes: int, at_once: int | None) -> list[list[str]]:
    """Return the commands; one worker has the scheduler within."""
    url = ["--url", os.environ["BENCH_URL"]]
    rq = os.path.join(os.path.dirname(sys.executable), "rq")
    options = ["--worker-class", "rq.SimpleWorker", "--disable-job-desc-logging"] if TUNED else []
    return [[rq, "worker", *url, "--with-scheduler", "--quiet", *options] for _ in range(processes)]
