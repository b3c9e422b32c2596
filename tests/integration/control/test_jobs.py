"""jobs(): what it finds, what each method changes and returns, and what it refuses."""

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from redis import Redis

from django_delayq import DeadLetterNow, RetryLater, RetryPolicy, delayed_task, enqueue_many, get_store, jobs
from django_delayq.exceptions import DelayValueError, InvalidMoment, StoreUnavailable, UnknownQueue
from django_delayq.store.operations.waiting_jobs import WaitingJobs
from django_delayq.store.queries.lookup import Lookup
from django_delayq.testing import DelayQ
from tests.sample_app import tasks

HOUR = timedelta(hours=1)


@delayed_task(retry=RetryPolicy(max_attempts=1), name="control.test_jobs.refuse")
def refuse(_: str) -> None:
    """Fail for good."""
    raise ValueError("as asked")


@pytest.fixture
def mixed(delayq: DelayQ) -> None:
    """Two failed jobs, three scheduled ones and two ready ones, of two tasks and queues."""
    refuse.using(queue="mail").enqueue("first")
    refuse.enqueue("second")
    delayq.drain(errors="retry")
    for hours in (1, 2, 3):
        tasks.noop.using(queue="mail" if hours < 3 else "bulk").after(hours=hours).enqueue(hours)
    tasks.noop.using(queue="mail").enqueue("ready")
    tasks.record.using(queue="bulk").enqueue("ready")


def args(**filters: Any) -> list[Any]:
    """Return the first argument of each job that matches."""
    return [job.job.args[0] for job in jobs(**filters) if job.job]


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({}, [3, 1, 2, "ready", "ready", "first", "second"]),
        ({"state": "scheduled"}, [3, 1, 2]),
        ({"state": ("ready", "failed")}, ["ready", "ready", "first", "second"]),
        ({"state": "running"}, []),
        ({"queue": "mail"}, [1, 2, "ready", "first"]),
        ({"queue": "nowhere"}, []),
        ({"task": tasks.record}, ["ready"]),
        ({"task": "noop"}, [3, 1, 2, "ready"]),
        ({"task": "control.test_jobs.refuse"}, ["first", "second"]),
        ({"task": "=noop"}, []),
        ({"error": "ValueError"}, ["first", "second"]),
        ({"error": ValueError}, ["first", "second"]),
        ({"error": KeyError}, []),
        ({"due_before": timedelta(hours=2, minutes=1)}, [1, 2, "ready", "ready"]),
        ({"due_before": 60, "queue": "mail"}, ["ready"]),
    ],
)
def test_a_filter_finds_its_jobs(mixed: None, filters: dict[str, Any], found: list[Any]) -> None:
    assert sorted(map(str, args(**filters))) == sorted(map(str, found))
    assert jobs(**filters).count() == len(found)


def test_a_moment_bounds_due_times(mixed: None, delayq: DelayQ) -> None:
    assert args(state="scheduled", due_before=delayq.now + HOUR + timedelta(seconds=1)) == [1]


def test_a_job_is_a_handle_that_was_looked_up(mixed: None) -> None:
    [handle] = jobs(state="scheduled", queue="bulk")
    assert (handle.state, handle.job and handle.job.queue) == ("scheduled", "bulk")
    assert handle.cancel()


def test_a_large_body_is_read_by_the_handle(delayq: DelayQ) -> None:
    tasks.noop.enqueue("x" * 40_000)
    assert [len(text) for text in args()] == [40_000]


def test_cancel_withdraws_waiting_jobs(mixed: None, delayq: DelayQ) -> None:
    assert jobs(queue="mail").cancel() == 3
    assert jobs(queue="mail").cancel() == 0
    assert args(state=("scheduled", "ready")) == [3, "ready"]


def test_reschedule_moves_them_to_one_moment(mixed: None, delayq: DelayQ) -> None:
    moment = delayq.now + timedelta(hours=5)
    assert jobs(task="noop").reschedule(at=moment) == 4
    assert jobs(task="noop").reschedule(at=moment) == 0
    assert {job.due for job in jobs(task="noop")} == {moment}
    assert jobs(state="scheduled", queue="bulk").reschedule(delay=0) == 1
    assert sorted(map(str, args(state="ready"))) == ["3", "ready"]


def test_ready_jobs_keep_their_rank_if_they_are_to_run_now(mixed: None) -> None:
    assert jobs(state=("scheduled", "ready"), queue="mail").reschedule(delay=0) == 2
    # Those that were delayed come first; the ready one counts as unchanged.
    assert args(state="ready", queue="mail") == [1, 2, "ready"]


def test_move_takes_them_to_another_queue(mixed: None) -> None:
    assert jobs(state=("scheduled", "ready")).move("bulk") == 3
    assert jobs().move("bulk") == 0
    assert jobs(queue="bulk").count() == 5


def test_requeue_revives_failed_jobs(mixed: None) -> None:
    assert jobs(state="failed", queue="mail").requeue() == 1
    assert args(state="failed") == ["second"]
    assert jobs(error="ValueError").requeue() == 1
    assert jobs(state="ready", task="refuse").count() == 2


