"""Test cases of projects: commits with pytest-django's fixture and in Django's two test case classes."""

from contextlib import ExitStack
from typing import Any

import pytest
from django.db import transaction
from django.test import TestCase, TransactionTestCase

from django_delayq.exceptions import KeyHeld
from django_delayq.job.job import State
from tests.integration.task.on_commit.commits import BOTH, Wrong, sent
from tests.sample_app.tasks import noop

pytestmark = pytest.mark.usefixtures("delayq_settings")


@pytest.mark.django_db
def test_pytests_capture_fixture_sends_the_jobs(django_capture_on_commit_callbacks: Any) -> None:
    with django_capture_on_commit_callbacks(execute=True):
        first, second = noop.enqueue(1), noop.enqueue(2)
        assert first.state is State.UNSENT
    assert first.state is second.state is State.READY and sent() == 2


@pytest.mark.django_db(databases=BOTH)
def test_with_several_databases_a_capture_per_database_sends_the_jobs(django_capture_on_commit_callbacks: Any) -> None:
    with ExitStack() as stack:
        for alias in BOTH:
            stack.enter_context(django_capture_on_commit_callbacks(using=alias, execute=True))
        handle = noop.enqueue()
    assert handle.state is State.READY and sent() == 1


class InATestCase(TestCase):
    """Tests in a transaction that is never committed."""

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

    def test_a_refused_key_of_one_capture_is_not_raised_by_the_next(self) -> None:
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

    def test_without_execution_callbacks_are_returned(self) -> None:
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
