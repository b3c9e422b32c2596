"""What the commands show of waiting jobs: expiry, what they wait for, runs that were no attempts, context and key."""

import re
from datetime import datetime, timedelta
from typing import Any

import pytest
import time_machine

from django_delayq import JobHandle, RetryPolicy, delayed_task, get_store, queue
from django_delayq.display.arguments import DOTS
from django_delayq.display.retry import retry_facts
from django_delayq.exceptions import KeyHeld
from django_delayq.job.attempts import AttemptHistory
from django_delayq.job.ids import from_text
from django_delayq.metrics import MetricsBuffer
from django_delayq.store.claims import Claims
from django_delayq.store.process_reports import ProcessReports
from django_delayq.testing import DelayQ
from tests.integration.commands.operating.printed import read, run
from tests.sample_app import tasks
from tests.shard_apis import uncounted


class Notes:
    """A middleware whose context has a value that the default of ADMIN["REDACT"] names."""

    def __init__(self, next: Any) -> None:
        self.next = next

    def enqueue(self, job: Any) -> Any:
        job.context.update(tenant="acme", api_token="hidden")
        return self.next.enqueue(job)

    def run(self, job: Any) -> Any:
        return self.next.run(job)


@delayed_task(sensitive=("card",), name="operating.charge", key=lambda card: f"card:{card}")
def charge(card: str) -> None:
    """Charge a card."""


def put_back(handle: JobHandle, change: Any) -> None:
    """Let a worker claim a ready job and put it back without an attempt, with the changed history."""
    worker = Claims(get_store().shards[0])
    place = from_text(handle.id)
    claim = worker.claim_one(place[0], worker_name="w") if place else None
    assert claim is not None
    settlement = uncounted(claim, change(claim.attempts, claim.claimed_us), delay=3_600_000_000)
    assert not worker.settle_and_claim(worker.prepare(queues=(), want=0, settlements=[settlement])).lost


def lines(text: str) -> dict[str, str]:
    """Return the properties that `delayq_jobs ID` prints."""
    return dict(map(str.strip, line.split(maxsplit=1)) for line in text.splitlines())


def test_an_overdue_job_is_marked(delayq: DelayQ) -> None:
    queue("mail").pause()
    # The process that enqueues computes the expiry, and Redis the due time: one clock that stands still is both.
    with time_machine.travel(delayq.now, tick=False):
        never, late = (tasks.noop.using(queue="mail", **options).enqueue() for options in ({}, {"expires": 60}))
    soon = tasks.noop.using(queue="mail", expires=600, on_expiry="dead").enqueue()
    delayq.advance(minutes=2)
    shown = {each["id"]: each for each in read("delayq_jobs")}
    assert [(shown[each.id]["overdue"], bool(shown[each.id]["expires"])) for each in (never, late, soon)] == [
        (False, False),
        (True, True),
        (False, True),
    ]
    marked = [line for line in run("delayq_jobs").splitlines() if line.endswith("  overdue")]
    assert [line.split()[0] for line in marked] == [late.id]
    facts = read("delayq_jobs", late.id)[0]
    assert (facts["overdue"], facts["on_expiry"]) == (True, "drop")
    # The due time of a ready job is known to the millisecond.
    span = datetime.fromisoformat(facts["expires"]) - datetime.fromisoformat(facts["due"])
    assert timedelta(seconds=60) <= span < timedelta(seconds=60.001)
    assert lines(run("delayq_jobs", late.id))["overdue"] == "yes"
    assert lines(run("delayq_jobs", soon.id))["on_expiry"] == "dead"
    assert not {"expires", "overdue", "on_expiry"} & set(lines(run("delayq_jobs", never.id)))


def test_times_in_text_name_their_zone(delayq: DelayQ) -> None:
    job = tasks.noop.using(queue="mail").after(hours=1).enqueue()
    queue("mail").pause(until=3_600)
    due = f"{job.due:%Y-%m-%dT%H:%M:%SZ}"
    assert run("delayq_jobs").split()[2] == due
    stats = run("delayq_stats")
    assert re.match(r"[-0-9]{10}T[:0-9]{8}Z  scheduled 1", stats)
    assert re.search(r"paused by code until [-0-9]{10}T[:0-9]{8}Z ", stats)


def test_a_job_that_waits_for_code_says_for_what_and_since_when(delayq: DelayQ) -> None:
    job, other = tasks.noop.enqueue(), tasks.noop.using(queue="mail").enqueue()
    since = delayq.now
    put_back(job, lambda attempts, now_us: attempts.waited("unknown task", now_us=now_us))
    delayq.advance(minutes=2)
    facts = {each["id"]: each for each in read("delayq_jobs")}
    assert facts[job.id]["waiting_for"] == "unknown task"
    assert abs(datetime.fromisoformat(facts[job.id]["waiting_since"]) - since) < timedelta(minutes=1)
    assert (facts[other.id]["waiting_for"], facts[other.id]["waiting_since"]) == (None, None)
    [line] = [each for each in run("delayq_jobs").splitlines() if "waits for a worker" in each]
    assert line.startswith(job.id) and line.endswith("(unknown task)")
    shown = lines(run("delayq_jobs", job.id))
    assert (shown["waiting_for"], shown["waiting_since"][:4]) == ("unknown task", str(since.year))


