"""Schedule: a rule with its bounds, and what its jobs do when they come late or overlap.

All processes compute the same occurrences, due times and moments of planting from it.
"""

import json
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal, Self, get_args
from zoneinfo import ZoneInfo

from django.core.exceptions import ImproperlyConfigured

from django_delayq.clock import DAY_US, HOUR_US, LATEST_US, SECOND_US, duration_us, moment_us
from django_delayq.exceptions import InvalidSchedule
from django_delayq.recurring.cron import Cron
from django_delayq.recurring.rule import Rule, make_rule, read_rule, shortest_distance_us

#: What becomes of a job that would begin while the last one of its schedule has not ended: it ends as skipped, waits
#: until that one has ended, makes that one stop and waits, or begins.
Overlap = Literal["skip", "wait", "stop", "allow"]
#: What becomes of the occurrences that an outage missed: none runs, one job runs for all of them, or each has a job.
CatchUp = Literal["none", "last", "all"]
#: No release stores a larger number: with it, a due time would be no moment at all.
_LARGEST = 2**63
#: The default window of `catch_up="none"` is the interval, but not longer.
_LONGEST_WINDOW_US = HOUR_US
#: The next job is planted in the first tenth of the time to its occurrence.
_PLANTED_WITHIN = 10
#: Most bytes of a name.
_MAX_NAME = 200


#: Key, field and default of what is stored only if it is not the default.
_STORED: tuple[tuple[str, str, Any], ...] = (
    ("s", "start_us", None),
    ("e", "end_us", None),
    ("j", "jitter_us", 0),
    ("o", "overlap", "skip"),
    ("c", "catch_up", "last"),
    ("w", "window_us", None),
    ("p", "pause_after", None),
)
_KEYS = {key for key, _, _ in _STORED}
_OVERLAPS, _CATCH_UPS = get_args(Overlap), get_args(CatchUp)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """When the jobs of a recurring schedule are due. Its name spreads it among others with the same rule."""

    name: str
    rule: Rule
    #: The first and the last moment at which an occurrence may be, µs since the epoch; None: no bound.
    start_us: int | None = None
    end_us: int | None = None
    #: Its jobs are due up to this time after their occurrences, always by the same share of it.
    jitter_us: int = 0
    overlap: Overlap = "skip"
    catch_up: CatchUp = "last"
    #: With `catch_up="none"`, how late a job may begin, in µs; None: the time to the next occurrence, at most an hour.
    #: With "all", how long ago the occurrences may be that get a job; None: a day.
    window_us: int | None = None
    #: It is paused after so many failures in a row; None: never.
    pause_after: int | None = None

    def pack(self) -> bytes:
        """Return the stored form: a JSON list of its name, its rule, and an object of what differs from its default."""
        options = {key: getattr(self, name) for key, name, default in _STORED if getattr(self, name) != default}
        facts = [self.name, self.rule.text, *([options] if options else [])]
        return json.dumps(facts, separators=(",", ":")).encode("ascii")

    @classmethod
    def unpack(cls, stored: bytes) -> Self:
        """Read the stored form. Raises `InvalidSchedule` if this release cannot read it."""
        try:
            name, rule, *more = json.loads(stored.decode("ascii"))
            facts = more[0] if more else {}
            if unknown := [*more[1:], *(facts.keys() - _KEYS)]:
                raise InvalidSchedule(f"a later release stored it, with {', '.join(sorted(map(repr, unknown)))}")
            options = {field: facts[key] for key, field, _ in _STORED if key in facts} if facts else {}
            schedule = cls(name=name, rule=read_rule(rule), **options)
            schedule.check()
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError, ImproperlyConfigured) as error:
            # Without the bytes: of a damaged definition they may be arguments of its job.
            raise InvalidSchedule(f"this release cannot read the schedule: {error}") from error
        return schedule

    def check(self) -> None:
        """Raise `InvalidSchedule` for a value that no release stores, or that only a later one knows."""
        for name in ("start_us", "end_us", "jitter_us", "window_us", "pause_after"):
            value = getattr(self, name)
            is_number = type(value) is int and 0 <= value < _LARGEST
            if not is_number and (value is not None or name == "jitter_us"):
                raise InvalidSchedule(f"{name} must be a whole number, at most 2**63 - 1, got {value!r:.80}")
        for name, known in (("overlap", _OVERLAPS), ("catch_up", _CATCH_UPS)):
            value = getattr(self, name)
            if value not in known:
                raise InvalidSchedule(f"{name} must be one of {', '.join(map(repr, known))}, got {value!r:.80}")
        check_schedule_name(self.name)

    def next_after(self, after_us: int) -> int | None:
        """Return the first occurrence after a moment (µs since the epoch); None if there is none any more."""
        if self.start_us is not None:
            after_us = max(after_us, self.start_us - 1)
        occurrence = self.rule.next_after(after_us)
        return None if occurrence is None or (self.end_us is not None and occurrence > self.end_us) else occurrence

    def due_us(self, occurrence: int) -> int:
        """Return when the job of an occurrence is due."""
        if not self.jitter_us:
            return occurrence
        return min(occurrence + int(self._share("jitter") * self.jitter_us), LATEST_US)

    def planted_us(self, occurrence: int, next_occurrence: int) -> int:
        """Return when the job of the next occurrence is planted, some time after the job of the last one is due.

        A million schedules with one occurrence are due at once, but planted one after the other.
        """
        return self.due_us(occurrence) + int(self._share("planting") * (next_occurrence - occurrence) / _PLANTED_WITHIN)

    def expires_after_us(self, occurrence: int, next_occurrence: int | None) -> int | None:
        """Return how late the job of an occurrence may begin, in µs; None: as late as it comes."""
        if self.catch_up != "none":
            return None
        if self.window_us is not None:
            return self.window_us
        return min(_LONGEST_WINDOW_US, _LONGEST_WINDOW_US if next_occurrence is None else next_occurrence - occurrence)

    @property
    def zone(self) -> ZoneInfo | None:
        """The time zone of its cron fields; None: it has an interval."""
        return self.rule.zone if isinstance(self.rule, Cron) else None

    @property
    def catch_up_window_us(self) -> int:
        """How long ago a missed occurrence may be that gets a job by `catch_up="all"`, in µs."""
        return DAY_US if self.window_us is None else self.window_us

    def _share(self, of: str) -> float:
        """Return a number from 0 to 1, below 1, by the name."""
        digest = blake2b(self.name.encode("utf-8", "surrogatepass"), digest_size=6, person=of.encode()).digest()
        return int.from_bytes(digest) / 2**48


