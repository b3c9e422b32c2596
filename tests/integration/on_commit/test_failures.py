"""A commit after which a job cannot be sent: a held key, an outage, a failing hook, no commit at all."""

from contextlib import ExitStack
from typing import Any

import pytest
from django.db import connections, transaction

from django_delayq import enqueue_many
from django_delayq.exceptions import KeyHeld, ManualTransaction, StoreUnavailable
from django_delayq.job.job import State
from django_delayq.task import outbox
from django_delayq.task.handle import JobHandle
from tests.integration.on_commit.commits import Wrong, real_commits, sent
from tests.sample_app.tasks import noop

pytestmark = pytest.mark.usefixtures("delayq_settings")


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
