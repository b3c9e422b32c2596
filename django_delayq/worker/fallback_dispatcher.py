"""FallbackDispatcher: a worker does the dispatcher's steps while no dispatcher is alive; jobs are only late then."""

from math import inf
from time import monotonic

from django_delayq.clock import SECOND_US
from django_delayq.dispatcher import Dispatcher

#: Steps in a row, between which the worker does its own work.
_STEPS = 20
#: Seconds past the next promotion after which it is overdue, as `exchange` counts them, and a little more.
_OVERDUE, _LITTLE = 1.05, 0.05
#: Seconds between two questions at least, where another promotes: its next moment is often near.
_SELDOM = 2.5


class FallbackDispatcher:
    """One shard's dispatcher in a worker's hands."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        #: Monotonic moment at which to ask by an exchange: the next promotion is overdue then, if nobody else came.
        self.check_at = inf

    def promote(self) -> bool:
        """Do whole steps until nothing more is due; true where they made jobs ready."""
        moved = False
        for _ in range(_STEPS):
            promoted = self._dispatcher.promote()
            moved = moved or promoted.moved > 0
            if promoted.sleep_us > 0:
                self.check_at = monotonic() + promoted.sleep_us / SECOND_US + _OVERDUE
                break
        return moved

    def told(self, overdue_in_us: int) -> None:
        """Note the answer of an exchange: the next promotion is overdue after so many µs."""
        now = monotonic()
        if self.check_at == inf or now >= self.check_at:
            self.check_at = now + max(_SELDOM, overdue_in_us / SECOND_US + _LITTLE)

    def close(self) -> None:
        """Let go of the connection."""
        self._dispatcher.close()
