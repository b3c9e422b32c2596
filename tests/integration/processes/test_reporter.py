"""Process reporter: what live processes report of themselves, and the metrics of what they ran."""

import fcntl
import gc
import os
import select
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from redis import Redis

from django_delayq import get_store
from django_delayq.exceptions import StoreUnavailable
from django_delayq.job.ending import EndingBuffer, EndingRow
from django_delayq.management.starting import run_services
from django_delayq.metrics import ALL_JOBS, MetricsBuffer, Rows, Stats, queue_dimension, task_dimension
from django_delayq.processes.reporter import ProcessReporter
from django_delayq.processes.service import Runnable, Service
from django_delayq.store.queries.snapshot import Process, Snapshot
from django_delayq.testing.local_redis import LocalRedisServer
from tests.one_by_one import one_by_one
from tests.sample_app import tasks
from tests.subprocesses import Processes

RECORD = "tests.sample_app.tasks.record"


def snapshot() -> Snapshot:
    """Return the shard as it is now."""
    return get_store().dashboard(0).snapshot(tasks=[RECORD])


def reported(kind: str) -> Process | None:
    """Return the process of that kind that sent a report, if one did."""
    return next((process for process in snapshot().processes if process.kind == kind and process.name), None)


def until_reported(processes: Processes, kind: str) -> Process:
    found = processes.until(lambda: reported(kind), what=f"a {kind} to report")
    assert found is not None
    return found


def test_processes_report_and_deregister(processes: Processes, gate: Path) -> None:
    dispatcher, worker = processes.dispatcher(), processes.worker("--queues=mail,default", "--concurrency=3")
    one, other = until_reported(processes, "dispatcher"), until_reported(processes, "worker")
    assert one.name.endswith(f":{dispatcher.pid}")
    assert other.name.endswith(f":{worker.pid}")
    assert (other.queues, other.slots, other.quiet) == (("mail", "default"), 3, False)
    assert min(one.rss, other.rss) > 1_000_000
    assert one.started_us and other.started_us and one.version == other.version == "0.1.0"
    assert (dispatcher.end(), worker.end()) == (0, 0)
    assert snapshot().processes == []


def test_metrics_count_runs_and_failures(processes: Processes) -> None:
    jobs = [tasks.record.using(queue="mail", delay=0.01).enqueue("x") for _ in range(3)]
    failing = tasks.fail.enqueue()
    dispatcher, worker = processes.dispatcher(), processes.worker()
    processes.until_gone(jobs)
    processes.until_state(failing, "scheduled", "dead")
    assert (worker.end(), dispatcher.end()) == (0, 0)
    seen = snapshot()
    whole, mail = seen.hour(ALL_JOBS), seen.hour(queue_dimension("mail"))
    assert (whole.done, mail.done, seen.hour(task_dimension(RECORD)).done) == (3, 3, 3)
    assert whole.retried >= 1
    assert mail.failed == 0
    assert sum(whole.lag) == sum(whole.run) == whole.finished


def test_a_killed_worker_is_lost_and_its_lease_expires(processes: Processes, client: Redis, gate: Path) -> None:
    processes.configure(LEASE=1)
    processes.dispatcher()
    worker = processes.worker()
    until_reported(processes, "worker")
    job = tasks.wait_for.enqueue(str(gate))
    processes.until_state(job, "claimed")
    worker.kill()
    processes.until(lambda: job.refresh().state != "claimed", what="the lease to expire")
    left = reported("worker")
    assert left is not None
    assert left.is_lost(left.seen_us + 21_000_001, lease_us=1_000_000)


def test_a_quiet_worker_takes_no_job_ends_those_it_has_and_can_be_woken(processes: Processes, gate: Path) -> None:
    # A worker learns by a report whether it is quiet.
    processes.configure(TASK_MODULES=["tests.sample_app.task_modules.frequent_reports"])
    processes.worker()
    code = until_reported(processes, "worker").code
    held = tasks.wait_for.enqueue(str(gate))
    processes.until_state(held, "claimed")
    operations = one_by_one()
    assert operations.quiet(code, by="ann")
    processes.until(lambda: (seen := reported("worker")) is not None and seen.quiet, what="the worker to be quiet")
    waiting = tasks.record.enqueue("waits")
    gate.touch()
    processes.until_gone([held])
    other = processes.worker()
    # Another worker takes at once what the quiet one leaves.
    processes.until_gone([waiting])
    assert other.end() == 0
    waiting = tasks.record.enqueue("waits again")
    assert operations.unquiet(code)
    processes.until_gone([waiting])


def test_jobs_of_a_paused_queue_wait_until_it_is_resumed(processes: Processes) -> None:
    processes.worker()
    operations = one_by_one()
    operations.pause("mail", by="ann")
    paused = [tasks.record.using(queue="mail").enqueue(str(number)) for number in range(3)]
    processes.until_gone([tasks.record.enqueue("other")])
    assert [job.refresh().state for job in paused] == ["ready"] * 3
    operations.resume("mail")
    processes.until_gone(paused)


