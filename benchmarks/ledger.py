"""Ledger: which job ran how often and when it began, kept by the workers in shared memory (`peers/work.py`)."""

import mmap
import struct
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchmarks.peers.work import JOB_BYTES

#: Seconds to wait after the last job, for one that would run twice.
AFTER = 0.5
#: Seconds without a run after which a job that waits counts as lost.
STALLED = 5.0


class Untrue(Exception):
    """A run whose jobs did not each run exactly once has no figure."""


class Ledger:
    """The counts and starts of one measurement's jobs."""

    def __init__(self, path: Path, jobs: int) -> None:
        path.write_bytes(bytes(JOB_BYTES * jobs))
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self.jobs = jobs

    def done(self, first: int, count: int) -> bool:
        """Tell whether each of the jobs ran at least once. Costs microseconds."""
        return self._memory.find(b"\0", first, first + count) < 0

    def ran(self, first: int, count: int) -> int:
        """Return how many of the jobs ran."""
        return count - self._memory[first : first + count].count(0)

    def wait(self, first: int, count: int, *, seconds: float, alive: Callable[[], None] = lambda: None) -> bool:
        """Wait until all have run; False if the time ends before. `alive` may raise.

        Raises `Untrue` where the time ended long after the last job that ran: the others are lost.
        """
        began = progress = time.monotonic()
        ran = 0
        while not self.done(first, count):
            now, before = time.monotonic(), ran
            if (ran := self.ran(first, count)) > before:
                progress = now
            if now > began + seconds:
                if ran and now > progress + STALLED:
                    raise Untrue(
                        f"{count - ran:,} of {count:,} jobs had not run {now - progress:.0f} s after the others"
                    )
                return False
            alive()
            time.sleep(0.002)
        return True

    def check(self, first: int, count: int, *, all_of_them: bool = True) -> None:
        """Raise `Untrue` where a job ran twice, or, unless not all had the time, never."""
        time.sleep(AFTER)
        runs = Counter(self._memory[first : first + count])
        never, twice = runs.pop(0, 0), sum(runs.values()) - runs.get(1, 0)
        if twice or (never and all_of_them):
            raise Untrue(f"of {count:,} jobs {never:,} never ran and {twice:,} ran more than once")

    def starts_us(self, first: int, count: int) -> list[int]:
        """Return when each of the jobs began, in µs since the epoch."""
        return list(struct.unpack_from(f"<{count}q", self._memory, self.jobs + 8 * first))
