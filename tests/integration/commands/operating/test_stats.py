"""What `delayq_stats` shows of running jobs and of processes."""

from typing import Any

import pytest

from django_delayq import JobHandle, enqueue_many, get_store
from django_delayq.job.job import Claim
from django_delayq.job.progress import Progress
from django_delayq.metrics import MetricsBuffer
from django_delayq.store.claims import Claims
from django_delayq.store.process_reports import ProcessReports
from django_delayq.testing import DelayQ
from tests.integration.commands.operating.printed import read, run
from tests.sample_app import tasks


@pytest.fixture
def worker(delayq: DelayQ) -> Claims:
    """A worker that claims jobs and does not run them."""
    return Claims(get_store().shards[0])


def claim(worker: Claims, number: int) -> list[Claim]:
    """Claim so many jobs of the queue `mail`."""
    claims: list[Claim] = []
    while len(claims) < number:
        request = worker.prepare(queues=["mail"], want=number - len(claims), worker_name="web1:4411")
        claims += worker.settle_and_claim(request).claims
    return claims


def report(code: bytes, name: str, **status: Any) -> None:
    """Report as a worker does every 15 s."""
    ProcessReports(get_store().shards[0]).report(code, "worker", {"name": name, "slots": 8, **status}, {})


def lines_of(head: str) -> list[list[str]]:
    """Return the cells of the table whose first column has this head, without the empty ones."""
    lines = run("delayq_stats").splitlines()
    [first] = [number for number, line in enumerate(lines) if line.startswith(f"{head}  ")]
    table = lines[first:]
    return [line.split() for line in table[1 : table.index("") if "" in table else None]]


def mail_job(**options: Any) -> JobHandle:
    return tasks.noop.using(queue="mail", **options).enqueue()


def test_a_lost_process_and_a_quiet_one_are_marked(delayq: DelayQ) -> None:
    report(b"the lost", "web1:1", quiet=True, running={"mail": 3})
    delayq.advance(minutes=2)
    report(b"the calm", "web2:2", quiet=True)
    report(b"the live", "web3:3", running={"mail": 2, "bulk": 1})
    facts = {each["name"]: (each["lost"], each["quiet"], each["busy"]) for each in read("delayq_stats")["processes"]}
    assert facts == {"web1:1": (True, True, 3), "web2:2": (False, True, 0), "web3:3": (False, False, 3)}
    shown = {cells[1]: [cell for cell in cells[2:] if cell.isalpha() or "/" in cell] for cells in lines_of("process")}
    for cells in shown.values():
        # The unit of the time since it was seen.
        assert cells.pop() == "ago" and cells.pop() in ("ms", "s", "min")
    assert shown == {"web1:1": ["lost", "3/8"], "web2:2": ["quiet", "0/8"], "web3:3": ["3/8"]}


def test_the_running_jobs_of_a_queue_are_counted_by_their_leases(worker: Claims) -> None:
    for _ in range(3):
        mail_job()
    claim(worker, 2)
    # A report says what ran when it was sent.
    report(b"the live", "web1:4411", running={"mail": 7})
    facts = read("delayq_stats")
    assert (facts["running"], facts["queues"]["mail"]["running"], facts["queues"]["mail"]["ready"]) == (2, 2, 1)


def test_of_very_many_running_jobs_the_reports_of_live_workers_count(delayq: DelayQ, worker: Claims) -> None:
    report(b"the lost", "web1:1", running={"mail": 99})
    delayq.advance(minutes=2)
    report(b"the live", "web2:2", running={"mail": 247})
    enqueue_many([tasks.noop.using(queue="mail").job(number) for number in range(251)])
    claim(worker, 250)
    assert read("delayq_stats")["queues"]["mail"]["running"] == 250
    claim(worker, 1)
    assert read("delayq_stats")["queues"]["mail"]["running"] == 247


def test_a_running_job_has_its_worker_its_progress_and_whether_it_stops(worker: Claims) -> None:
    job, silent = mail_job(), mail_job()
    leases = {each.id: each.lease for each in claim(worker, 2)}
    worker.heartbeat([leases[job.id]], (), {leases[job.id]: Progress(0.4, "2,000 of 5,000")})
    assert job.stop()
    facts = {each["id"]: each for each in read("delayq_stats")["jobs"]}
    assert {name: facts[job.id][name] for name in ("worker", "attempt", "progress", "note", "stopping")} == {
        **{"worker": "web1:4411", "attempt": 1, "progress": 0.4},
        **{"note": "2,000 of 5,000", "stopping": True},
    }
    assert (facts[silent.id]["progress"], facts[silent.id]["stopping"]) == (None, False)
    [line] = [each for each in run("delayq_stats").splitlines() if each.startswith(job.id)]
    assert line.endswith("web1:4411  stopping [########            ]  40% 2,000 of 5,000")
    [line] = [each for each in run("delayq_stats").splitlines() if each.startswith(silent.id)]
    assert line.endswith("web1:4411")


def test_failed_attempts_are_not_called_failed_jobs(delayq: DelayQ) -> None:
    mail_job()
    metrics = MetricsBuffer()
    for name in ("retried", "retried", "dead"):
        metrics.count_attempt(name, queue="mail", task="t")
    ProcessReports(get_store().shards[0]).deregister(b"8 bytes.", metrics.take())
    facts = read("delayq_stats")
    assert facts["failed"] == 0 and facts["queues"]["mail"]["failed_attempts_last_hour"] == 3
    [mail] = lines_of("queue")
    assert mail[-1] == "3"
    assert [line for line in run("delayq_stats").splitlines() if line.endswith("  done/h  failed attempts/h")]
