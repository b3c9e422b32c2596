"""The systems that run the project: what 8 at once are, what a new user has and what is tuned."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """How a system runs the project. Texts of the page; `settings.py` and `peers/` have the code."""

    at_once: str
    new_user: str
    tuned: str
    #: How a view enqueues.
    on_commit: str


#: System -> how it runs the project. Tuned ones also keep their database connections (CONN_MAX_AGE None).
SYSTEMS = {
    "delayq": System(
        at_once="8 threads",
        new_user="run_worker, run_dispatcher; up to ten log lines of jobs a second",
        tuned="log level WARNING",
        on_commit="`enqueue()`",
    ),
    "celery": System(
        at_once="8 threads",
        new_user="`--pool threads --concurrency 8`",
        tuned="CELERY_DB_REUSE_MAX, prefetch multiplier 128, results ignored, no gossip, mingle, heartbeat or events",
        on_commit="`delay_on_commit()`",
    ),
    "rq": System(
        at_once="8 processes",
        new_user="django-rq, 8 × rqworker: a fork for each job, log lines",
        tuned="SimpleWorker, results not kept, no log lines",
        on_commit="`enqueue()`, which waits for the commit",
    ),
    "huey": System(
        at_once="8 threads",
        new_user="djhuey, run_huey with 8 workers: log lines for each job",
        tuned="results off, no periodic tasks, no health check, `--quiet`",
        on_commit="`on_commit_task`",
    ),
    "dramatiq": System(
        at_once="8 threads",
        new_user="django-dramatiq, rundramatiq with its default middleware (each message is a database row), without "
        "Prometheus",
        tuned="only DbConnectionsMiddleware, prefetch 1,000, worker timeout 10 ms",
        on_commit="`transaction.on_commit()`",
    ),
    "django_q2": System(
        at_once="8 processes",
        new_user="qcluster: results kept in the database, log lines",
        tuned="no results, no recycling, a queue of 1,000, log level WARNING",
        on_commit="`transaction.on_commit()`",
    ),
}
