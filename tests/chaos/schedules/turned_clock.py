"""Turned clock: the time of several processes, which a test turns. It is a file that all of them map."""

import mmap
from pathlib import Path
from struct import Struct

from django_delayq.clock import SECOND_US

_MOMENT = Struct("=Q")


class TurnedClock:
    """A clock whose time is in a file, as µs since the epoch."""

    def __init__(self, path: Path) -> None:
        with path.open("r+b") as file:
            # As one machine word: `pack_into` writes zeros first, and another process would read these.
            self._word = memoryview(mmap.mmap(file.fileno(), _MOMENT.size)).cast("Q")

    @staticmethod
    def create(path: Path, now_us: int) -> "TurnedClock":
        """Make the file, with a first time."""
        path.write_bytes(_MOMENT.pack(now_us))
        return TurnedClock(path)

    @property
    def now_us(self) -> int:
        """The time in µs since the epoch."""
        return int(self._word[0])

    def turn(self, now_us: int) -> None:
        """Set the time of all processes."""
        self._word[0] = now_us

    def argument(self) -> int:
        """Return the first argument of the scripts."""
        return self.now_us

    def steady(self) -> float:
        """Return a time in seconds that advances with this clock."""
        return self.now_us / SECOND_US
