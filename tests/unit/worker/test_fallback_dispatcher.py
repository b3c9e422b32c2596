"""FallbackDispatcher: when a worker that stands in for the dispatcher checks again."""

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from django_delayq.worker.fallback_dispatcher import FallbackDispatcher


class Steps:
    """A dispatcher that returns the given steps, as pairs of jobs moved and µs to sleep."""

    def __init__(self, *steps: tuple[int, int]) -> None:
        self.left = deque(steps)

    def promote(self) -> Any:
        moved, sleep_us = self.left.popleft()
        return SimpleNamespace(moved=moved, sleep_us=sleep_us)


class Clock:
    """A clock that a test sets."""

    at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def clock() -> Clock:
    """The clock of the worker."""
    return Clock()


def test_it_steps_until_nothing_more_is_due(clock: Clock) -> None:
    steps = Steps((500, 0), (500, 0), (3, 2_000_000), (9, 0))
    assert FallbackDispatcher(steps, clock=clock).promote() is True  # type: ignore[arg-type]
    assert list(steps.left) == [(9, 0)]


def test_it_leaves_a_long_backlog_to_its_next_step(clock: Clock) -> None:
    steps = Steps(*[(500, 0)] * 30)
    assert FallbackDispatcher(steps, clock=clock).promote() is True  # type: ignore[arg-type]
    assert len(steps.left) == 10


def test_it_checks_again_once_the_next_promotion_is_overdue(clock: Clock) -> None:
    fallback = FallbackDispatcher(Steps((0, 2_000_000)), clock=clock)  # type: ignore[arg-type]
    assert fallback.promote() is False
    # `settle_and_claim` reports it as overdue a second past its time.
    assert 103.0 < fallback.check_at < 103.2
    clock.at = 102.9
    fallback.record_reply(100_000)
    assert 103.0 < fallback.check_at < 103.2
    # Another process has promoted.
    fallback.record_reply(500_000)
    assert fallback.check_at == 105.4
    clock.at = 105.4
    fallback.record_reply(4_000_000)
    assert 109.4 < fallback.check_at < 109.5


def test_beside_a_dispatcher_it_checks_rarely_and_only_once_it_would_be_overdue(clock: Clock) -> None:
    fallback = FallbackDispatcher(Steps(), clock=clock)  # type: ignore[arg-type]
    fallback.record_reply(6_000_000)
    assert 106.0 < fallback.check_at < 106.1
    clock.at = 107.0
    fallback.record_reply(10_000)
    assert fallback.check_at == 109.5
