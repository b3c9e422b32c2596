"""Done log: which done jobs have log lines of their own. One line a second has the number of the others.

A line costs as much as the rest of a short job. So a worker's terminal shows every job while they are few. Handlers of
the project get a line for every job.
"""

import logging
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import inf
from time import monotonic

from django_delayq.clock import SECOND_US
from django_delayq.logs import TerminalHandler, logger
from django_delayq.processes.emitter import Emission, emitter

#: Most lines of done jobs in a second, for the whole process.
_LINES = 10
#: A job that ran for this many µs or more always has its own line.
_SLOW_US = SECOND_US


class DoneLog:
    """The lines of the done jobs of a process, for the workers of all its shards. Thread-safe."""

    def __init__(
        self,
        *,
        set_timed_emission: Callable[[float, Emission], None] = emitter.set_timed_emission,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._set_timed_emission = set_timed_emission
        self._clock = clock
        self._lock = threading.Lock()
        self._second_ends = -inf
        self._lines_left = 0
        self._has_all_lines = False
        #: Run times, in µs, of the jobs that no line has named or counted yet; and when the first of them was added.
        self._run_us: list[int] = []
        self._since = 0.0

    @contextmanager
    def choosing(self) -> Iterator[Callable[[int], bool]]:
        """Yield a function that takes the run time of a done job, in µs, and returns whether the job has its own line.

        It counts the other jobs. The lock is held during the whole `with` block: once for all jobs of an exchange.
        """
        if not logger.isEnabledFor(logging.INFO):
            yield _no_line
            return
        with self._lock:
            now, was_empty = self._clock(), not self._run_us
            if is_new := now >= self._second_ends:
                self._second_ends, self._lines_left = now + 1.0, _LINES
            self._has_all_lines = logger.isEnabledFor(logging.DEBUG) or _project_logs_info()
            try:
                yield self._has_line
            finally:
                if was_empty:
                    self._since = now
                # In each second again: an exception raised in the emitter's thread may have lost the last emission.
                if self._run_us and (was_empty or is_new):
                    self._set_timed_emission(self._second_ends, self._sum_up)

    def _has_line(self, run_us: int) -> bool:
        if self._has_all_lines or run_us >= _SLOW_US:
            return True
        if self._lines_left:
            self._lines_left -= 1
            return True
        self._run_us.append(run_us)
        return False

    def _sum_up(self) -> None:
        """Log the number of jobs without a line of their own. Called in the emitter's thread."""
        with self._lock:
            run_us, self._run_us = self._run_us, []
            # A slow receiver before this emission may have delayed it.
            seconds = round(self._clock() - self._since)
        if run_us:
            run_us.sort()
            count, p99_us = len(run_us), run_us[-(-len(run_us) * 99 // 100) - 1]
            last = f"{seconds:,} seconds" if seconds > 1 else "second"
            noun = "job" if count == 1 else "jobs"
            logger.info("%s more %s done in the last %s, p99 %.2f ms", f"{count:,}", noun, last, p99_us / 1_000)


def _no_line(run_us: int) -> bool:
    return False


def _project_logs_info() -> bool:
    """Return whether a handler of the project takes records of level INFO."""
    each: logging.Logger | None = logger.logger
    while each is not None:
        for handler in each.handlers:
            if handler.level <= logging.INFO and not isinstance(handler, TerminalHandler):
                return True
        each = each.parent if each.propagate else None
    return False


done_log = DoneLog()
# A fork may copy a held lock, and the parent sums up what it has counted.
os.register_at_fork(after_in_child=done_log.__init__)  # type: ignore[misc]
