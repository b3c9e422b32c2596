"""Rule: when the jobs of a recurring schedule are due. Each of these moments is an occurrence.

Occurrences are µs since the epoch, on whole seconds, and strictly increase. A rule has no state: every process computes
the same ones.
"""

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice, pairwise
from typing import Any, Protocol

from django_delayq.clock import DAY_US, LATEST_US, SECOND_US, duration_us, moment_us
from django_delayq.exceptions import InvalidSchedule
from django_delayq.recurring.cron import make_cron
from django_delayq.recurring.zones import zone_of

_EVERY, _CRON = re.compile(r"every ([1-9]\d{0,11}) from (\d{1,11})"), re.compile(r"(.*) in (\S+)")
#: The shortest interval: a dispatcher plants one job of a schedule after the other.
_SHORTEST_US = SECOND_US
#: Among how many occurrences the shortest distance is searched.
_LOOKED_AT = 50


class HasOccurrences(Protocol):
    """A rule, or a schedule, which bounds one."""

    def next_after(self, moment_us: int, /) -> int | None:
        """Return the first occurrence after a moment (both µs since the epoch); None if none comes before 2255."""


class Rule(HasOccurrences, Hashable, Protocol):
    """The occurrences of a schedule."""

    @property
    def text(self) -> str:
        """The rule as it is stored; `read_rule()` returns an equal rule."""

    @property
    def least_distance_us(self) -> int:
        """The least time between two occurrences while no clocks change, or less; µs. It takes no search."""

    def __hash__(self) -> int:
        """Return a hash by the text."""


@dataclass(frozen=True, slots=True)
class Every:
    """Occurrences at equal distances, whatever the clocks of a time zone do."""

    #: µs, whole seconds.
    interval_us: int
    #: The first occurrence, µs since the epoch. 0: there is no first one, and the epoch is one of them.
    anchor_us: int = 0

    @property
    def text(self) -> str:
        """The interval in seconds, and the anchor in seconds since the epoch."""
        return f"every {self.interval_us // SECOND_US} from {self.anchor_us // SECOND_US}"

    @property
    def least_distance_us(self) -> int:
        """The interval."""
        return self.interval_us

    def next_after(self, moment_us: int) -> int | None:
        """Return the first occurrence after a moment. O(1)."""
        passed = max(-1, (moment_us - self.anchor_us) // self.interval_us)
        occurrence = self.anchor_us + (passed + 1) * self.interval_us
        return occurrence if occurrence <= LATEST_US else None


def make_rule(*, every: Any = None, cron: Any = None, tz: Any = None, start: Any = None) -> Rule:
    """Return the rule of an interval (seconds or a timedelta), or of cron fields in a time zone, which they need.

    `start` is an aware datetime, the first occurrence of the interval. Raises `InvalidSchedule`, `InvalidDelay` or
    `InvalidMoment`.
    """
    if (every is None) is (cron is None):
        both = "" if every is None else ", not both"
        raise InvalidSchedule(f"a schedule needs either every= or cron={both}")
    if cron is not None:
        return make_cron(cron, zone_of(tz))
    if tz is not None:
        raise InvalidSchedule("tz= is for cron=; an interval is the same in every time zone")
    interval_us = duration_us(every, name="every")
    if interval_us < _SHORTEST_US or interval_us % SECOND_US:
        raise InvalidSchedule(f"every={every!r} must be whole seconds, at least 1")
    return Every(interval_us, 0 if start is None else _whole_second(moment_us(start, name="start")))


# Few of a million schedules have rules of their own.
@lru_cache(maxsize=4_096)
def read_rule(text: str) -> Rule:
    """Return the rule of a stored text. Raises `InvalidSchedule`, also for one that a later release stored."""
    if found := _EVERY.fullmatch(text):
        return Every(int(found[1]) * SECOND_US, int(found[2]) * SECOND_US)
    if found := _CRON.fullmatch(text):
        return make_cron(found[1], zone_of(found[2]))
    raise InvalidSchedule(f"this release cannot read the rule {text!r:.80}")


def occurrences(rule: HasOccurrences, *, after_us: int, until_us: int = LATEST_US) -> Iterator[int]:
    """Yield the occurrences after a moment, up to and including another."""
    occurrence = rule.next_after(after_us)
    while occurrence is not None and occurrence <= until_us:
        yield occurrence
        occurrence = rule.next_after(occurrence)


def shortest_distance_us(rule: Rule, *, after_us: int) -> int:
    """Return the least time between two of the next occurrences, in µs."""
    return rule.least_distance_us if isinstance(rule, Every) else _shortest_us(rule, after_us // DAY_US * DAY_US)


# The search takes some ms, and many schedules have the same rule.
@lru_cache(maxsize=4_096)
def _shortest_us(rule: Rule, after_us: int) -> int:
    found = pairwise(islice(occurrences(rule, after_us=after_us), _LOOKED_AT))
    return min((later - earlier for earlier, later in found), default=LATEST_US)


def _whole_second(moment_us: int) -> int:
    return -(-moment_us // SECOND_US) * SECOND_US