def test_discard_drops_failed_jobs(mixed: None) -> None:
    assert jobs(task="refuse").discard() == 2
    assert jobs().discard() == 0
    assert jobs().count() == 5


def test_more_than_one_batch_is_changed_and_progress_is_told(delayq: DelayQ) -> None:
    enqueue_many([tasks.noop.after(hours=1).job(number) for number in range(600)])
    told: list[tuple[int, int]] = []
    assert jobs().cancel(on_progress=lambda changed, seen: told.append((changed, seen))) == 600
    assert told == [(250, 250), (500, 500), (600, 600)]


@pytest.mark.parametrize("shards", [1, 3])
def test_all_shards_are_read_and_changed(delayq_settings: Any, redis_url: str, shards: int) -> None:
    delayq_settings.DELAYQ = {"REDIS": redis_url, "SHARDS": shards, "ON_COMMIT": False}
    enqueue_many([tasks.noop.after(hours=1).job(number) for number in range(40)])
    assert sorted(args()) == list(range(40))
    assert jobs().reschedule(delay=7200) == 40
    assert jobs(state="scheduled").move("bulk") == 40
    assert jobs(queue="bulk").cancel() == 40


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("change", ["requeue", "discard"])
def test_a_job_that_fails_after_the_call_began_is_left(
    delayq: DelayQ, bounds: Callable[..., None], monkeypatch: pytest.MonkeyPatch, change: str, named: bool
) -> None:
    failed = [refuse.enqueue("first"), refuse.enqueue("second")]
    delayq.run_due(errors="retry")
    third = refuse.after(hours=1).enqueue("third")
    bounds(batch_rows=1)
    monkeypatch.setattr("django_delayq.control.jobs.MAX_BATCH", 1)
    found = jobs(state="failed", ids=[job.id for job in (*failed, third)] if named else None)

    def fail_third(changed: int, seen: int) -> None:
        if seen == 1:
            runs = delayq.advance(hours=1, run=True, errors="retry")
            assert third.id in [run.id for run in runs if run.dead]

    assert getattr(found, change)(on_progress=fail_third) == 2
    assert third.refresh().state == "dead"


def test_an_interrupted_call_is_repeated(delayq: DelayQ, monkeypatch: pytest.MonkeyPatch) -> None:
    enqueue_many([tasks.noop.after(hours=1).job(number) for number in range(600)])
    cancel, calls = WaitingJobs.cancel, []

    def loses_a_reply(self: WaitingJobs, batch: Any) -> Any:
        calls.append(cancel(self, batch))
        if len(calls) == 2:
            raise StoreUnavailable("gone away")
        return calls[-1]

    monkeypatch.setattr(WaitingJobs, "cancel", loses_a_reply)
    with pytest.raises(StoreUnavailable):
        jobs().cancel()
    assert jobs().cancel() == 100
    assert jobs().count() == 0


