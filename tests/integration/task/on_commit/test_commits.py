"""Commits: jobs are sent after the commit of every connection, in batches; a rollback drops them."""

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections, transaction
from redis import Redis

from django_delayq import enqueue_many, get_job, runtime
from django_delayq.clock import ServerClock
from django_delayq.conf.settings import drop_config
from django_delayq.exceptions import DelayQError
from django_delayq.job.job import State
from django_delayq.task.handle import JobHandle
from tests.integration.task.on_commit.commits import BOTH, Wrong, real_commits, sent
from tests.sample_app.tasks import noop, record

pytestmark = pytest.mark.usefixtures("delayq_settings")


@real_commits
def test_a_job_is_sent_after_the_commit(client: Redis) -> None:
    with transaction.atomic():
        handle = noop.enqueue(1)
        assert (handle.state, client.dbsize()) == (State.UNSENT, 0)
        assert get_job(handle.id) is None
    assert handle.state is State.READY
    found = get_job(handle.id)
    assert found and found.job and found.job.args == [1]


@real_commits
def test_outside_transactions_it_is_sent_at_once() -> None:
    connections["default"].ensure_connection()
    assert noop.enqueue().state is State.READY


@real_commits
def test_a_rollback_drops_the_job(client: Redis) -> None:
    with pytest.raises(Wrong), transaction.atomic():
        handle = noop.using(key="k").enqueue()
        raise Wrong
    assert client.dbsize() == 0 and handle.state is State.UNSENT
    with transaction.atomic():
        after = noop.enqueue()
    assert after.state is State.READY and sent() == 1, "a dropped job came with the next commit"


@real_commits
def test_a_forced_rollback_drops_the_job(client: Redis) -> None:
    with transaction.atomic():
        noop.enqueue()
        transaction.set_rollback(True)
    assert client.dbsize() == 0


@real_commits
def test_the_rollback_of_a_savepoint_drops_its_jobs_only(batches: Callable[[], int]) -> None:
    with transaction.atomic():
        first = noop.enqueue(1)
        with pytest.raises(Wrong), transaction.atomic():
            inner = noop.enqueue(2)
            with transaction.atomic():
                innermost = noop.enqueue(3)
            raise Wrong
        with transaction.atomic():
            kept = noop.enqueue(4)
        last = noop.enqueue(5)
    assert [job.state for job in (first, kept, last)] == [State.READY] * 3
    assert [job.state for job in (inner, innermost)] == [State.UNSENT] * 2
    assert sent() == 3 and batches() == 1


@real_commits
def test_the_rollback_of_the_last_savepoint_does_not_drop_earlier_jobs(batches: Callable[[], int]) -> None:
    with transaction.atomic():
        first = noop.enqueue(1)
        with pytest.raises(Wrong), transaction.atomic():
            noop.enqueue(2)
            raise Wrong
    assert first.state is State.READY and sent() == 1 and batches() == 1


@real_commits
def test_a_transaction_whose_only_job_was_dropped_sends_nothing(batches: Callable[[], int], client: Redis) -> None:
    with transaction.atomic():
        with pytest.raises(Wrong), transaction.atomic():
            noop.enqueue()
            raise Wrong
        assert noop.enqueue().cancel()
    # The layout of the shards alone.
    assert client.dbsize() == 1 and batches() == 0


@real_commits
def test_all_jobs_of_a_commit_are_sent_in_one_batch(batches: Callable[[], int]) -> None:
    with transaction.atomic():
        handles = [noop.after(number).enqueue(number) for number in range(20)]
        many = record.enqueue_many([(number,) for number in range(20)])
        mixed = enqueue_many([noop.job(), record.using(queue="mail").after(5).job()])
        with transaction.atomic():
            handles.append(noop.enqueue())
        handles.append(noop.enqueue())
        transaction.on_commit(lambda: None)
    assert isinstance(many, list) and isinstance(mixed, list)
    assert {handle.state for handle in (*handles, *many, *mixed)} <= {State.READY, State.SCHEDULED}
    assert sent() == 44 and batches() == 1


@real_commits
def test_more_jobs_than_a_batch_holds_are_sent_in_several(batches: Callable[[], int]) -> None:
    with transaction.atomic():
        for number in range(300):
            noop.enqueue(number)
    assert sent() == 300 and batches() == 2


@real_commits
@pytest.mark.parametrize("outer", BOTH)
def test_a_job_waits_for_the_commit_of_every_connection(outer: str) -> None:
    inner = BOTH[1 - BOTH.index(outer)]
    with transaction.atomic(using=outer):
        with transaction.atomic(using=inner):
            handle = noop.enqueue()
        assert handle.state is State.UNSENT and sent() == 0
    assert handle.state is State.READY and sent() == 1


@real_commits
@pytest.mark.parametrize("broken", BOTH)
@pytest.mark.parametrize("outer", BOTH)
def test_the_rollback_of_any_connection_drops_the_job(broken: str, outer: str, client: Redis) -> None:
    inner = BOTH[1 - BOTH.index(outer)]
    with transaction.atomic(using=outer):
        with transaction.atomic(using=inner):
            handle = noop.enqueue()
            transaction.set_rollback(broken == inner, using=inner)
        transaction.set_rollback(broken == outer, using=outer)
    assert handle.state is State.UNSENT and client.dbsize() == 0
    for alias in BOTH:
        with transaction.atomic(using=alias):
            pass
    with transaction.atomic():
        noop.enqueue()
    assert sent() == 1


