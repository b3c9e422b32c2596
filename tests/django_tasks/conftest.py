"""The backend on the session's emptied server, a worker in this process, and the signals it sends."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from django_delayq.job import ids
from tests.django_tasks.compat import task_enqueued, task_finished, task_started
from tests.django_tasks.worker import OneWorker

BACKEND = "django_delayq.backend.DelayQBackend"


@pytest.fixture(autouse=True)
def tasks_settings(delayq_settings: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Point TASKS at us: `default` and `second`, any queue. Returns pytest-django's settings."""
    # Ids go on from the latest time there was, and other tests turn time far ahead.
    monkeypatch.setattr(ids, "_sequence", ids._Sequence())
    delayq_settings.TASKS = {alias: {"BACKEND": BACKEND, "QUEUES": []} for alias in ("default", "second")}
    return delayq_settings


def with_options(settings: Any, **options: Any) -> None:
    """Give `default` other OPTIONS."""
    settings.TASKS = {"default": {"BACKEND": BACKEND, "QUEUES": [], "OPTIONS": options}}


@pytest.fixture
def drain() -> Callable[..., int]:
    """Run what is due now: `drain()`, `drain("second")`."""
    return lambda backend="default": OneWorker(backend).drain()


class Heard:
    """Signals in their order: (word, sender, what the result said then)."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any, Any]] = []

    @property
    def words(self) -> list[str]:
        """The words and states alone."""
        return [f"{word} {result.status}" for word, _, result in self.told]


@pytest.fixture
def heard() -> Iterator[Heard]:
    """Listen to the three signals."""
    listener = Heard()
    receivers = []
    for word, signal in (("enqueued", task_enqueued), ("started", task_started), ("finished", task_finished)):

        def receive(sender: Any, task_result: Any, word: str = word, **_: Any) -> None:
            listener.told.append((word, sender, task_result))

        signal.connect(receive)
        receivers.append((signal, receive))
    yield listener
    for signal, receiver in receivers:
        signal.disconnect(receiver)