class Reports:
    """Accepts reports; raises at the first."""

    def __init__(self) -> None:
        self.errors: list[Exception] = [StoreUnavailable("away")]
        self.rows: list[Rows] = []
        self.endings: list[EndingRow] = []

    def report(self, code: bytes, kind: str, said: object, rows: Rows, endings: list[EndingRow]) -> bool:
        if self.errors:
            raise self.errors.pop()
        self.rows.append(rows)
        self.endings += endings
        return True


class Source:
    kind, worker_id = "worker", bytes(8)

    def __init__(self) -> None:
        self.metrics, self.endings, self.quiet_wanted = MetricsBuffer(), EndingBuffer(3), False

    def status(self) -> dict[str, object]:
        return {}

    def quiet(self, wanted: bool) -> None:
        self.quiet_wanted = wanted


def test_metrics_that_could_not_be_sent_are_sent_with_the_next_report() -> None:
    reports, source = Reports(), Source()
    reporter = ProcessReporter(reports, source)  # type: ignore[arg-type]
    source.metrics.count_attempt("done", queue="q", task="t")
    with pytest.raises(StoreUnavailable):
        reporter.step()
    source.metrics.count_attempt("done", queue="q", task="t")
    wait = reporter.step()
    assert wait is not None and 0.0 < wait <= 15.0
    assert source.quiet_wanted
    [rows] = reports.rows
    assert Stats.of(rows["q", "t"]).done == 2


def test_of_endings_that_could_not_be_sent_the_newest_are_sent_with_the_next_report() -> None:
    reports, source = Reports(), Source()
    reporter = ProcessReporter(reports, source)  # type: ignore[arg-type]
    ends: list[EndingRow] = [(bytes(12), "t", "q", number, "done", 1, 1, 1, 0, "") for number in range(6)]
    for end in ends[:4]:
        source.endings.add(end)
    with pytest.raises(StoreUnavailable):
        reporter.step()
    for end in ends[4:]:
        source.endings.add(end)
    reporter.step()
    assert reports.endings == ends[3:]


def test_a_process_that_reports_can_be_stopped() -> None:
    events: list[str] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    class Seen(ProcessReporter):
        def start(self) -> None:
            events.append("seen")
            os.kill(os.getpid(), signal.SIGTERM)

        def deregister(self) -> None:
            events.append("left")

    class Sleeper(Runnable):
        def step(self) -> float | None:
            return None if self.stopped else 3_600.0

    # Without a signal handler, the signal ends this test run.
    try:
        run_services([Service(Sleeper(), name="Sleeper")], [Seen(Reports(), Source())])  # type: ignore[arg-type]
    finally:
        gc.unfreeze()
        for number, handler in before.items():
            signal.signal(number, handler)
    assert events == ["seen", "left"]


@pytest.mark.usefixtures("many_open_files")
def test_several_services_run_in_a_process_with_thousands_of_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of many threads has a database connection for each; select() knows 1,024 descriptors only."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    polled = threading.Event()
    lowest, poll = os.pipe, select.poll

    def highest() -> tuple[int, int]:
        ends = lowest()
        high = [fcntl.fcntl(end, fcntl.F_DUPFD_CLOEXEC, 1_100) for end in ends]
        for end in ends:
            os.close(end)
        return high[0], high[1]

    class NotedPoll:
        """A poll object; the one for the end of the process gets a high descriptor."""

        def __init__(self) -> None:
            self._poll = poll()

        def register(self, descriptor: int, events: int) -> None:
            assert descriptor >= 1_100
            self._poll.register(descriptor, events)

        def poll(self, ms: int) -> list[tuple[int, int]]:
            polled.set()
            return self._poll.poll(ms)

    class Waiter(Runnable):
        def step(self) -> None:
            assert polled.wait(30)

    services = [Service(Waiter(), name="Waiter") for _ in range(2)]
    monkeypatch.setattr(select, "poll", NotedPoll)
    monkeypatch.setattr(os, "pipe", highest)
    try:
        run_services(services, [])
    finally:
        gc.unfreeze()
        for number, handler in before.items():
            signal.signal(number, handler)
    assert all(service.ended.is_set() for service in services)


def test_a_frozen_redis_does_not_keep_a_process_from_ending(
    processes: Processes, start_redis: Callable[..., LocalRedisServer]
) -> None:
    server = start_redis()
    processes.configure(REDIS=server.url, GRACE=0)
    assert server.pid
    with server.client() as client:
        worker = processes.start("run_worker")
        processes.until(lambda: client.zcard(processes.keys("workers")), what="the worker to begin")
        os.kill(server.pid, signal.SIGSTOP)
        try:
            assert worker.end() == 0
        finally:
            os.kill(server.pid, signal.SIGCONT)
