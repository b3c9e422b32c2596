"""RunRecord: how often each job ran and when it last started, written by the workers (`peer_runtime/work.py`)."""

import mmap
import struct
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from benchmarks.peer_runtime.work import BYTES_PER_JOB

#: Seconds to wait after the last run for a second run of a job.
WAIT_FOR_DUPLICATES = 0.5
#: Seconds without any run after which the missing jobs count as lost.
STALL_LIMIT = 5.0


class InvalidRun(Exception):
    """A measurement whose jobs did not each run exactly once has no figure."""


class RunRecord:
    """The run counts and start times of one measurement's jobs, in shared memory."""

    def __init__(self, path: Path, jobs: int) -> None:
        path.write_bytes(bytes(BYTES_PER_JOB * jobs))
        with open(path, "r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)
        self.jobs = jobs

    def all_ran(self, first: int, count: int) -> bool:
        """Return whether each of these jobs ran at least once. Costs microseconds."""
        return self._memory.find(b"\0", first, first + count) < 0

    def count_ran(self, first: int, count: int) -> int:
        """Return how many of these jobs ran."""
        return count - self._memory[first : first + count].count(0)

    def wait(self, first: int, count: int, *, seconds: float, check_alive: Callable[[], None] = lambda: None) -> bool:
        """Wait until all these jobs have run. Returns False after `seconds`. `check_alive` may raise.

        Raises `InvalidRun` if the last run was more than `STALL_LIMIT` ago by then: the other jobs are lost.
        """
        began = progress = time.monotonic()
        ran = 0
        while not self.all_ran(first, count):
            now, before = time.monotonic(), ran
            if (ran := self.count_ran(first, count)) > before:
                progress = now
            if now > began + seconds:
                if ran and now > progress + STALL_LIMIT:
                    raise InvalidRun(
                        f"{count - ran:,} of {count:,} jobs had not run {now - progress:.0f} s after the others"
                    )
                return False
            check_alive()
            time.sleep(0.002)
        return True

    def check(self, first: int, count: int, *, complete: bool = True) -> None:
        """Raise `InvalidRun` if a job ran twice or, if `complete`, never."""
        time.sleep(WAIT_FOR_DUPLICATES)
        runs = Counter(self._memory[first : first + count])
        never, twice = runs.pop(0, 0), sum(runs.values()) - runs.get(1, 0)
        if twice or (never and complete):
            raise InvalidRun(f"of {count:,} jobs {never:,} never ran and {twice:,} ran more than once")

    def starts_us(self, first: int, count: int) -> list[int]:
        """Return when each of these jobs started, in µs since the epoch."""
        return list(struct.unpack_from(f"<{count}q", self._memory, self.jobs + 8 * first))