@real_commits
def test_the_rollback_of_a_savepoint_on_another_connection_drops_the_job(client: Redis) -> None:
    with transaction.atomic(using="other"), transaction.atomic():
        kept = noop.enqueue(1)
        with pytest.raises(Wrong), transaction.atomic(using="other"):
            dropped = noop.enqueue(2)
            raise Wrong
    assert (kept.state, dropped.state) == (State.READY, State.UNSENT)
    assert sent() == 1


@real_commits
def test_jobs_that_wait_for_different_connections_are_sent_at_their_own_commits(batches: Callable[[], int]) -> None:
    with transaction.atomic(using="other"):
        other = noop.enqueue("other")
        with transaction.atomic():
            both = noop.enqueue("both")
            default = noop.using(database="default").enqueue("default")
        assert default.state is State.READY
        assert both.state is other.state is State.UNSENT
    assert both.state is other.state is State.READY
    assert sent() == 3 and batches() == 2


@real_commits
def test_a_job_with_a_database_waits_for_that_database_only() -> None:
    with transaction.atomic(using="other"):
        assert noop.using(database="default").enqueue().state is State.READY
        with transaction.atomic():
            handle = noop.using(database="default").enqueue()
            assert handle.state is State.UNSENT
        assert handle.state is State.READY
        waiting = noop.using(database="other").enqueue()
        assert waiting.state is State.UNSENT
    assert waiting.state is State.READY


@real_commits
def test_on_commit_false_sends_at_once(delayq_settings: Any) -> None:
    with pytest.raises(Wrong), transaction.atomic():
        handle = noop.using(on_commit=False).enqueue()
        assert handle.state is State.READY
        raise Wrong
    assert sent() == 1
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "ON_COMMIT": False}
    with transaction.atomic():
        assert noop.enqueue().state is State.READY
        waiting = noop.using(on_commit=True).enqueue()
        assert waiting.state is State.UNSENT
    assert waiting.state is State.READY


class JumpingClock(ServerClock):
    """Redis's own time, beside a monotonic time that a test moves."""

    moved = 0.0

    def steady(self) -> float:
        return super().steady() + self.moved


@real_commits
def test_a_delay_counts_from_the_call() -> None:
    called, committed, clock = threading.Event(), [], JumpingClock()

    def other_thread() -> None:
        # Enqueued after the other job and sent before it, but due later.
        called.wait(30)
        committed.append(noop.after(3_600).enqueue())

    thread = threading.Thread(target=other_thread)
    thread.start()
    with runtime.override(clock=clock):
        # The next store takes this clock.
        drop_config()
        with transaction.atomic():
            early = noop.after(3_600).enqueue()
            clock.moved = 60
            called.set()
            thread.join(30)
    [late] = committed
    assert early.due and late.due and early.due < late.due - timedelta(seconds=30)


@real_commits
def test_a_delay_that_is_over_at_the_commit_is_ready() -> None:
    with transaction.atomic():
        handle = noop.after(0.000_001).enqueue()
    assert handle.state is State.READY


@real_commits
def test_a_job_changed_before_the_commit_is_sent_as_changed() -> None:
    with transaction.atomic():
        moved, dropped = noop.enqueue(1), noop.enqueue(2)
        assert moved.reschedule(delay=3_600) and dropped.cancel()
    assert moved.state is State.SCHEDULED and dropped.state is State.GONE
    assert sent() == 1 and moved.cancel()


@real_commits
def test_a_key_is_taken_at_the_commit() -> None:
    with transaction.atomic():
        first = noop.using(key="k").after(60).enqueue(1)
        second = noop.using(key="k").after(60).enqueue(2)
        assert first.created and second.created and first.id != second.id
    assert second.id == first.id and not second.created
    found = noop.get_job(key="k")
    assert found and found.id == first.id and sent() == 1


@real_commits
def test_jobs_enqueued_in_a_hook_are_sent_at_once() -> None:
    made: list[JobHandle] = []
    with transaction.atomic():
        transaction.on_commit(lambda: made.append(noop.enqueue()))
        noop.enqueue()
    assert made[0].state is State.READY and sent() == 2


@real_commits
def test_a_job_does_not_wait_for_a_transaction_of_another_thread() -> None:
    made: list[JobHandle] = []
    with transaction.atomic():
        thread = threading.Thread(target=lambda: made.append(noop.enqueue()))
        thread.start()
        thread.join(30)
        assert made[0].state is State.READY
        waiting = noop.enqueue()
        assert waiting.state is State.UNSENT


@real_commits
def test_streaming_inside_a_transaction_is_refused(client: Redis) -> None:
    for alias in BOTH:
        with (
            pytest.raises(DelayQError, match=rf"transaction on '{alias}'.*on_progress"),
            transaction.atomic(using=alias),
        ):
            noop.enqueue_many([(1,)], on_progress=lambda accepted: None)
    assert client.dbsize() == 0


def test_an_enqueue_opens_no_connection() -> None:
    opened: list[Any] = []

    def fresh_thread() -> None:
        before = connections.all(initialized_only=True)
        noop.enqueue()
        noop.after(60).enqueue_many([(1,), (2,)])
        opened.append((before, connections.all(initialized_only=True)))

    thread = threading.Thread(target=fresh_thread)
    thread.start()
    thread.join(30)
    assert opened == [([], [])]
    assert sent() == 3
