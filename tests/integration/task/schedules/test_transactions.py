"""Transactions: schedules are set, paused and deleted after the commit, as jobs are sent."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections, transaction
from django.test import TestCase

from django_delayq import current_job, delayed_task
from django_delayq.exceptions import ManualTransaction, StoreUnavailable, UnknownSchedule
from django_delayq.job.job import State
from django_delayq.testing import DelayQ, DelayQMixin
from tests.integration.task.on_commit.commits import Wrong, real_commits
from tests.sample_app.tasks import noop

pytestmark = [real_commits, pytest.mark.usefixtures("delayq")]
HOUR = timedelta(hours=1)


def names() -> set[str]:
    return {each.name for each in noop.schedules.iter()}


def items() -> Iterator[dict[str, Any]]:
    return ({"name": name, "every": HOUR} for name in "bcd")


def test_schedules_are_stored_after_the_commit() -> None:
    with transaction.atomic():
        noop.schedules.set("a", every=HOUR)
        assert noop.schedules.set_many(items()) == 3
        assert names() == set()
    assert names() == {"a", "b", "c", "d"}


def test_a_rollback_drops_all_changes() -> None:
    noop.schedules.set_many([{"name": name, "every": HOUR} for name in "ab"])
    with pytest.raises(Wrong), transaction.atomic():
        noop.schedules.set("c", every=HOUR)
        noop.schedules.delete("a")
        noop.schedules.pause("b")
        raise Wrong
    assert names() == {"a", "b"}
    found = noop.schedules.get("b")
    assert found and not found.is_paused


def test_the_rollback_of_a_savepoint_drops_its_changes_only() -> None:
    with transaction.atomic():
        noop.schedules.set("a", every=HOUR)
        with pytest.raises(Wrong), transaction.atomic():
            noop.schedules.set("b", every=HOUR)
            raise Wrong
        noop.schedules.set("c", every=HOUR)
    assert names() == {"a", "c"}


def test_schedules_wait_for_every_connection_or_for_the_one_that_is_named() -> None:
    with transaction.atomic(using="other"):
        with transaction.atomic():
            noop.schedules.set("a", every=HOUR)
            noop.using(database="default").schedules.set("b", every=HOUR)
        assert names() == {"b"}
    assert names() == {"a", "b"}


def test_without_on_commit_everything_happens_at_once() -> None:
    now = noop.using(on_commit=False).schedules
    with pytest.raises(Wrong), transaction.atomic():
        now.set("a", every=HOUR)
        now.set_many(items())
        now.pause("b")
        now.delete("c")
        found = now.get("d")
        assert found
        job = found.run_now()
        assert job.state is State.READY
        raise Wrong
    assert names() == {"a", "b", "d"}
    found = noop.schedules.get("b")
    assert found and found.is_paused


def test_the_setting_on_commit_decides_for_tasks_without_the_option(settings: Any) -> None:
    settings.DELAYQ = {**settings.DELAYQ, "ON_COMMIT": False}
    with transaction.atomic():
        noop.schedules.set("a", every=HOUR)
        found = noop.schedules.get("a")
        assert found and found.run_now().state is State.READY


def test_changes_of_one_schedule_keep_their_order() -> None:
    noop.schedules.set("b", every=HOUR)
    with transaction.atomic():
        noop.schedules.set("a", every=HOUR)
        noop.schedules.delete("a")
        noop.schedules.delete("b")
        noop.schedules.set("b", every=2 * HOUR)
    assert names() == {"b"}


def test_inside_a_transaction_the_replies_are_about_now() -> None:
    noop.schedules.set_many(items())
    found = noop.schedules.get("b")
    assert found
    with transaction.atomic():
        assert noop.schedules.delete("c", "x") == 1
        assert (found.pause(), found.pause(), found.resume()) == (True, True, False)
        assert found.delete() is True
        with pytest.raises(UnknownSchedule, match="exists after its commit"):
            noop.schedules.pause("x")
        assert names() == {"b", "c", "d"}
    assert names() == {"d"}
    with transaction.atomic():
        assert found.delete() is False
        with pytest.raises(UnknownSchedule):
            found.pause()


def test_a_pause_is_made_after_the_commit() -> None:
    noop.schedules.set("a", every=HOUR)
    with transaction.atomic():
        assert noop.schedules.pause("a") is True
        found = noop.schedules.get("a")
        assert found and not found.is_paused
    found = noop.schedules.get("a")
    assert found and found.is_paused
    with transaction.atomic():
        assert found.resume() is True
    found = found.refresh()
    assert found and not found.is_paused


def test_a_schedule_that_is_deleted_before_the_commit_is_not_an_error() -> None:
    noop.schedules.set("a", every=HOUR)
    found = noop.schedules.get("a")
    assert found
    with transaction.atomic():
        found.pause()
        noop.using(on_commit=False).schedules.delete("a")
        last = noop.enqueue()
    assert last.state is State.READY and names() == set()


def test_run_now_waits_for_the_commit() -> None:
    noop.schedules.set("a", every=HOUR)
    found = noop.schedules.get("a")
    assert found
    with transaction.atomic():
        job = found.run_now()
        assert job.state is State.UNSENT
    assert job.state is State.READY


def test_a_wrong_schedule_is_refused_before_the_commit() -> None:
    with transaction.atomic():
        with pytest.raises(ValueError, match="every=0"):
            noop.schedules.set_many([{"name": "a", "every": HOUR}, {"name": "b", "every": 0}])
        noop.schedules.set("c", every=HOUR)
    assert names() == {"c"}


def test_after_an_outage_at_the_commit_jobs_and_schedules_are_sent_again(delayq: DelayQ) -> None:
    noop.schedules.set("b", every=HOUR)
    unreachable = delayq.unavailable()
    with pytest.raises(StoreUnavailable) as caught, transaction.atomic():
        noop.schedules.set("a", every=HOUR)
        first = noop.enqueue(1)
        noop.schedules.set_many(items())
        noop.schedules.delete("b")
        last = noop.enqueue(2)
        unreachable.__enter__()
    error, notes = caught.value, "".join(caught.value.__notes__)
    assert list(error.unsent) == [first, last]
    assert "Not (surely) made: 3 changes of schedules; error.resend() makes them." in notes
    with pytest.raises(StoreUnavailable) as again:
        error.resend()
    unreachable.__exit__(None, None, None)
    assert names() == {"b"}
    again.value.resend()
    assert names() == {"a", "c", "d"} and first.state is last.state is State.READY


def test_a_schedule_alone_is_set_by_resend(delayq: DelayQ) -> None:
    unreachable = delayq.unavailable()
    with pytest.raises(StoreUnavailable) as caught, transaction.atomic():
        noop.schedules.set("a", every=HOUR)
        unreachable.__enter__()
    unreachable.__exit__(None, None, None)
    assert not caught.value.unsent and names() == set()
    caught.value.resend()
    assert names() == {"a"}


def test_a_connection_without_autocommit_is_refused() -> None:
    connections["other"].set_autocommit(False)
    try:
        with pytest.raises(ManualTransaction, match="'other'"):
            noop.using(database="other").schedules.set("a", every=HOUR)
    finally:
        connections["other"].set_autocommit(True)
    assert names() == set()


def test_async_code_waits_for_the_transaction_of_its_thread() -> None:
    def begin() -> transaction.Atomic:
        block = transaction.atomic()
        block.__enter__()
        return block

    async def main() -> set[str]:
        block = await sync_to_async(begin)()
        await noop.schedules.aset("a", every=HOUR)
        await noop.schedules.aset_many(items())
        before = await sync_to_async(names)()
        await sync_to_async(block.__exit__)(None, None, None)
        assert await noop.schedules.adelete("b") == 1
        return before

    assert asyncio.run(main()) == set()
    assert names() == {"a", "c", "d"}


def test_a_task_changes_its_own_schedule_while_it_runs(delayq: DelayQ, registered: Any) -> None:
    registered()
    seen = []

    def run(number: int) -> None:
        job = current_job()
        assert job
        seen.append((number, job.occurrence))
        with transaction.atomic():
            if number < 3:
                poll.schedules.set("a", every=number * HOUR + HOUR, args=[number + 1])
            else:
                poll.schedules.delete("a")

    run.__qualname__ = "run"
    poll = delayed_task(name="shop.poll")(run)
    poll.schedules.set("a", every=HOUR, args=[1])
    begin = delayq.now.replace(minute=0, second=0, microsecond=0)
    delayq.advance(days=1, run=True)
    assert [number for number, _ in seen] == [1, 2, 3]
    assert [occurrence - begin for _, occurrence in seen] == [HOUR, 3 * HOUR, 6 * HOUR]
    assert poll.schedules.get("a") is None and delayq.enqueued == []


class InTestCase(DelayQMixin, TestCase):
    """A test case of Django, whose own transaction never commits."""

    def test_schedules_wait_for_the_transactions_of_the_code(self) -> None:
        with transaction.atomic():
            noop.schedules.set("a", every=HOUR)
            self.assertEqual(names(), set())
        self.assertEqual(names(), {"a"})
        with self.assertRaises(Wrong), transaction.atomic():
            noop.schedules.delete("a")
            raise Wrong
        self.assertEqual(names(), {"a"})
        self.assertEqual(len(self.delayq.advance(hours=2, run=True)), 2)
