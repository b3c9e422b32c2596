"""Waiting for the commit: a job is sent when the transactions it was enqueued in have committed, or never."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest
from django.db import connections, transaction
from django.test import TestCase, TransactionTestCase
from redis import Redis

from django_delayq import enqueue_many, get_job, get_store
from django_delayq.exceptions import DelayQError, KeyHeld, ManualTransaction, StoreUnavailable
from django_delayq.job.job import State
from django_delayq.task import outbox
from django_delayq.task.handle import JobHandle
from tests.sample_app.tasks import noop, record

BOTH = ["default", "other"]
real_commits = pytest.mark.django_db(transaction=True, databases=BOTH)
pytestmark = pytest.mark.usefixtures("delayq_settings")


class Wrong(Exception):
    """What makes a transaction roll back here."""


def sent() -> int:
    """Return how many jobs Redis holds."""
    counts = get_store().lookup(0).counts()
    return sum(counts.ready.values()) + sum(counts.scheduled.values())


@pytest.fixture
def batches(client: Redis) -> Iterator[Callable[[], int]]:
    """Tell how many batches of jobs the server has seen since."""
    noop.using(on_commit=False).enqueue()
    client.flushdb()
    client.config_resetstat()

    def seen() -> int:
        found = client.info("commandstats")
        return sum(found.get(f"cmdstat_{name}", {}).get("calls", 0) for name in ("evalsha", "eval"))

    yield seen


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
def test_the_rollback_of_the_last_savepoint_does_not_keep_the_others_back(batches: Callable[[], int]) -> None:
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
    assert client.dbsize() == 0 and batches() == 0


@real_commits
def test_all_jobs_of_a_commit_go_in_one_batch(batches: Callable[[], int]) -> None:
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
def test_more_than_a_batch_holds_goes_in_several(batches: Callable[[], int]) -> None:
    with transaction.atomic():
        for number in range(300):
            noop.enqueue(number)
    assert sent() == 300 and batches() == 2


@real_commits
@pytest.mark.parametrize("outer", BOTH)
def test_every_connection_must_have_committed(outer: str) -> None:
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
def test_jobs_that_wait_for_different_connections_find_their_own_commit(batches: Callable[[], int]) -> None:
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
def test_a_named_database_is_the_only_one_to_wait_for() -> None:
    with transaction.atomic(using="other"):
        assert noop.using(database="default").enqueue().state is State.READY
        with transaction.atomic():
            handle = noop.using(database="default").enqueue()
            assert handle.state is State.UNSENT
        assert handle.state is State.READY
        waits = noop.using(database="other").enqueue()
        assert waits.state is State.UNSENT
    assert waits.state is State.READY


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
        waits = noop.using(on_commit=True).enqueue()
        assert waits.state is State.UNSENT
    assert waits.state is State.READY


@real_commits
def test_a_delay_counts_from_the_call() -> None:
    called, committed = threading.Event(), []

    def other_thread() -> None:
        # Enqueued after the other job was, and sent before it: due later all the same.
        called.wait(30)
        committed.append(noop.after(3_600).enqueue())

    thread = threading.Thread(target=other_thread)
    thread.start()
    with transaction.atomic():
        early = noop.after(3_600).enqueue()
        called.set()
        thread.join(30)
    [late] = committed
    assert early.due and late.due and early.due < late.due + timedelta(milliseconds=5)


@real_commits
def test_a_delay_that_is_over_at_the_commit_is_ready() -> None:
    with transaction.atomic():
        handle = noop.after(0.000_001).enqueue()
    assert handle.state is State.READY


@real_commits
def test_what_is_changed_before_the_commit_is_sent_changed() -> None:
    with transaction.atomic():
        moved, dropped = noop.enqueue(1), noop.enqueue(2)
        assert moved.reschedule(delay=3_600) and dropped.cancel()
    assert moved.state is State.SCHEDULED and dropped.state is State.GONE
    assert sent() == 1 and moved.cancel()


@real_commits
def test_with_a_key_the_decision_falls_at_the_commit() -> None:
    with transaction.atomic():
        first = noop.using(key="k").after(60).enqueue(1)
        second = noop.using(key="k").after(60).enqueue(2)
        assert first.created and second.created and first.id != second.id
    assert second.id == first.id and not second.created
    found = noop.get_job(key="k")
    assert found and found.id == first.id and sent() == 1


@real_commits
def test_a_key_refused_at_the_commit_raises_there() -> None:
    holder = noop.using(key="k").after(60).enqueue()
    with pytest.raises(KeyHeld, match="'k'") as caught, transaction.atomic():
        noop.using(key="k", unique="reject").enqueue()
    assert caught.value.holder == holder.id


@real_commits
def test_a_redis_that_is_down_at_the_commit_raises_and_can_be_mended(start_redis: Any, delayq_settings: Any) -> None:
    server = start_redis()
    delayq_settings.DELAYQ = {"REDIS": server.url}
    handles: list[JobHandle] = []
    with pytest.raises(StoreUnavailable) as caught, transaction.atomic():
        handles += [noop.enqueue(1), noop.after(60).enqueue(2)]
        server.kill()
    error = caught.value
    assert list(error.unsent) == handles and error.maybe_accepted is False and error.retryable
    assert all(handle.id in "".join(error.__notes__) for handle in handles)
    assert {handle.state for handle in handles} == {State.UNSENT}
    with transaction.atomic():
        pass
    server.restart()
    error.resend()
    assert [handle.state for handle in handles] == [State.READY, State.SCHEDULED]
    error.resend()
    with transaction.atomic():
        noop.enqueue(3)
    assert sent() == 3


@real_commits
def test_a_hook_of_the_project_that_fails_does_not_leave_jobs_for_a_stranger() -> None:
    # Django runs the hooks of a commit in order and stops at the first that raises.
    def broken() -> None:
        raise Wrong

    with pytest.raises(Wrong), transaction.atomic():
        before = noop.enqueue("before")
        transaction.on_commit(broken)
        noop.enqueue("after")
    assert before.state is State.READY, "its hook stood before the broken one"
    assert sent() == 1
    with transaction.atomic():
        noop.enqueue("next")
    assert sent() == 2, "a later commit sent what an earlier one had not"


@real_commits
def test_with_a_hook_of_the_project_in_between_the_error_names_the_jobs_of_all(
    start_redis: Any, delayq_settings: Any
) -> None:
    server = start_redis()
    delayq_settings.DELAYQ = {"REDIS": server.url}
    ran: list[str] = []
    with pytest.raises(StoreUnavailable) as raised, transaction.atomic():
        first = noop.enqueue(1)
        transaction.on_commit(lambda: ran.append("theirs"))
        second = noop.enqueue(2)
        server.kill()
    assert ran == ["theirs"]
    assert [handle.id for handle in raised.value.unsent] == [first.id, second.id]
    server.restart()
    raised.value.resend()
    assert (first.refresh().state, second.refresh().state) == (State.READY, State.READY)


@real_commits
@pytest.mark.parametrize("between", [True, False])
def test_a_refused_key_keeps_neither_later_jobs_nor_hooks_back(between: bool) -> None:
    noop.using(key="k").after(60).enqueue()
    ran: list[str] = []
    with pytest.raises(KeyHeld, match="'k'") as caught, transaction.atomic():
        refused = noop.using(key="k", unique="reject").enqueue()
        if between:
            transaction.on_commit(lambda: ran.append("theirs"))
        with pytest.raises(Wrong), transaction.atomic():
            dropped = noop.enqueue("dropped")
            raise Wrong
        later = noop.enqueue("later")
    assert (later.state, dropped.state) == (State.READY, State.UNSENT)
    assert ran == ["theirs"] * between
    assert caught.value.refused is refused and refused.id in "".join(caught.value.__notes__)
    with transaction.atomic():
        noop.enqueue()
    assert sent() == 3


@real_commits
def test_a_refused_key_and_an_outage_are_both_told(start_redis: Any, delayq_settings: Any) -> None:
    server = start_redis()
    delayq_settings.DELAYQ = {"REDIS": server.url}
    noop.using(key="k").after(60).enqueue()
    with pytest.raises(StoreUnavailable) as caught, transaction.atomic():
        refused = noop.using(key="k", unique="reject").enqueue()
        transaction.on_commit(server.kill)
        later = noop.enqueue()
    told = "".join(caught.value.__notes__)
    assert list(caught.value.unsent) == [later] and later.id in told and refused.id in told


@real_commits
def test_what_could_not_be_sent_is_no_other_transactions(
    start_redis: Any, delayq_settings: Any, caplog: pytest.LogCaptureFixture
) -> None:
    server = start_redis()
    delayq_settings.DELAYQ = {"REDIS": server.url}

    def broken() -> None:
        raise Wrong

    with server.client() as client:
        client.config_set("maxmemory", 1)
        with pytest.raises(Wrong), transaction.atomic():
            first = noop.enqueue(1)
            transaction.on_commit(broken)
            second = noop.enqueue(2)
        client.config_set("maxmemory", 0)
    told = f"Jobs {first.id} could not be sent after the commit; its last hook retries: "
    assert told in caplog.text, "nobody was told which job was not sent"
    with transaction.atomic():
        noop.enqueue(3)
    assert sent() == 1
    assert first.state is second.state is State.UNSENT
    enqueue_many([first, second])
    assert sent() == 3


@real_commits
def test_a_hook_that_django_logs_instead_of_raising_keeps_nothing_back() -> None:
    def broken() -> None:
        raise Wrong

    with transaction.atomic():
        noop.enqueue(1)
        transaction.on_commit(broken, robust=True)
        last = noop.enqueue(2)
    assert last.state is State.READY and sent() == 2


@real_commits
@pytest.mark.parametrize("within", [True, False])
def test_a_transaction_that_django_does_not_commit_is_an_error_that_names_the_cure(within: bool) -> None:
    connection = connections["other"]
    connection.set_autocommit(False)
    try:
        with ExitStack() as stack:
            if within:
                stack.enter_context(transaction.atomic(using="other"))
            for enqueue in (noop.enqueue, noop.using(database="other").enqueue, lambda: enqueue_many([noop.job()])):
                with pytest.raises(ManualTransaction, match=r"'other'.*atomic\(\).*on_commit=False"):
                    enqueue()
            assert sent() == 0
            assert noop.using(on_commit=False).enqueue().state is State.READY
            assert noop.using(database="default").enqueue().state is State.READY
    finally:
        connection.rollback()
        connection.set_autocommit(True)
    assert noop.enqueue().state is State.READY


@real_commits
def test_a_second_database_configured_without_autocommit_is_waited_for_only_where_it_is_meant(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = connections["other"]
    monkeypatch.setitem(connection.settings_dict, "AUTOCOMMIT", False)
    # As Django does where it connects.
    connection.set_autocommit(False)
    try:
        assert noop.enqueue().state is State.READY
        with transaction.atomic():
            assert noop.enqueue().state is State.UNSENT
        assert sent() == 2
        assert len(list(enqueue_many([noop.job()]))) == 1
        with pytest.raises(ManualTransaction, match="'other'"):
            noop.using(database="other").enqueue()
        with transaction.atomic(using="other"), pytest.raises(ManualTransaction, match="'other'"):
            noop.enqueue()
        monkeypatch.setattr(outbox, "DEFAULT_DB_ALIAS", "other")
        with pytest.raises(ManualTransaction, match="'other'"):
            noop.enqueue()
    finally:
        connection.rollback()
        connection.set_autocommit(True)
    assert sent() == 3


@real_commits
def test_jobs_enqueued_in_a_hook_are_sent_at_once() -> None:
    made: list[JobHandle] = []
    with transaction.atomic():
        transaction.on_commit(lambda: made.append(noop.enqueue()))
        noop.enqueue()
    assert made[0].state is State.READY and sent() == 2


@real_commits
def test_a_transaction_of_another_thread_is_not_waited_for() -> None:
    made: list[JobHandle] = []
    with transaction.atomic():
        thread = threading.Thread(target=lambda: made.append(noop.enqueue()))
        thread.start()
        thread.join(30)
        assert made[0].state is State.READY
        waits = noop.enqueue()
        assert waits.state is State.UNSENT


@real_commits
def test_streaming_inside_a_transaction_is_refused(client: Redis) -> None:
    for alias in BOTH:
        with (
            pytest.raises(DelayQError, match=rf"transaction on '{alias}'.*on_progress"),
            transaction.atomic(using=alias),
        ):
            noop.enqueue_many([(1,)], on_progress=lambda accepted: None)
    assert client.dbsize() == 0


def test_no_connection_is_opened() -> None:
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


@pytest.mark.django_db
def test_pytest_can_play_the_commit(django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        first, second = noop.enqueue(1), noop.enqueue(2)
        assert first.state is State.UNSENT
    assert first.state is second.state is State.READY and sent() == 2


@pytest.mark.django_db(databases=BOTH)
def test_with_several_databases_pytest_plays_each_commit(django_capture_on_commit_callbacks: Any) -> None:
    with ExitStack() as stack:
        for alias in BOTH:
            stack.enter_context(django_capture_on_commit_callbacks(using=alias, execute=True))
        handle = noop.enqueue()
    assert handle.state is State.READY and sent() == 1


class InATestCase(TestCase):
    """What users' own tests see."""

    databases = {"default"}

    def test_without_capture_nothing_is_sent(self) -> None:
        assert noop.enqueue().state is State.UNSENT
        assert sent() == 0

    def test_with_capture_jobs_are_sent(self) -> None:
        with self.captureOnCommitCallbacks(execute=True):
            handle = noop.after(60).enqueue(1)
            with pytest.raises(Wrong), transaction.atomic():
                noop.enqueue(2)
                raise Wrong
        assert handle.state is State.SCHEDULED
        assert sent() == 1

    def test_what_one_capture_was_refused_is_not_told_by_the_next(self) -> None:
        noop.using(key="k", on_commit=False).after(60).enqueue()
        with pytest.raises(KeyHeld), self.captureOnCommitCallbacks(execute=True):
            noop.using(key="k", unique="reject").enqueue()
        with self.captureOnCommitCallbacks(execute=True):
            noop.enqueue()
        assert sent() == 2

    def test_capture_can_be_repeated(self) -> None:
        for number in range(3):
            with self.captureOnCommitCallbacks(execute=True):
                noop.enqueue(number)
            assert sent() == number + 1

    def test_without_execution_callbacks_are_handed_over(self) -> None:
        with self.captureOnCommitCallbacks() as callbacks:
            handle = noop.enqueue()
        assert handle.state is State.UNSENT
        for callback in callbacks:
            callback()
        assert handle.state is State.READY


class InATransactionTestCase(TransactionTestCase):
    """Real commits."""

    databases = {"default"}

    def test_jobs_are_sent_at_once(self) -> None:
        assert noop.enqueue().state is State.READY
