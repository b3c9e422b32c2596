"""Ticks: the moments at which an idle process sends what can wait, for all of its shards together."""

import os
import random
from time import monotonic

_share: float


def _draw() -> None:
    global _share
    _share = random.SystemRandom().random()


_draw()
# Otherwise all children of a process would have the same ticks.
os.register_at_fork(after_in_child=_draw)


def process_share() -> float:
    """Return a number from 0 to 1 that all threads of this process share; other processes have others."""
    return _share


def until_tick(period: float) -> float:
    """Return the seconds until the next tick; ticks are `period` seconds apart, the same for all threads of a process.

    Ticks of a period are also ticks of the periods that it is a multiple of.
    """
    return period - (monotonic() - _share * 3_600.0) % period
