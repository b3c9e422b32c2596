"""Aim: get up so much before a due time that the promotion reaches Redis just when it comes.

Between a timer's end and Redis lie the wake-up, our own code on cold caches, and the way there: 0.3 to 1 ms, whatever
the machine does. The lead follows what is measured: a little more after each late arrival, a lot less after an early
one, which moves nothing and costs one more step. Being early is never dangerous, since only Redis decides what is due.
"""

from django_delayq.clock import SECOND_US

#: Longest lead, in µs: beyond that the machine is overloaded, and getting up earlier would not help.
_LONGEST_US = 2_000
#: Share of a lateness added to the lead, and what an early arrival leaves of it.
_MORE, _LESS = 0.1, 0.7


class Aim:
    """The lead of one dispatcher."""

    def __init__(self) -> None:
        self._lead_us = 0.0

    @property
    def reach_us(self) -> float:
        """The lead in µs: what is due within it is as good as due."""
        return self._lead_us

    def sleep(self, sleep_us: int) -> float:
        """Return the seconds to sleep for something that is due in `sleep_us`."""
        return max(0.0, (sleep_us - self._lead_us) / SECOND_US)

    def hit(self, late_us: int) -> None:
        """Learn from a promotion that found a job due."""
        self._lead_us = min(_LONGEST_US, self._lead_us + _MORE * min(max(0, late_us), _LONGEST_US))

    def early(self) -> None:
        """Learn from a promotion that came before its time."""
        self._lead_us *= _LESS