def test_what_cannot_be_changed_is_logged_once(delayq: DelayQ, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        refuse.using(key="k").enqueue("x")
        delayq.drain(errors="retry")
    refuse.using(key="k").after(hours=1).enqueue("holds")
    with caplog.at_level(logging.WARNING, "django_delayq"):
        assert jobs().requeue() == 0
    assert [record.getMessage()[:50] for record in caplog.records[-1:]] == [
        "3 jobs were left as they are: the key of this dead"
    ]


@pytest.mark.parametrize(
    ("filters", "error", "text"),
    [
        ({"state": "faled"}, ValueError, "state must be one of scheduled, ready, running, failed, got 'faled'"),
        ({"queue": ""}, TypeError, "queue must be the name of a queue"),
        ({"queue": 5}, TypeError, "queue must be the name of a queue"),
        ({"task": 5}, TypeError, "task must be a task or its name, got 5; leave it out for all"),
        ({"task": ValueError}, TypeError, "task must be a task or its name, got <class"),
        ({"error": 5}, TypeError, "error must be a class of exceptions or its name, got 5; leave it out for all"),
        ({"error": int}, TypeError, "error must be a class of exceptions or its name, got <class 'int'>"),
        ({"error": ValueError("x")}, TypeError, "error must be a class of exceptions or its name, got ValueError"),
        ({"state": 5}, TypeError, "state must be one of scheduled, ready, running, failed, or a list of them, got 5"),
        ({"state": b"ready"}, TypeError, "state must be one of .*, or a list of them, got b'ready'"),
        ({"state": ["ready", 5]}, ValueError, "state must be one of .*, got 5"),
        ({"state": []}, ValueError, "state must name at least one of scheduled, .*; leave it out for all"),
        ({"ids": 5}, TypeError, "ids must be a list of the ids of jobs, got 5"),
        ({"ids": "abc"}, TypeError, r"ids must be a list of the ids of jobs, got 'abc'; write ids=\['abc'\]"),
        ({"ids": b"abc"}, TypeError, "ids must be a list of the ids of jobs, got b'abc'"),
        ({"ids": ["abc"]}, ValueError, "'abc' in ids is not the id of a job; copy it from handle.id"),
        ({"due_before": "soon"}, TypeError, "due_before must be a number of seconds"),
        ({"due_before": timezone.now().replace(tzinfo=None)}, InvalidMoment, "due_before must be an aware datetime"),
    ],
)
def test_a_filter_that_makes_no_sense_is_refused(
    delayq: DelayQ, filters: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=f"^{text}"):
        jobs(**filters)


@pytest.mark.parametrize(
    ("change", "error", "text"),
    [
        (lambda: jobs(state="failed").cancel(), ValueError, r"cancel\(\) is for jobs that wait; discard"),
        (lambda: jobs(state="running").move("bulk"), ValueError, r"move\(\) is for jobs that wait; got state=running"),
        (lambda: jobs(state="ready").requeue(), ValueError, r"requeue\(\) is for failed jobs; reschedule"),
        (lambda: jobs(state="ready").discard(), ValueError, r"discard\(\) is for failed jobs; cancel"),
        (lambda: jobs().reschedule(), TypeError, r"needs delay= .* or at="),
        (lambda: jobs().reschedule(delay=1, at=timezone.now()), TypeError, r"needs delay= .* or at="),
        (lambda: jobs().requeue(spread=0), DelayValueError, "spread must be longer than 0"),
        (lambda: jobs().requeue(spread=timedelta(days=3_651)), DelayValueError, r"at most MAX_DELAY \(3,650 days\)"),
        (lambda: jobs().requeue(spread=-1), DelayValueError, "spread must not be negative"),
        (lambda: jobs().move(""), ValueError, "queue"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(
    mixed: None, change: Callable[[], object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        change()
    assert jobs().count() == 7


def test_an_undeclared_queue_is_no_target(delayq_settings: Any, redis_url: str) -> None:
    delayq_settings.DELAYQ = {"REDIS": redis_url, "QUEUES": {"mail": {}}}
    with pytest.raises(UnknownQueue, match="did you mean"):
        jobs().move("mial")
    assert get_store().stored_shard_count() == 0


def test_spreads_of_two_filters_are_apart(mixed: None, delayq: DelayQ, bounds: Callable[..., None]) -> None:
    """An unfinished spread of one queue takes no places from that of another."""
    for number in range(3):
        refuse.using(queue="mail").enqueue(f"{number}")
    delayq.run_due(errors="retry")
    bounds(batch_rows=1)

    def end(changed: int, seen: int) -> None:
        raise SystemExit

    with pytest.raises(SystemExit):
        jobs(state="failed", queue="mail").requeue(spread=600, on_progress=end)
    assert jobs(state="failed", queue="default").requeue(spread=600) == 1
    [other] = jobs(queue="default")
    assert other.due is not None
    assert abs(other.due - delayq.now - timedelta(minutes=5)) < timedelta(seconds=5)


class Outer:
    class Nested(Exception):
        """Its class path has several parts."""


class Later(RetryLater):
    """A subclass of the package's own."""


RAISED = {
    "nested": Outer.Nested("x"),
    "group": ExceptionGroup("several", [ValueError("x"), KeyError("y")]),
    "dead": DeadLetterNow("now"),
    "later": Later(60),
    "empty": ValueError(),
    "lines": ValueError("first\nKeyError: second"),
}


@delayed_task(retry=RetryPolicy(max_attempts=1), name="control.test_jobs.raise_one")
def raise_one(name: str) -> None:
    """Raise one of them."""
    raise RAISED[name]


@pytest.mark.parametrize(
    ("error", "found"),
    [
        (Outer.Nested, ["nested"]),
        ("Nested", ["nested"]),
        ("Outer.Nested", ["nested"]),
        (ExceptionGroup, ["group"]),
        ("ExceptionGroup", ["group"]),
        (DeadLetterNow, ["dead"]),
        (Later, ["later"]),
        (RetryLater, []),
        (ValueError, ["empty", "lines"]),
        ("builtins.ValueError", ["empty", "lines"]),
        (KeyError, []),
        (Exception, []),
    ],
)
def test_the_class_of_any_exception_is_found(delayq: DelayQ, error: Any, found: list[str]) -> None:
    for name in RAISED:
        raise_one.enqueue(name)
    delayq.run_due(errors="retry")
    assert sorted(args(error=error)) == found


def test_an_error_names_the_state_as_the_user_wrote_it() -> None:
    with pytest.raises(ValueError, match="got state=running and failed$"):
        jobs(state=["running", "failed"]).cancel()
    with pytest.raises(ValueError, match="state must be one of scheduled, ready, running, failed, got 'dead'"):
        jobs(state="dead")


@pytest.mark.parametrize("flushed", [False, True])
def test_ids_are_read_in_batches(mixed: None, flushed: bool, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Never one by one; also if the server has lost its scripts."""
    gone = tasks.noop.enqueue("gone")
    gone.cancel()
    found = {row.id: (row.state, row.task, row.queue, row.due_us) for row in jobs().rows()}
    if flushed:
        with Redis.from_url(redis_url) as client:
            client.script_flush()
    monkeypatch.delattr(Lookup, "find")
    named = jobs(ids=[*found, gone.id])
    assert {row.id: (row.state, row.task, row.queue, row.due_us) for row in named.rows()} == found
    assert named.count() == len(found) == 7
