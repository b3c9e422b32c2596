"""queue() and queues(): pause, resume and counts of the queues of a store."""

from datetime import datetime, timedelta
from time import monotonic
from typing import Any

import pytest

from django_delayq import jobs, queue, queues
from django_delayq.clock import moment
from django_delayq.exceptions import DelayTypeError, DelayValueError, InvalidMoment, UnknownQueue
from django_delayq.store.claims import Claims
from django_delayq.store.queries.lookup import Lookup
from django_delayq.store.store import get_store
from django_delayq.testing import DelayQ
from tests.sample_app import tasks


def test_queues_are_those_of_redis_and_of_the_settings(delayq_settings: Any, redis_url: str) -> None:
    delayq_settings.DELAYQ = {"REDIS": redis_url, "ON_COMMIT": False}
    tasks.noop.using(queue="old").after(hours=1).enqueue()
    queue("paused").pause()
    delayq_settings.DELAYQ = {"REDIS": redis_url, "QUEUES": {"mail": {}}, "ON_COMMIT": False}
    assert [each.name for each in queues()] == ["mail", "old", "paused"]
    assert queue("old").counts()["scheduled"] == 1
    with pytest.raises(UnknownQueue, match="'mial' is not declared"):
        queue("mial")


@pytest.mark.parametrize("shards", [1, 3])
def test_a_queue_is_paused_and_resumed_on_every_shard(delayq_settings: Any, redis_url: str, shards: int) -> None:
    delayq_settings.DELAYQ = {"REDIS": redis_url, "SHARDS": shards}
    assert queue("mail").pause(by="ann")
    assert not queue("mail").pause()
    stored = [get_store().dashboard(shard).snapshot().queues["mail"].paused for shard in range(shards)]
    assert [pause and pause.by for pause in stored] == ["ann"] * shards
    assert queue("mail").resume()
    assert not queue("mail").resume()
    assert queue("mail").paused is None


@pytest.mark.parametrize("kind", [int, timedelta, datetime])
def test_a_pause_ends_at_its_time(delayq: DelayQ, kind: type) -> None:
    tasks.noop.using(queue="mail").enqueue()
    hour = timedelta(hours=1)
    until = {int: 3600, timedelta: hour, datetime: delayq.now + hour}[kind]
    with delayq._clock.frozen():
        assert queue("mail").pause(until=until)
        paused = queue("mail").paused
    assert paused is not None
    assert paused.until_us is not None
    assert abs(moment(paused.until_us) - (delayq.now + hour)) < timedelta(seconds=5)
    assert delayq.run_due() == []
    delayq.advance(minutes=59, run=True)
    assert delayq.ran == []
    [ran] = delayq.advance(minutes=2, run=True)
    assert ran.queue == "mail"
    assert queue("mail").paused is None


def test_advance_without_a_run_ends_a_pause_too(delayq: DelayQ) -> None:
    tasks.noop.using(queue="mail").enqueue()
    queue("mail").pause(until=60)
    delayq.advance(minutes=2)
    assert len(delayq.run_due()) == 1


@pytest.mark.parametrize(
    ("until", "error", "text"),
    [
        (0, InvalidMoment, "until must be later than now"),
        (-1, DelayValueError, "until must not be negative"),
        ("tomorrow", DelayTypeError, "until must be a number of seconds .*, got str; for a date and time use an aware"),
        (datetime(2030, 1, 1), InvalidMoment, "until must be an aware datetime, got a naive one"),
        (moment(0), InvalidMoment, "until must be later than now"),
    ],
)
def test_an_end_that_makes_no_sense_is_refused(delayq: DelayQ, until: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        queue("mail").pause(until=until)
    assert queue("mail").paused is None


@pytest.mark.parametrize("by", [5, "", None, b"ann"])
def test_who_pauses_a_queue_is_a_text(delayq: DelayQ, by: Any) -> None:
    with pytest.raises(TypeError, match=r"^by must be a text that names who pauses the queue, got .*; leave it out"):
        queue("mail").pause(by=by)
    assert queue("mail").paused is None


def test_counts_are_by_state(delayq: DelayQ) -> None:
    for name in ("mail", "other"):
        tasks.fail.using(queue=name).enqueue("x")
    delayq.drain(errors="retry")
    tasks.noop.using(queue="mail").after(hours=1).enqueue()
    for _ in range(3):
        tasks.noop.using(queue="mail").enqueue()
    worker = Claims(get_store().shards[0])
    worker.settle_and_claim(worker.prepare(queues=["mail"], want=1))
    counts = queue("mail").counts()
    oldest = counts.pop("oldest")  # type: ignore[misc]
    assert counts == {"scheduled": 1, "ready": 2, "running": 1, "failed": 1, "parked": 0}
    assert abs(oldest - delayq.now) < timedelta(seconds=5)
    assert queue("nothing").counts()["oldest"] is None


def test_the_jobs_of_a_queue(delayq: DelayQ) -> None:
    for name in ("mail", "other"):
        tasks.noop.using(queue=name).after(hours=1).enqueue(name)
    assert [job.job.args for job in queue("mail").jobs(state="scheduled") if job.job] == [["mail"]]
    assert queue("mail").jobs(task="noop").cancel() == 1
    assert jobs().count() == 1


def test_the_queues_of_one_loop_share_a_read(delayq: DelayQ, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b", "c"):
        tasks.noop.using(queue=name).enqueue(name)
    read, reads = Lookup.read_page, []

    def read_page(self: Lookup, *args: Any, **options: Any) -> Any:
        reads.append(args)
        return read(self, *args, **options)

    monkeypatch.setattr(Lookup, "read_page", read_page)
    # What was read a second ago is read again.
    now = monotonic()
    monkeypatch.setattr("django_delayq.control.queues.monotonic", lambda: now)
    found = {each.name: each for each in queues()}
    assert all(found[name].counts()["ready"] == 1 for name in ("a", "b", "c"))
    once = len(reads)
    assert once == 2, "running and failed jobs"
    delayq.drain()
    reads.clear()
    assert found["b"].counts()["ready"] == 0
    assert found["c"].counts()["ready"] == 0
    assert len(reads) == once
    assert found["a"] == queue("a")


@pytest.mark.parametrize("change", ["jobs", "pause", "resume", "a second later"])
def test_counts_are_read_again_after_a_change(delayq: DelayQ, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    for name in ("a", "b"):
        tasks.noop.using(queue=name).after(60).enqueue(name)
    first, second = [each for each in queues() if each.name in ("a", "b")]
    assert first.counts()["scheduled"] == 1
    if change == "jobs":
        assert first.jobs().cancel() == second.jobs().cancel() == 1
    else:
        queue("b").jobs().cancel()
    if change == "a second later":
        later = monotonic() + 1.1
        monkeypatch.setattr("django_delayq.control.queues.monotonic", lambda: later)
    elif change != "jobs":
        getattr(first, change)()
    assert second.counts()["scheduled"] == 0