def check_schedule_name(name: Any) -> str:
    """Return the name of a schedule if it is text of 1 to 200 bytes. Raises `InvalidSchedule`."""
    if not isinstance(name, str) or not 1 <= len(name.encode("utf-8", "surrogatepass")) <= _MAX_NAME:
        raise InvalidSchedule(f"the name of a schedule must be text of 1 to {_MAX_NAME} bytes, got {name!r:.80}")
    return name


def make_schedule(
    name: str,
    *,
    now_us: int,
    every: Any = None,
    cron: Any = None,
    tz: Any = None,
    start: Any = None,
    end: Any = None,
    jitter: Any = None,
    overlap: Any = "skip",
    catch_up: Any = "last",
    window: Any = None,
    pause_after: Any = None,
) -> Schedule:
    """Return a schedule of options as users give them.

    Durations are seconds or timedeltas, moments aware datetimes. Raises `InvalidSchedule`, `InvalidDelay` or
    `InvalidMoment` naming the option, also if the schedule has no occurrence after `now_us`.
    """
    start_us = None if start is None else moment_us(start, name="start")
    if start_us is not None and not 0 <= start_us <= LATEST_US:
        raise InvalidSchedule(f"start={start} must be between the years 1970 and 2255")
    rule = make_rule(every=every, cron=cron, tz=tz, start=start)
    end_us = None if end is None else min(moment_us(end, name="end"), LATEST_US)
    if end_us is not None and end_us <= max(now_us, start_us or 0):
        when = "start" if start_us is not None and end_us <= start_us else "now"
        raise InvalidSchedule(f"end={end} is not after {when}: the schedule would never run")
    if window is not None and catch_up not in ("none", "all"):
        raise InvalidSchedule(
            "window= is for catch_up='none', how late a job may begin, or 'all', how far it looks back"
        )
    if catch_up == "all" and overlap not in ("wait", "allow"):
        raise InvalidSchedule("catch_up='all' needs overlap='wait' or 'allow': its jobs come all at once")
    if pause_after is not None and (type(pause_after) is not int or not 1 <= pause_after <= 255):
        raise InvalidSchedule(f"pause_after must be a whole number, 1 to 255, got {pause_after!r:.80}")
    window_us = None if window is None else duration_us(window, name="window")
    if window_us is not None and not SECOND_US <= window_us <= LATEST_US:
        raise InvalidSchedule(f"window={window!r} must be at least 1 second, and end before the year 2255")
    schedule = Schedule(
        name=name,
        rule=rule,
        start_us=start_us,
        end_us=end_us,
        jitter_us=0 if jitter is None else duration_us(jitter, name="jitter"),
        overlap=overlap,
        catch_up=catch_up,
        window_us=window_us,
        pause_after=pause_after,
    )
    schedule.check()
    if schedule.next_after(now_us) is None:
        if cron is not None and rule.next_after(0) is None:
            raise InvalidSchedule(f"cron={cron!r:.80} never matches; use a day that its months have")
        until = "the year 2255" if end is None else "its end"
        raise InvalidSchedule(f"the schedule has no occurrence before {until}: it would never run")
    if schedule.jitter_us >= rule.least_distance_us:
        shortest_us = shortest_distance_us(rule, after_us=now_us)
        if schedule.jitter_us >= shortest_us:
            raise InvalidSchedule(
                f"jitter={jitter!r} must be shorter than the shortest time between two occurrences, "
                f"which is {shortest_us // SECOND_US} s"
            )
    return schedule
