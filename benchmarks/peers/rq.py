"""RQ: a job is a hash, a queue a list; by default a worker forks for each job."""

import os
import sys

from redis import Redis
from rq import Queue

from benchmarks.peer_runtime import work

NAME = "RQ"
CONFIGURATIONS = {
    "default": "rq worker: a fork for each job, log lines",
    "tuned": "SimpleWorker, results not kept, no log lines of jobs",
}
_ONE = "one job at a time in a worker"
UNSUPPORTED = {"waits_threads": _ONE, "waits_asyncio": _ONE}
WAIT_CONFIGURATIONS: dict[str, str] = {}
TUNED = os.environ["BENCH_CONFIGURATION"] == "tuned"

queue = Queue(connection=Redis.from_url(os.environ["BENCH_URL"]))
OPTIONS = {"result_ttl": 0} if TUNED else {}


def send(task: str, number: int, at_us: int | None) -> None:
    """Enqueue one job."""
    args = (work.TASKS[task], number, *work.PAYLOAD)
    if at_us is None:
        queue.enqueue(*args, **OPTIONS)
    else:
        queue.enqueue_at(work.to_datetime(at_us), *args, **OPTIONS)


def send_many(task: str, jobs: list[tuple[int, int | None]]) -> None:
    """Enqueue jobs in bulk; delayed ones one at a time, for lack of a bulk call."""
    if jobs[0][1] is not None:
        for number, at_us in jobs:
            send(task, number, at_us)
        return
    for first in range(0, len(jobs), 500):
        batch = jobs[first : first + 500]
        prepared = [Queue.prepare_data(work.TASKS[task], (number, *work.PAYLOAD), **OPTIONS) for number, _ in batch]
        queue.enqueue_many(prepared)


def workers(processes: int, concurrency: int | None) -> list[list[str]]:
    """Return the commands; one of the workers runs the scheduler too."""
    url = ["--url", os.environ["BENCH_URL"]]
    rq = os.path.join(os.path.dirname(sys.executable), "rq")
    options = ["--worker-class", "rq.SimpleWorker", "--disable-job-desc-logging", "--quiet"] if TUNED else []
    return [[rq, "worker", *url, "--with-scheduler", *options] for _ in range(processes)]
