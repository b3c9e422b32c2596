"""FakeClock: the time that Redis's scripts are told in tests; it runs with Python's and is turned by hand.

What time-machine or freezegun makes of Python's time, this clock follows.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from time import time_ns

from django_delayq.clock import SECOND_US


class FakeClock:
    """A clock that a test turns; given a moment (µs since the epoch), it stands still there."""

    def __init__(self, now_us: int | None = None) -> None:
        self._stands_at = now_us
        self._turned_us = 0
        self._began_us = self.now_us

    def argument(self) -> int:
        """Return the scripts' first argument."""
        return self.now_us

    @property
    def now_us(self) -> int:
        """What time it is: µs since the epoch."""
        return (time_ns() // 1_000 if self._stands_at is None else self._stands_at) + self._turned_us

    @now_us.setter
    def now_us(self, us: int) -> None:
        self._turned_us += us - self.now_us

    def steady(self) -> float:
        """Return the seconds that passed since this clock was made."""
        return (self.now_us - self._began_us) / SECOND_US

    def advance(self, us: int) -> None:
        """Let so many µs pass."""
        self._turned_us += us

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Let time stand still inside, where nobody turns it."""
        before, self._stands_at = self._stands_at, self.now_us - self._turned_us
        try:
            yield
        finally:
            self._stands_at = before
