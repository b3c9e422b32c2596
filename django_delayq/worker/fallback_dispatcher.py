"""Fallback dispatcher: a worker promotes while no dispatcher is alive. Jobs are late then, but they run."""

from collections.abc import Callable
from math import inf
from time import monotonic

from django_delayq.clock import SECOND_US
from django_delayq.dispatcher.dispatcher import Dispatcher

#: Promotions in a row, before the worker returns to its own work.
_STEPS = 20
#: Seconds after which a promotion is overdue, as `settle_and_claim` counts them; and a margin.
_OVERDUE, _MARGIN = 1.05, 0.05
#: Shortest time between two checks, in seconds, if a dispatcher is alive: its next promotion is often near.
_MIN_INTERVAL = 2.5


class FallbackDispatcher:
    """Promotes one shard's jobs on behalf of a missing dispatcher."""

    def __init__(self, dispatcher: Dispatcher, *, clock: Callable[[], float] = monotonic) -> None:
        self._dispatcher = dispatcher
        self._clock = clock
        #: Monotonic moment of the next check, which is an exchange: by then the next promotion is overdue.
        self.check_at = inf

    def promote(self) -> bool:
        """Promote until no job is due, at most 20 times; returns whether a job became ready."""
        moved = False
        for _ in range(_STEPS):
            promoted = self._dispatcher.promote()
            moved = moved or promoted.moved > 0
            if promoted.sleep_us > 0:
                self.check_at = self._clock() + promoted.sleep_us / SECOND_US + _OVERDUE
                break
        return moved

    def record_reply(self, overdue_in_us: int) -> None:
        """Schedule the next check, given in how many µs the next promotion is overdue. The reply itself was a check."""
        now, overdue_in = self._clock(), overdue_in_us / SECOND_US
        # If it is later than the one that is waited for, another process has promoted.
        if not now < now + overdue_in <= self.check_at < inf:
            self.check_at = now + max(_MIN_INTERVAL, overdue_in + _MARGIN)

    def close(self) -> None:
        """Close the connection."""
        self._dispatcher.close()
