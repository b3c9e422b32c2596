"""Pace: how many claims a worker asks for, from how long its jobs have taken lately.

Enough for 50 ms of work, so that short jobs share round trips; never more than the free slots where jobs are long, so
that none waits here while another worker is free. When short jobs turn into long ones, what is held beyond the slots is
given back after 100 ms.
"""

#: Seconds of work to hold.
_AHEAD = 0.05
#: Claims in one exchange, and held, at most: while Redis answers the next exchange, the pool runs the last one's.
MAX_CLAIMS, _MAX_HELD = 64, 128
#: Weight of the newest run in the average.
_NEWEST = 0.1


class Pace:
    """The measured pace of one worker."""

    def __init__(self, size: int) -> None:
        self._size = size
        #: Average seconds of a run; None before the first.
        self._average: float | None = None

    def ran(self, run_us: int) -> None:
        """Count a run in."""
        seconds = run_us / 1_000_000
        self._average = seconds if self._average is None else self._average + _NEWEST * (seconds - self._average)

    def stalled(self) -> None:
        """Ask for no more than the free slots for now: what was asked for ahead waited too long and was given back."""
        self._average = max(self._average or 0.0, _AHEAD)

    @property
    def target(self) -> int:
        """Claims worth holding: what 50 ms of work take, 1 to 128."""
        if self._average is None:
            return self._size
        return max(1, min(_MAX_HELD, int(self._size * _AHEAD / max(self._average, 1e-6))))

    @property
    def low(self) -> int:
        """Claims left at which it is time to ask again, before the pool runs dry."""
        return max(self.target // 4, self.target - MAX_CLAIMS)

    def want(self, held: int) -> int:
        """Return how many claims to ask for while `held` are held: 0 to 64."""
        return min(MAX_CLAIMS, max(self._size - held, self.target - held, 0))
