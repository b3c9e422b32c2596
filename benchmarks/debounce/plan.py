"""Plan: which producer calls which key when, and how a run is recorded.

The calls of each key spread evenly over 40 seconds, and each key begins 1.2 s after the one before. So keys become
due while others are called. Every second key is due `wait` after its last call; for the others `max_wait` after the
first call comes earlier.
"""

import random
import time
from dataclasses import dataclass

from benchmarks.local import run_log

PRODUCERS, KEYS, CALLS = 50, 50, 10
SPAN, STAGGER = 40.0, 1.2


@dataclass(frozen=True, slots=True)
class Rule:
    """Seconds from the last call, and at most from the first call, until a key is due."""

    wait: float
    max_wait: float

    def due_between(self, calls: list[tuple[int, int]]) -> tuple[int, int]:
        """Return the earliest and the latest right due time (µs), from when each call began and returned.

        Redis decided the order of the calls at some moment between the two.
        """
        began, returned = zip(*calls, strict=True)
        wait_us, max_wait_us = int(1e6 * self.wait), int(1e6 * self.max_wait)
        lowest = min(max(began) + wait_us, min(began) + max_wait_us)
        return lowest, min(max(returned) + wait_us, min(returned) + max_wait_us)

    def is_one_series(self, calls: list[tuple[int, int]]) -> bool:
        """Return whether the producers kept the pace: no call came after the key was due."""
        begins, (due_us, _) = sorted(began for began, _ in calls), self.due_between(calls)
        gap_us = max(later - one for one, later in zip(begins, begins[1:], strict=False))
        return max(returned for _, returned in calls) < due_us and gap_us < 1e6 * self.wait


#: The last call decides, or the first one.
LAST, FIRST = Rule(2.0, 60.0), Rule(8.0, 44.0)


def rule_of(number: int) -> Rule:
    """Return the rule of a key."""
    return FIRST if number % 2 else LAST


def calls_of(producer: int) -> list[tuple[float, int]]:
    """Return the calls of one producer: seconds after the begin, and number of the key."""
    chance = random.Random(producer)
    return sorted(
        (STAGGER * key + SPAN * (call + chance.random()) / CALLS, key) for key in range(KEYS) for call in range(CALLS)
    )


def record(key: str, due_us: int) -> None:
    """Append a run to the run log."""
    run_log.record(f"{key} {time.time_ns() // 1_000} {due_us}")
