"""Cron: a rule of cron fields in a time zone, and what happens when its clocks change.

The package `cronsim` finds the wall times that match the fields. It is given times without a zone: its own treatment of
time zones differs between five and six fields, and loses or repeats occurrences around a change. Here

- a rule has fixed hours if neither its minute nor its hour begins with `*`;
- clocks go forward: wall times in between do not exist. A rule with fixed hours that has occurrences there has one when
  the clocks go forward. Other rules have none there;
- clocks go back: some wall times come twice. A rule with fixed hours runs in the first pass only, others in both.

This is what cron on Debian does, for five fields as for six.
"""

from copy import copy
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from django.core.exceptions import ImproperlyConfigured

from django_delayq.clock import DAY_US, HOUR_US, LATEST_US, SECOND_US
from django_delayq.exceptions import InvalidSchedule

if TYPE_CHECKING:
    from cronsim import CronSim

_SECOND, _MICROSECOND = timedelta(seconds=1), timedelta(microseconds=1)
_EPOCH = datetime(1970, 1, 1)
#: Most characters of the fields: six that list all their values take 526.
_LONGEST = 1_000
#: cronsim knows none of these.
_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}


class Cron:
    """Occurrences at the wall times of a time zone that match cron fields."""

    __slots__ = ("_found", "_has_fixed_hours", "_matches", "fields", "zone")

    def __init__(self, fields: str, zone: ZoneInfo) -> None:
        """Take five fields, six with the seconds first, or a nickname. Raises `InvalidSchedule`."""
        self.fields, self.zone = " ".join(fields.split()), zone
        self._matches = _parse(self.fields)
        minute, hour = self._matches.parts[1:3]
        self._has_fixed_hours = not minute.startswith("*") and not hour.startswith("*")
        #: The moments for which occurrences were searched last, and these: many schedules have the same rule. The plan
        #: of one needs up to four: the next one, that after it, and after an outage the last one and that after it.
        self._found = ((0, 0),) * 4

    def __eq__(self, other: object) -> bool:
        # A rule of hours is not the same as one that was declared with its fields.
        return isinstance(other, Cron) and (self.text, self._has_fixed_hours) == (other.text, other._has_fixed_hours)

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Cron({self.fields!r}, {self.zone.key!r})"

    @property
    def six_fields(self) -> list[str]:
        """The fields with the seconds first, also of five fields and of a nickname."""
        return list(self._matches.parts)

    @property
    def text(self) -> str:
        """The fields and the zone."""
        return f"{self.fields} in {self.zone.key}"

    @property
    def least_distance_us(self) -> int:
        """A second, a minute, an hour or a day, by the first field that names several values."""
        second, minute, hour = (part.isdigit() for part in self._matches.parts[:3])
        if not (second and minute):
            return 60 * SECOND_US if second else SECOND_US
        return DAY_US if hour else HOUR_US

    def hours(self) -> tuple["Cron", list[int]]:
        """Return a rule with the beginning of each hour that has occurrences, and how much later these are.

        The distances are µs, sorted. When clocks change, an hour may have fewer of them.
        """
        found = self._matches
        distances = sorted(60 * minute + second for minute in found.minutes for second in found.seconds)
        hours = Cron(" ".join(["0 0", *found.parts[2:]]), self.zone)
        # Its minute is a number now.
        hours._has_fixed_hours = self._has_fixed_hours
        return hours, [each * SECOND_US for each in distances]

    def next_after(self, moment_us: int) -> int | None:
        """Return the first occurrence after a moment (both µs since the epoch); None if none comes before 2255."""
        if moment_us >= LATEST_US:
            return None
        for searched, found in self._found:
            if searched <= moment_us < found:
                return found
        occurrence = self._next_after(_EPOCH + moment_us * _MICROSECOND)
        occurrence_us = LATEST_US if occurrence is None else (occurrence - _EPOCH) // _MICROSECOND
        if occurrence_us >= LATEST_US:
            return None
        self._found = (*self._found[1:], (moment_us, occurrence_us))
        return occurrence_us

    def _next_after(self, moment: datetime) -> datetime | None:
        """Return the first occurrence after a moment, both in UTC without a zone."""
        local = moment.replace(tzinfo=UTC).astimezone(self.zone)
        wall = local.replace(tzinfo=None, fold=0)
        before, after = self._offsets(wall)
        if before > after:
            # The wall times from `start` to `end` come twice.
            change = self._change_near(wall)
            start, end = change + after, change + before
            if local.fold == 0 and not self._has_fixed_hours:
                match = self._match_after(wall)
                again = self._match_after(start - _SECOND)
                if (match is None or match >= end) and again is not None and again < end:
                    return again - after
            elif local.fold == 1 and self._has_fixed_hours:
                wall = end - _SECOND
        while (match := self._match_after(wall)) is not None:
            before, after = self._offsets(match)
            if before >= after:
                first = match - before
                return first if first > moment else match - after
            # There is no such wall time: clocks go forward from `change + before` to `change + after`.
            change = self._change_near(match)
            if self._has_fixed_hours:
                return change
            wall = change + after - _SECOND
        return None

    def _match_after(self, wall: datetime) -> datetime | None:
        """Return the first wall time after another that matches the fields; None if none does for 50 years."""
        # A copy, because the object moves to what it finds, and threads share it.
        matches = copy(self._matches)
        matches.dt = wall.replace(microsecond=0)
        return next(matches, None)

    def _offsets(self, wall: datetime) -> tuple[timedelta, timedelta]:
        """Return the offset to UTC at a wall time in its first and in its second pass.

        They differ only near a change: the first is larger if the time comes twice, and less if it does not exist.
        """
        first, second = self.zone.utcoffset(wall), self.zone.utcoffset(wall.replace(fold=1))
        assert first is not None
        assert second is not None
        return first, second

    def _change_near(self, wall: datetime) -> datetime:
        """Return the moment (UTC) of the change because of which a wall time comes twice or does not exist."""
        before, after = self._offsets(wall)
        low, high = sorted((wall - before, wall - after))
        # The offset is `before` at `low` and `after` at `high`, and changes at a whole second.
        while high - low > _SECOND:
            middle = low + (high - low) // 2 // _SECOND * _SECOND
            if self.zone.fromutc(middle.replace(tzinfo=self.zone)).utcoffset() == after:
                high = middle
            else:
                low = middle
        return high


