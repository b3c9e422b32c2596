"""Commits in tests: the code's transactions decide about its jobs; the test's own, which never commits, does not."""

from datetime import timedelta
from typing import Any

import pytest
import time_machine
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import transaction
from django.test import SimpleTestCase, TestCase, TransactionTestCase

from django_delayq.testing import DelayQ, DelayQMixin
from tests.testing_helpers.tasks import ask_the_bank, calls, send_reminder


class Wrong(Exception):
    """An error that makes a transaction roll back."""


class AnyCase(DelayQMixin):
    """Tests that pass in each of Django's test case classes."""

    def test_outside_of_transactions_a_job_is_sent_at_once(self) -> None:
        job = send_reminder.enqueue(1)
        assert job.state == "ready"
        self.delayq.assert_enqueued(send_reminder)

    def test_each_test_begins_with_an_empty_queue(self) -> None:
        assert self.delayq.enqueued == []
        send_reminder.enqueue(1)

    def test_each_test_begins_with_an_empty_queue_again(self) -> None:
        self.test_each_test_begins_with_an_empty_queue()

    def test_time_advances_and_jobs_run(self) -> None:
        send_reminder.after(minutes=10).enqueue(1)
        self.delayq.advance(minutes=10, run=True)
        assert calls == [(1, "letter")]


class DatabaseCase(AnyCase):
    """Tests that pass in each of Django's test case classes with a database."""

    def test_a_job_of_a_transaction_is_sent_when_it_ends(self) -> None:
        with transaction.atomic():
            job = send_reminder.enqueue(1)
            with transaction.atomic():
                send_reminder.enqueue(2)
            assert (job.state, self.delayq.enqueued) == ("unsent", [])
        assert job.state == "ready"
        assert [seen.args for seen in self.delayq.enqueued] == [[1], [2]]

    def test_a_job_of_a_transaction_that_rolls_back_is_dropped(self) -> None:
        with pytest.raises(Wrong), transaction.atomic():
            job = send_reminder.enqueue(1)
            raise Wrong
        with transaction.atomic():
            send_reminder.enqueue(2)
        assert job.state == "unsent"
        self.delayq.assert_enqueued(send_reminder, args=[2], count=1)
        assert len(self.delayq.enqueued) == 1

    def test_a_savepoint_that_rolls_back_drops_its_own_jobs_only(self) -> None:
        with transaction.atomic():
            send_reminder.enqueue(1)
            with pytest.raises(Wrong), transaction.atomic():
                send_reminder.enqueue(2)
                raise Wrong
            send_reminder.enqueue(3)
        assert [seen.args for seen in self.delayq.enqueued] == [[1], [3]]

    def test_a_block_without_savepoint_that_fails_drops_the_jobs_of_the_whole_transaction(self) -> None:
        with pytest.raises(Wrong), transaction.atomic():
            send_reminder.enqueue(1)
            with transaction.atomic(savepoint=False):
                send_reminder.enqueue(2)
                raise Wrong
        assert self.delayq.enqueued == []

    def test_a_forced_rollback_drops_the_jobs(self) -> None:
        with transaction.atomic():
            send_reminder.enqueue(1)
            transaction.set_rollback(True)
        assert self.delayq.enqueued == []

    def test_jobs_wait_for_every_connection_in_a_transaction(self) -> None:
        with transaction.atomic(using="other"):
            with transaction.atomic():
                job = send_reminder.enqueue(1)
            assert job.state == "unsent"
        assert job.state == "ready"

    def test_a_decorated_function_is_a_transaction_too(self) -> None:
        @transaction.atomic
        def sell() -> Any:
            return send_reminder.enqueue(1)

        assert sell().state == "ready"

    def test_a_run_affects_neither_the_connection_nor_counted_queries(self) -> None:
        User.objects.create(username="ann")
        with self.assertNumQueries(1):  # type: ignore[attr-defined]
            User.objects.count()
            send_reminder.enqueue(1)
            self.delayq.run_due()
        assert User.objects.count() == 1

    def test_hooks_of_the_code_run_when_django_runs_them(self) -> None:
        with self.captureOnCommitCallbacks(execute=True) as hooks, transaction.atomic():  # type: ignore[attr-defined]
            transaction.on_commit(lambda: send_reminder.enqueue(1))  # type: ignore[arg-type, return-value]
        del hooks
        self.delayq.assert_enqueued(send_reminder, count=1)


class InSimpleTestCase(AnyCase, SimpleTestCase):
    """Tests without a database."""


