"""Fake clock: the time that tests pass to the Redis scripts. It follows Python's clock and can be moved.

It also follows what time-machine or freezegun does to Python's clock.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from time import time_ns

from django_delayq.clock import SECOND_US


class FakeClock:
    """A clock that a test moves. Given a moment (µs since the epoch), it stands still there."""

    def __init__(self, now_us: int | None = None) -> None:
        self._frozen_at = now_us
        self._moved_us = 0
        self._began_us = self.now_us

    def argument(self) -> int:
        """Return the first argument of the scripts."""
        return self.now_us

    @property
    def now_us(self) -> int:
        """The time in µs since the epoch."""
        return (time_ns() // 1_000 if self._frozen_at is None else self._frozen_at) + self._moved_us

    @now_us.setter
    def now_us(self, us: int) -> None:
        self._moved_us += us - self.now_us

    def steady(self) -> float:
        """Return the seconds that passed since this clock was made."""
        return (self.now_us - self._began_us) / SECOND_US

    def advance(self, us: int) -> None:
        """Move the clock by so many µs."""
        self._moved_us += us

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the clock inside the block; it still can be moved."""
        before, self._frozen_at = self._frozen_at, self.now_us - self._moved_us
        try:
            yield
        finally:
            self._frozen_at = before