# Few of a million schedules have rules of their own.
@lru_cache(maxsize=4_096)
def make_cron(fields: Any, zone: ZoneInfo) -> Cron:
    """Return the rule of cron fields. Raises `InvalidSchedule`; ImproperlyConfigured without the package cronsim."""
    if not isinstance(fields, str):
        raise InvalidSchedule(f"cron must be a string such as '0 9 * * mon-fri', got {type(fields).__name__}")
    if len(fields) > _LONGEST:
        raise InvalidSchedule(f"cron= has {len(fields):,} characters, more than {_LONGEST:,}; use ranges and steps")
    return Cron(fields, zone)


def _parse(fields: str) -> "CronSim":
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        raise ImproperlyConfigured("cron= needs the package cronsim: pip install 'django-delayq[cron]'") from None
    text = _NICKNAMES.get(fields.lower(), fields)
    if text.startswith("@"):
        raise InvalidSchedule(f"cron={fields!r:.80} is no nickname; use one of {', '.join(_NICKNAMES)}, or five fields")
    try:
        return CronSim(text, _EPOCH)
    except (CronSimError, AssertionError, TypeError, ValueError) as error:
        # Other errors than its own are raised for fields such as `L/2-3`.
        reason = str(error).lower() or "a field is wrong"
        if len(text.split()) in (5, 6):
            cure = "names are as mon or jan, ranges go upwards (fri-sat,sun-mon), and some month must have the day"
        else:
            cure = "use five fields: minute hour day-of-month month day-of-week, or six with the seconds first"
        raise InvalidSchedule(f"cron={fields!r:.80} cannot be read ({reason}); {cure}") from None
