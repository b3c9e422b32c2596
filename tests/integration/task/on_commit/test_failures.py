"""Failures after a commit: a held key, an outage, a failing hook, no commit at all."""

from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from django.db import connections, transaction

from django_delayq import enqueue_many
from django_delayq.exceptions import KeyHeld, ManualTransaction, StoreUnavailable, TenantFull
from django_delayq.job.job import State
from django_delayq.task.handle import JobHandle
from tests.integration.task.on_commit.commits import Wrong, real_commits, sent
from tests.sample_app.tasks import noop

pytestmark = pytest.mark.usefixtures("delayq_settings")


@real_commits
def test_a_key_refused_at_the_commit_raises_at_the_commit() -> None:
    holder = noop.using(key="k").after(60).enqueue()
    with pytest.raises(KeyHeld, match="'k'") as caught, transaction.atomic():
        noop.using(key="k", unique="reject").enqueue()
    assert caught.value.holder == holder.id


@real_commits
def test_an_outage_at_the_commit_raises_and_its_jobs_can_be_resent(start_redis: Any, delayq_settings: Any) -> None:
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
def test_jobs_behind_a_failing_hook_are_not_sent_by_a_later_commit() -> None:
    # Django runs the hooks of a commit in order and stops at the first that raises.
    def broken() -> None:
        raise Wrong

    with pytest.raises(Wrong), transaction.atomic():
        before = noop.enqueue("before")
        transaction.on_commit(broken)
        noop.enqueue("after")
    assert before.state is State.READY, "its hook was before the broken one"
    assert sent() == 1
    with transaction.atomic():
        noop.enqueue("next")
    assert sent() == 2, "a later commit sent what an earlier one had not"


@real_commits
def test_the_error_names_all_jobs_even_with_another_hook_between_them(start_redis: Any, delayq_settings: Any) -> None:
    server = start_redis()
    delayq_settings.DELAYQ = {"REDIS": server.url}
    ran: list[str] = []
    with pytest.raises(StoreUnavailable) as raised, transaction.atomic():
        first = noop.enqueue(1)
        transaction.on_commit(lambda: ran.append("other hook"))
        second = noop.enqueue(2)
        server.kill()
    assert ran == ["other hook"]
    assert [handle.id for handle in raised.value.unsent] == [first.id, second.id]
    server.restart()
    raised.value.resend()
    assert (first.refresh().state, second.refresh().state) == (State.READY, State.READY)


@real_commits
def test_jobs_of_a_full_tenant_stop_no_others_and_are_named_once(delayq_settings: Any) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "QUEUES": {"default": {"max_waiting": 40}}}
    full, other = noop.using(tenant="full"), noop.using(tenant="other")
    full.enqueue()
    with pytest.raises(TenantFull, match="1 jobs that wait.*more than the 40 that") as caught, transaction.atomic():
        handles = [task.enqueue(number) for number in range(600) for task in (full, other)[: 1 + (number < 40)]]
    by_state = Counter((handle.draft is None, handle.state) for handle in handles)
    assert by_state == {(True, State.READY): 39 + 40, (True, State.GONE): 561}
    [note] = caught.value.__notes__
    assert note.startswith(f"Not sent: {caught.value.refused.id}, ")
    assert " and 556 more: tenant 'full' has 1 jobs" in note
    assert sent() == 80


@real_commits
@pytest.mark.parametrize("unique", ["keep", "replace"])
def test_jobs_with_keys_of_full_tenants_take_a_call_a_batch(
    delayq_settings: Any, batches: Callable[[], int], unique: Any
) -> None:
    delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "QUEUES": {"default": {"max_waiting": 2}}}
    task = noop.using(unique=unique)
    names = ("a", "b", "c")
    with pytest.raises(TenantFull) as caught, transaction.atomic():
        handles = [task.using(tenant=name, key=f"{key % 50}").enqueue() for key in range(100) for name in names]
        task.using(tenant=None, key="other").enqueue()
    calls = batches()
    assert Counter(handle.state for handle in handles if handle.created) == {State.READY: 6, State.GONE: 288}
    # The second call of each key is the same job.
    assert sum(handle.state is State.READY for handle in handles) == 12
    notes = "".join(caught.value.__notes__)
    assert all(f"tenant {name!r} has 0 jobs" in notes for name in names)
    assert sent() == 7
    assert calls <= 9


@real_commits
@pytest.mark.parametrize("between", [True, False])
def test_a_refused_key_stops_neither_later_jobs_nor_hooks(between: bool) -> None:
    noop.using(key="k").after(60).enqueue()
    ran: list[str] = []
    with pytest.raises(KeyHeld, match="'k'") as caught, transaction.atomic():
        refused = noop.using(key="k", unique="reject").enqueue()
        if between:
            transaction.on_commit(lambda: ran.append("other hook"))
        with pytest.raises(Wrong), transaction.atomic():
            dropped = noop.enqueue("dropped")
            raise Wrong
        later = noop.enqueue("later")
    assert (later.state, dropped.state) == (State.READY, State.UNSENT)
    assert ran == ["other hook"] * between
    assert caught.value.refused is refused and refused.id in "".join(caught.value.__notes__)
    with transaction.atomic():
        noop.enqueue()
    assert sent() == 3


@real_commits
def test_a_refused_key_and_an_outage_are_both_in_the_error(start_redis: Any, delayq_settings: Any) -> None:
    server = start_redis()
    delayq_settings.DELAYQ = {"REDIS": server.url}
    noop.using(key="k").after(60).enqueue()
    with pytest.raises(StoreUnavailable) as caught, transaction.atomic():
        refused = noop.using(key="k", unique="reject").enqueue()
        transaction.on_commit(server.kill)
        later = noop.enqueue()
    notes = "".join(caught.value.__notes__)
    assert list(caught.value.unsent) == [later] and later.id in notes and refused.id in notes


@real_commits
def test_jobs_that_could_not_be_sent_are_not_sent_by_another_transaction(
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
    message = f"Jobs {first.id} could not be sent after the commit; its last hook retries: "
    assert message in caplog.text, "the log does not name the job that was not sent"
    with transaction.atomic():
        noop.enqueue(3)
    assert sent() == 1
    assert first.state is second.state is State.UNSENT
    enqueue_many([first, second])
    assert sent() == 3


@real_commits
def test_a_robust_hook_that_fails_stops_no_job() -> None:
    def broken() -> None:
        raise Wrong

    with transaction.atomic():
        noop.enqueue(1)
        transaction.on_commit(broken, robust=True)
        last = noop.enqueue(2)
    assert last.state is State.READY and sent() == 2


@real_commits
@pytest.mark.parametrize("within", [True, False])
def test_a_transaction_that_django_does_not_commit_raises_an_error_with_the_cure(within: bool) -> None:
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
def test_a_job_waits_for_a_second_database_without_autocommit_only_if_it_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connection = connections["other"]
    monkeypatch.setitem(connection.settings_dict, "AUTOCOMMIT", False)
    # As Django does when it connects.
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
    finally:
        connection.rollback()
        connection.set_autocommit(True)
    assert sent() == 3


@real_commits
def test_a_default_database_without_autocommit_refuses_every_job(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = connections["default"]
    monkeypatch.setitem(connection.settings_dict, "AUTOCOMMIT", False)
    connection.set_autocommit(False)
    try:
        with pytest.raises(ManualTransaction, match="'default'"):
            noop.enqueue()
    finally:
        connection.rollback()
        connection.set_autocommit(True)
    assert sent() == 0
