"""Fixtures: the backend on the session's emptied server, a worker in this process, and a log of signals."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_delayq import runtime
from django_delayq.job import ids
from django_delayq.testing.fake_clock import FakeClock
from tests.django_tasks.compat import task_enqueued, task_finished, task_started
from tests.django_tasks.worker import OneWorker

BACKEND = "django_delayq.backend.DelayQBackend"


@pytest.fixture(autouse=True)
def tasks_settings(delayq_settings: Any) -> Any:
    """Set TASKS to this backend: `default` and `second`, any queue. Returns pytest-django's settings."""
    # Ids never go back in time, and other tests set the clock far ahead.
    ids.restart_sequence()
    delayq_settings.TASKS = {alias: {"BACKEND": BACKEND, "QUEUES": []} for alias in ("default", "second")}
    return delayq_settings


def with_options(settings: Any, **options: Any) -> None:
    """Give `default` other OPTIONS."""
    settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": options}}


@pytest.fixture
def drain() -> Callable[..., int]:
    """Run what is due now: `drain()`, `drain("second")`."""
    return lambda backend="default": OneWorker(backend).drain()


class SignalLog:
    """Signals in their order: (word, sender, result as it was then)."""

    def __init__(self) -> None:
        self.received: list[tuple[str, Any, Any]] = []

    @property
    def words(self) -> list[str]:
        """The words and statuses only."""
        return [f"{word} {result.status}" for word, _, result in self.received]


@pytest.fixture
def signal_log() -> Iterator[SignalLog]:
    """Record the three signals."""
    log = SignalLog()
    receivers = []
    for word, signal in (("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished)):

        def receive(sender: Any, task_result: Any, word: str = word, **_: Any) -> None:
            log.received.append((word, sender, task_result))

        signal.connect(receive)
        receivers.append((signal, receive))
    yield log
    for signal, receiver in receivers:
        signal.disconnect(receiver)


@pytest.fixture
def moved_clock() -> Iterator[FakeClock]:
    """The clock of every store that is made from now on; the test moves it."""
    clock = FakeClock()
    with runtime.override(clock=clock):
        yield clock
