"""StandIn: a worker that does the dispatcher's steps where none is alive; things are later then, never stuck."""

from math import inf
from time import monotonic

from django_delayq.clock import SECOND_US
from django_delayq.dispatcher import Dispatcher

#: Steps in a row, between which the worker does its own work.
_STEPS = 20
#: Seconds past the next promotion after which it is overdue, as `exchange` counts them, and a little.
_OVERDUE = 1.05


class StandIn:
    """One shard's dispatcher in a worker's hands."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher
        #: Monotonic moment at which an exchange would find the next promotion overdue, if nobody else came by then.
        self.ask_at = inf

    def promote(self) -> bool:
        """Do whole steps until nothing more is due; true where they made jobs ready."""
        moved = False
        for _ in range(_STEPS):
            promoted = self._dispatcher.promote()
            moved = moved or promoted.moved > 0
            if promoted.sleep_us > 0:
                self.ask_at = monotonic() + promoted.sleep_us / SECOND_US + _OVERDUE
                break
        return moved

    def asked(self) -> None:
        """Take down that an exchange was answered: from `ask_at` on it told whether the promotion is overdue."""
        if monotonic() >= self.ask_at:
            self.ask_at = inf

    def close(self) -> None:
        """Let go of the connection."""
        self._dispatcher.close()
