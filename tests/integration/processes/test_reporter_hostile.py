"""Process reporters of many shards of a Redis that does not answer."""

import threading
from collections.abc import Iterator

import pytest

from django_delayq.job.ending import NO_ENDINGS
from django_delayq.metrics import MetricsBuffer
from django_delayq.processes.reporter import ProcessReporter, reporting

_SHARDS = 8


class _Unanswered:
    """Reports whose deregistering blocks until the test ends."""

    def __init__(self, answered: threading.Event) -> None:
        self._answered = answered

    def report(self, code: bytes, kind: str, said: object, rows: object, endings: object) -> bool:
        return False

    def deregister(self, code: bytes, rows: object, endings: object, *, name: str) -> None:
        self._answered.wait()


class _Source:
    kind, worker_id = "worker", bytes(8)

    def __init__(self) -> None:
        self.metrics, self.endings = MetricsBuffer(), NO_ENDINGS

    def status(self) -> dict[str, object]:
        return {}

    def quiet(self, wanted: bool) -> None:
        pass


@pytest.fixture
def answered() -> Iterator[threading.Event]:
    """An event that is set at the end of the test."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("patience", [1.0, 0.025])
def test_shards_share_the_time_for_deregistering(
    answered: threading.Event, monkeypatch: pytest.MonkeyPatch, patience: float
) -> None:
    now, waits = 1_000.0, []

    class Unanswered(threading.Thread):
        """A thread that never ends, on a clock that only `join` advances."""

        def join(self, timeout: float | None = None) -> None:
            nonlocal now
            assert timeout is not None, "join has no timeout"
            waits.append(timeout)
            now += timeout

    reporters = [ProcessReporter(_Unanswered(answered), _Source()) for _ in range(_SHARDS)]  # type: ignore[arg-type]
    with reporting(reporters, patience=lambda: patience, clock=lambda: now):
        monkeypatch.setattr(threading, "Thread", Unanswered)
    assert len(waits) == _SHARDS
    assert sum(waits) <= patience
