"""Presence under stress: many shards of a Redis that does not answer, and outcomes of the same moment."""

import threading
from collections.abc import Iterator

import pytest

from django_delayq.metrics import MetricsBuffer
from django_delayq.processes import reporter as presence
from django_delayq.processes.reporter import ProcessReporter, reporting

_SHARDS = 8


class _Mute:
    """A door behind which nobody answers a leave until the test ends."""

    def __init__(self, answered: threading.Event) -> None:
        self._answered = answered

    def report(self, code: bytes, kind: str, said: object, rows: object) -> bool:
        return False

    def deregister(self, code: bytes, rows: object) -> None:
        self._answered.wait()


class _Reporter:
    kind, worker_id = "worker", bytes(8)

    def __init__(self) -> None:
        self.metrics = MetricsBuffer()

    def status(self) -> dict[str, object]:
        return {}

    def quiet(self, asked: bool) -> None:
        pass


@pytest.fixture
def answered() -> Iterator[threading.Event]:
    """Set when the test is over."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("patience", [1.0, 0.025])
def test_shards_share_the_time_for_taking_leave(
    answered: threading.Event, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    now, waits = 1_000.0, []

    class Unanswered(threading.Thread):
        """A leave that is waited for in vain: by a clock that only waiting moves on."""

        def join(self, timeout: float | None = None) -> None:
            nonlocal now
            assert timeout is not None, "a leave is waited for without end"
            waits.append(timeout)
            now += timeout

    monkeypatch.setattr(presence, "monotonic", lambda: now)
    presences = [ProcessReporter(_Mute(answered), _Reporter()) for _ in range(_SHARDS)]  # type: ignore[arg-type]
    with reporting(presences, patience=lambda: patience):
        monkeypatch.setattr(threading, "Thread", Unanswered)
    assert len(waits) == _SHARDS
    assert sum(waits) <= patience
