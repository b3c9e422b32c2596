"""Presence under stress: many shards of a Redis that does not answer, and outcomes of the same moment."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Any

import pytest

from django_delayq.endings import Endings
from django_delayq.outcome import UNSTARTED
from django_delayq.presence import Presence, present
from django_delayq.tally import Tally

#: One second is for all; one for each would be eight.
_SHARDS, _BOUND = 8, 5.0


class _Mute:
    """A door behind which nobody answers a leave until the test ends."""

    def __init__(self, answered: threading.Event) -> None:
        self._answered = answered

    def report(self, code: bytes, kind: str, said: object, rows: object) -> bool:
        return False

    def leave(self, code: bytes, rows: object) -> None:
        self._answered.wait()


class _Reporter:
    kind, code = "worker", bytes(8)

    def __init__(self) -> None:
        self.tally = Tally()

    def says(self) -> dict[str, object]:
        return {}

    def quiet(self, asked: bool) -> None:
        pass


@pytest.fixture
def answered() -> Iterator[threading.Event]:
    """Set when the test is over."""
    event = threading.Event()
    yield event
    event.set()


def test_shards_share_the_second_for_taking_leave(answered: threading.Event) -> None:
    presences = [Presence(_Mute(answered), _Reporter()) for _ in range(_SHARDS)]  # type: ignore[arg-type]
    with present(presences):
        began_at = monotonic()
    assert monotonic() - began_at < _BOUND


class _AtOnce(deque[Any]):
    """A deque to which a second thread adds while the first is within its append."""

    def __init__(self, second: Callable[[], object]) -> None:
        super().__init__()
        self._second: Callable[[], object] | None = second

    def append(self, item: Any) -> None:
        super().append(item)
        second, self._second = self._second, None
        if second:
            second()


def test_one_of_two_outcomes_of_the_same_moment_wakes_the_worker() -> None:
    endings, claim = Endings(), object()
    woke: list[bool] = []
    endings._ended = _AtOnce(lambda: woke.append(endings.add(claim, UNSTARTED)))  # type: ignore[arg-type]
    woke.append(endings.add(claim, UNSTARTED))  # type: ignore[arg-type]
    assert len(endings) == 2
    assert any(woke)