class OfAClass(DelayQMixin, TestCase):
    """A job that is enqueued for all tests of a class."""

    @classmethod
    def setUpTestData(cls) -> None:
        """Enqueue a job outside of every test."""
        cls.early = ask_the_bank.enqueue(1)

    def test_a_job_of_the_class_is_never_sent(self) -> None:
        with transaction.atomic():
            send_reminder.enqueue(1)
        assert [seen.task.rsplit(".")[-1] for seen in self.delayq.enqueued] == ["send_reminder"]
        assert self.early.state == "unsent"


class InTestCase(DatabaseCase, TestCase):
    """Tests in a transaction that is rolled back."""

    databases = {"default", "other"}

    def test_a_block_without_savepoint_that_fails_drops_its_jobs(self) -> None:
        with pytest.raises(Wrong), transaction.atomic(savepoint=False):
            send_reminder.enqueue(1)
            raise Wrong
        # Without a savepoint, Django marks the whole transaction of the test for rollback.
        transaction.set_rollback(False)
        with transaction.atomic():
            send_reminder.enqueue(2)
        assert [seen.args for seen in self.delayq.enqueued] == [[2]]

    def test_a_block_without_savepoint_with_a_forced_rollback_drops_its_jobs(self) -> None:
        with transaction.atomic(savepoint=False):
            send_reminder.enqueue(1)
            transaction.set_rollback(True)
        transaction.set_rollback(False)
        assert self.delayq.enqueued == []

    def test_a_sent_job_leaves_no_hook(self) -> None:
        with self.captureOnCommitCallbacks() as hooks, transaction.atomic():
            send_reminder.enqueue(1)
        assert hooks == []

    async def test_async_code_enqueues_and_runs(self) -> None:
        job = await ask_the_bank.after(minutes=1).aenqueue(7)
        assert await sync_to_async(lambda: job.state)() == "scheduled"
        await self.delayq.aadvance(minutes=1)
        [ran] = await self.delayq.arun_due()
        assert (ran.args, calls) == ([7], [7])
        await send_reminder.after(minutes=1).aenqueue(8)
        assert len(await self.delayq.adrain()) == 1

    async def test_async_code_runs_jobs_eagerly(self) -> None:
        with self.delayq.eager():
            await ask_the_bank.aenqueue(7)
            await send_reminder.aenqueue(8)
        assert calls == [7, (8, "letter")]


class InTransactionTestCase(DatabaseCase, TransactionTestCase):
    """Tests with real commits."""

    databases = {"default", "other"}
    # A real commit runs hooks at once, so there is nothing to capture.
    test_hooks_of_the_code_run_when_django_runs_them = None  # type: ignore[assignment]


class Forgetful(DelayQMixin, SimpleTestCase):
    """A test case whose setUp() does not call super()."""

    def setUp(self) -> None:
        """Do not call super()."""

    def test_the_error_names_the_cure(self) -> None:
        with pytest.raises(Exception, match=r"call super\(\).setUp\(\)"):
            _ = self.delayq


class WrongWayRound(SimpleTestCase, DelayQMixin):
    """A test case with the mixin after the test case class."""

    def test_the_error_names_the_cure(self) -> None:
        with pytest.raises(Exception, match="put DelayQMixin before the test case class"):
            _ = self.delayq


@pytest.mark.django_db
def test_with_pytests_db_fixture_jobs_wait_for_the_commit(delayq: DelayQ) -> None:
    with transaction.atomic():
        job = send_reminder.enqueue(1)
        assert job.state == "unsent"
    assert job.state == "ready"


@pytest.mark.django_db
def test_a_delay_counts_from_the_call_even_if_time_advances_before_the_commit(delayq: DelayQ) -> None:
    with time_machine.travel(delayq.now, tick=False) as clock:
        with transaction.atomic():
            send_reminder.after(minutes=10).enqueue(1)
            clock.shift(60)
            delayq.advance(minutes=1)
        [job] = delayq.enqueued
    assert job.due_in == timedelta(minutes=8)


@pytest.mark.django_db
def test_pytests_capture_of_hooks_works(delayq: DelayQ, django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True), transaction.atomic():
        send_reminder.enqueue(1)
    delayq.assert_enqueued(send_reminder, count=1)


@pytest.mark.django_db(transaction=True)
def test_with_pytests_transactional_db_commits_are_real(delayq: DelayQ) -> None:
    with transaction.atomic():
        job = send_reminder.enqueue(1)
        assert job.state == "unsent"
    assert job.state == "ready"


def test_jobs_cannot_run_in_an_event_loop(delayq: DelayQ) -> None:
    async def run() -> None:
        delayq.run_due()

    import asyncio

    with pytest.raises(Exception, match="await delayq.arun_due"):
        asyncio.run(run())