def test_the_retry_policy_and_the_time_limits_are_shown(delayq: DelayQ) -> None:
    retry = RetryPolicy(delays=[5, 60, 600], retry_on=KeyHeld, dead_on=ValueError)
    job = tasks.noop.using(retry=retry, timeout=90).enqueue()
    facts = read("delayq_jobs", job.id)[0]
    assert (facts["max_attempts"], facts["timeout"], facts["hard_timeout"]) == (4, 90.0, 100.0)
    assert facts["retry"] == retry_facts(retry)
    shown = lines(run("delayq_jobs", job.id))
    assert shown["retry"] == (
        "up to 4 attempts, after 5 s, 1 min, 10 min; retries only django_delayq.exceptions.KeyHeld; "
        "fails at once on ValueError"
    )
    assert (shown["timeout"], shown["hard_timeout"]) == ("1 min 30 s", "1 min 40 s")


def test_a_job_that_is_tried_forever_says_so(delayq: DelayQ, settings: Any) -> None:
    # The text of a command is in English with any LANGUAGE_CODE.
    settings.LANGUAGE_CODE = "de"
    job = tasks.noop.using(retry=RetryPolicy(max_attempts=None, delays=[0.5])).enqueue()
    assert read("delayq_jobs", job.id)[0]["retry"]["max_attempts"] is None
    shown = lines(run("delayq_jobs", job.id))
    assert shown["retry"] == "tried forever, after 0.5 s each time"
    assert not {"timeout", "hard_timeout", "max_attempts"} & set(shown)


def test_what_was_no_attempt_is_counted(delayq: DelayQ) -> None:
    job = tasks.noop.enqueue()
    assert not {"snoozes", "interruptions"} & set(lines(run("delayq_jobs", job.id)))

    def ended(attempts: AttemptHistory, _: int) -> AttemptHistory:
        return attempts.snoozed().cut_short().cut_short()

    put_back(job, ended)
    facts = read("delayq_jobs", job.id)[0]
    assert (facts["attempts"], facts["snoozes"], facts["interruptions"]) == (0, 1, 2)
    shown = lines(run("delayq_jobs", job.id))
    assert (shown["snoozes"], shown["interruptions"]) == ("1", "2")


def test_the_context_is_shown_as_the_admin_does(delayq: DelayQ, delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "MIDDLEWARE": [f"{__name__}.Notes"]}
    job = tasks.noop.enqueue()
    assert read("delayq_jobs", job.id)[0]["context"] == {"tenant": "acme", "api_token": DOTS}
    assert lines(run("delayq_jobs", job.id))["context"] == f'{{"tenant": "acme", "api_token": "{DOTS}"}}'


def test_a_key_that_is_made_of_hidden_arguments_is_hidden(delayq: DelayQ) -> None:
    job = charge.enqueue("4111")
    assert read("delayq_jobs", job.id)[0]["key"] == DOTS
    assert "4111" not in run("delayq_jobs", job.id) + run("delayq_jobs", "--json")


def test_nothing_that_was_stored_controls_the_terminal(delayq: DelayQ) -> None:
    job = tasks.noop.using(queue="a\x1b[2Jb").enqueue()
    put_back(job, lambda attempts, _: replaced(attempts))
    for command in (("delayq_jobs",), ("delayq_jobs", job.id), ("delayq_stats",)):
        assert "\x1b" not in run(*command)


def replaced(attempts: AttemptHistory) -> AttemptHistory:
    return attempts.add(worker="w\x1b[1m", started_us=1, ended_us=2, ending="failed", error="Bad\x1b[31m: red\x1b[0m")


@pytest.mark.parametrize("name", ["snoozed", "expired", "dropped", "cancelled"])
def test_stats_count_what_is_rare(delayq: DelayQ, name: str) -> None:
    tasks.noop.using(queue="mail").enqueue()
    metrics = MetricsBuffer()
    metrics.count_attempt("done", queue="mail", task="t")
    report(metrics)
    text = run("delayq_stats")
    assert "done 1  retried 0  failed 0  snoozed 0  expired 0  dropped 0  cancelled 0" in text
    assert f"{name}/h" not in text
    for _ in range(3):
        metrics.count_attempt(name, queue="mail", task="t")
    report(metrics)
    text = run("delayq_stats")
    assert f"{name} 3" in text
    heads, mail = (line.split() for line in text.splitlines()[3:5])
    assert (heads[-1], mail[0], mail[-1]) == (f"{name}/h", "mail", "3")
    facts = read("delayq_stats")
    for each in (facts, facts["queues"]["mail"]):
        assert [each[f"{word}_last_hour"] for word in ("done", name)] == [1, 3]


@pytest.mark.parametrize(
    ("status", "minutes", "workers"), [({}, 0, 1), ({"quiet": True}, 0, 0), ({"queues": ["other"]}, 0, 0), ({}, 2, 0)]
)
def test_stats_count_the_live_workers_that_claim_jobs_of_a_queue(
    delayq: DelayQ, status: dict[str, Any], minutes: int, workers: int
) -> None:
    tasks.noop.using(queue="mail").enqueue()
    ProcessReports(get_store().shards[0]).report(b"8 bytes.", "worker", {"name": "web1:4411", **status}, {})
    delayq.advance(minutes=minutes)
    assert read("delayq_stats")["queues"]["mail"]["workers"] == workers
    assert ("no worker" in run("delayq_stats")) == (not workers)
    # A lost worker is still listed, with the time since it was seen.
    assert "web1:4411" in run("delayq_stats")


def report(metrics: MetricsBuffer) -> None:
    """Add what was counted, as a process that ends does."""
    ProcessReports(get_store().shards[0]).deregister(b"8 bytes.", metrics.take())
