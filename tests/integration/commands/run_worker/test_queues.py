"""Queues of run_worker by patterns and exclusions: what processes print, report and run."""

from django_delayq import enqueue_many, get_store
from tests.integration.commands.run_worker.runs import values
from tests.sample_app import tasks
from tests.subprocesses import Processes


def test_drain_runs_jobs_of_matching_queues_only_best_rank_first(processes: Processes) -> None:
    names = ("mail.a", "mail.b", "mail.slow", "bulk")
    enqueue_many([tasks.record.using(queue=name, priority=n % 5).job(n) for n in range(40) for name in names])
    assert processes.worker("--queues", "mail*,-*.slow", "--concurrency", 1, "--drain").wait() == 0
    run = values(processes)
    assert [n % 5 for n in run] == sorted((n % 5 for n in range(40) for _ in range(2)), reverse=True)
    assert {each["queue"] for each in processes.runs()} == {"mail.a", "mail.b"}


def test_drain_runs_what_becomes_due_in_a_queue_that_is_not_excluded(processes: Processes) -> None:
    jobs = [tasks.record.using(queue=name).after(0.01).enqueue(name) for name in ("bulk", "mail")]
    processes.dispatcher()
    for job in jobs:
        processes.until_state(job, "ready")
    assert processes.worker("--queues=-bulk", "--drain").wait() == 0
    assert values(processes) == ["mail"]


def test_it_prints_and_reports_the_list_as_it_was_given(processes: Processes) -> None:
    worker = processes.start("run_worker", "--queues=-slow, mail%2A*", PYTHONUNBUFFERED="")
    processes.until(
        lambda: f"Worker {worker.pid} serves -slow, mail%2A*, best rank first, at" in worker.output,
        what="its first line",
    )
    [report] = processes.until(
        lambda: [each for each in get_store().snapshot().processes if each.name], what="the worker to report"
    )
    assert report.queues == ("-slow", "mail%2A*")
    assert report.serves("mail*.new") and not report.serves("mail.new") and not report.serves("slow")


def test_workers_of_a_supervisor_serve_the_list(processes: Processes) -> None:
    processes.start("run_worker", "--processes=2", "--queues=-slow,-bulk*")
    processes.until(lambda: len(get_store().snapshot().processes) == 2, what="two workers")
    left = [tasks.record.using(queue=name).enqueue(name) for name in ("slow", "bulk.new")]
    jobs = [tasks.record.using(queue=f"new {n}").enqueue(n) for n in range(8)]
    processes.until_gone(jobs)
    assert {job.refresh().state for job in left} == {"ready"}


def test_workers_of_patterns_and_of_all_queues_run_everything_between_them(processes: Processes) -> None:
    processes.configure(SHARDS=3)
    filtered = [processes.worker("--queues", pattern) for pattern in ("mail*", "reports*,-reports.slow")]
    every = processes.worker()
    for worker in (*filtered, every):
        processes.until_known(worker)
    names = ("mail", "mail.new", "reports", "reports.slow", "bulk", "new")
    for n in range(4):
        # One after the other: each one finds idle workers that wait for a notification.
        processes.until_gone([tasks.record.using(queue=name).enqueue(name, n) for name in names])
    every.end()
    processes.until_gone([tasks.record.using(queue=name).enqueue(name, 4) for name in ("mail", "mail.new", "reports")])
    queues = [{run["queue"] for run in processes.runs() if run["pid"] == worker.pid} for worker in filtered]
    assert queues == [{"mail", "mail.new"}, {"reports"}]
