"""Queues of run_worker by patterns, exclusions and weights: what processes print, report and run."""

from django_delayq import enqueue_many, get_store
from django_delayq.worker.claiming.queue_weights import MAX_BATCH
from tests.integration.commands.run_worker.runs import values
from tests.sample_app import tasks
from tests.shares import furthest, while_all_have_jobs
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


def test_drain_runs_the_jobs_of_weighted_queues_in_their_shares(processes: Processes) -> None:
    shares = {"mail": 6, "bulk": 1}
    enqueue_many([tasks.record.using(queue=name).job(n) for name in shares for n in range(250)])
    left = tasks.record.using(queue="other").enqueue(0)
    assert processes.worker("--weights", "mail=6,bulk=1", "--concurrency", 1, "--drain").wait() == 0
    # One thread runs the jobs in the order of the claims.
    order = [each["queue"] for each in processes.runs()]
    assert furthest(while_all_have_jobs(order, shares), shares, window=100) <= MAX_BATCH
    assert (order.count("mail"), order.count("bulk"), left.refresh().state) == (250, 250, "ready")


def test_it_prints_and_reports_weights(processes: Processes) -> None:
    worker = processes.start("run_worker", "--weights=Größe=6, a%3Db=1", PYTHONUNBUFFERED="")
    processes.until(
        lambda: f"Worker {worker.pid} serves Größe=6, a=b=1, in these shares, at" in worker.output,
        what="its first line",
    )
    [report] = processes.until(
        lambda: [each for each in get_store().snapshot().processes if each.name], what="the worker to report"
    )
    assert (report.queues, report.weights) == (("Größe", "a=b"), (6, 1))
    assert report.serves("Größe") and not report.serves("other")


def test_workers_of_a_supervisor_have_the_weights(processes: Processes) -> None:
    processes.start("run_worker", "--processes=2", "--weights=mail=6,bulk=1")
    reports = processes.until(
        lambda: [each for each in get_store().snapshot().processes if each.name][1:], what="two workers to report"
    )
    assert {each.weights for each in reports} == {(6, 1)}
    processes.until_gone([tasks.record.using(queue=name).enqueue(name) for name in ("mail", "bulk") * 4])


def test_a_worker_of_weighted_queues_that_is_stopped_loses_and_repeats_nothing(processes: Processes) -> None:
    jobs = enqueue_many([tasks.record.using(queue=name).job(name, n) for name in ("mail", "bulk") for n in range(400)])
    worker = processes.worker("--weights", "mail=6,bulk=1", "--concurrency", 2)
    processes.until_runs(100)
    assert worker.end() == 0
    processes.worker("--weights", "bulk=3,mail=1")
    processes.until_gone(jobs)
    runs = processes.runs()
    assert sorted(run["id"] for run in runs) == sorted(job.id for job in jobs)
    assert {run["attempt"] for run in runs} == {1}


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
