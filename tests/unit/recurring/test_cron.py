"""The occurrences of cron rules, beside an independent computation by another cron library."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from croniter import croniter
from hypothesis import given, settings
from hypothesis import strategies as st

from django_delayq.exceptions import InvalidSchedule
from django_delayq.recurring.cron import Cron, make_cron
from django_delayq.recurring.rule import occurrences

BERLIN, LORD_HOWE, UTC_ZONE = ZoneInfo("Europe/Berlin"), ZoneInfo("Australia/Lord_Howe"), ZoneInfo("UTC")
SECOND_US = 1_000_000


def us(text: str, zone: ZoneInfo) -> int:
    """Return µs since the epoch of a local time; `fold=1` at the end of the text is the second pass."""
    text, is_second, _ = text.partition(" fold")
    return round(datetime.fromisoformat(text).replace(tzinfo=zone, fold=bool(is_second)).timestamp()) * SECOND_US


def local(occurrence_us: int, zone: ZoneInfo) -> str:
    """Return the local time of an occurrence, with its offset."""
    return datetime.fromtimestamp(occurrence_us // SECOND_US, zone).isoformat()


@pytest.mark.parametrize(
    ("fields", "zone", "after", "expected"),
    [
        # Clocks go forward at 02:00: fixed hours run once, when they do.
        ("30 2 * * *", BERLIN, "2026-03-28T12:00", ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]),
        ("0,30 2 * * *", BERLIN, "2026-03-28T12:00", ["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"]),
        ("0 2,3 * * *", BERLIN, "2026-03-28T12:00", ["2026-03-29T03:00:00+02:00", "2026-03-30T02:00:00+02:00"]),
        ("15 2 * * *", LORD_HOWE, "2026-10-03T12:00", ["2026-10-04T02:30:00+11:00", "2026-10-05T02:15:00+11:00"]),
        # Others have no occurrences there.
        ("*/30 * * * *", BERLIN, "2026-03-29T01:15", ["2026-03-29T01:30:00+01:00", "2026-03-29T03:00:00+02:00"]),
        ("30 */2 * * *", BERLIN, "2026-03-29T01:15", ["2026-03-29T04:30:00+02:00", "2026-03-29T06:30:00+02:00"]),
        # Clocks go back at 03:00: fixed hours run in the first pass.
        ("30 2 * * *", BERLIN, "2026-10-24T12:00", ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]),
        ("30 2 * * *", BERLIN, "2026-10-25T02:00 fold", ["2026-10-26T02:30:00+01:00", "2026-10-27T02:30:00+01:00"]),
        ("30 2,3 * * *", BERLIN, "2026-10-25T02:10 fold", ["2026-10-25T03:30:00+01:00", "2026-10-26T02:30:00+01:00"]),
        # Others in both.
        ("30 * * * *", BERLIN, "2026-10-25T02:00", ["2026-10-25T02:30:00+02:00", "2026-10-25T02:30:00+01:00"]),
        ("15 * * * *", BERLIN, "2026-10-25T02:20", ["2026-10-25T02:15:00+01:00", "2026-10-25T03:15:00+01:00"]),
        ("*/30 2 25 10 *", BERLIN, "2026-10-25T02:40 fold", ["2027-10-25T02:00:00+02:00"]),
        # Six fields follow the same rules.
        ("0 30 2 * * *", BERLIN, "2026-03-28T12:00", ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]),
        ("0 30 2 * * *", BERLIN, "2026-10-24T12:00", ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]),
        ("*/20 59 23 * * *", UTC_ZONE, "2026-01-01T23:59", ["2026-01-01T23:59:20+00:00", "2026-01-01T23:59:40+00:00"]),
        # Leap days, ends of months, and days of the week.
        ("0 0 29 2 *", UTC_ZONE, "2026-01-01T00:00", ["2028-02-29T00:00:00+00:00", "2032-02-29T00:00:00+00:00"]),
        ("0 0 L * *", UTC_ZONE, "2028-02-01T00:00", ["2028-02-29T00:00:00+00:00", "2028-03-31T00:00:00+00:00"]),
        ("0 0 31 * *", UTC_ZONE, "2026-02-01T00:00", ["2026-03-31T00:00:00+00:00", "2026-05-31T00:00:00+00:00"]),
        ("0 9 * * mon#2", UTC_ZONE, "2026-01-01T00:00", ["2026-01-12T09:00:00+00:00", "2026-02-09T09:00:00+00:00"]),
        ("0 9 * * MON-fri", UTC_ZONE, "2026-01-02T09:00", ["2026-01-05T09:00:00+00:00", "2026-01-06T09:00:00+00:00"]),
        # Either of two days, as in cron.
        ("0 0 13 * fri", UTC_ZONE, "2026-01-09T12:00", ["2026-01-13T00:00:00+00:00", "2026-01-16T00:00:00+00:00"]),
        ("@daily", UTC_ZONE, "2026-01-01T12:00", ["2026-01-02T00:00:00+00:00", "2026-01-03T00:00:00+00:00"]),
        ("@weekly", UTC_ZONE, "2026-01-01T12:00", ["2026-01-04T00:00:00+00:00", "2026-01-11T00:00:00+00:00"]),
        # Samoa had no 30 December 2011.
        (
            "0 12 * * *",
            ZoneInfo("Pacific/Apia"),
            "2011-12-29T00:00",
            ["2011-12-29T12:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T12:00:00+14:00"],
        ),
    ],
)
def test_occurrences(fields: str, zone: ZoneInfo, after: str, expected: list[str]) -> None:
    found = occurrences(make_cron(fields, zone), after_us=us(after, zone))
    assert [local(occurrence, zone) for occurrence, _ in zip(found, expected, strict=False)] == expected


#: Around each change of the clocks, and around none.
_CHANGES = [
    (BERLIN, "2026-03-29T01:00"),
    (BERLIN, "2026-10-25T01:00"),
    (BERLIN, "2026-06-01T00:00"),
    (LORD_HOWE, "2026-04-04T15:00"),
    (LORD_HOWE, "2026-10-03T15:30"),
    (ZoneInfo("America/New_York"), "2026-03-08T07:00"),
    (ZoneInfo("America/New_York"), "2026-11-01T06:00"),
    # Clocks go forward at midnight.
    (ZoneInfo("America/Santiago"), "2026-09-06T04:00"),
    (ZoneInfo("Africa/Casablanca"), "2026-02-15T02:00"),
    (ZoneInfo("Pacific/Apia"), "2011-12-30T10:00"),
]


def _field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    return st.one_of(
        st.just("*"),
        st.builds("*/{}".format, st.integers(1, high)),
        st.lists(number, min_size=1, max_size=3, unique=True).map(lambda found: ",".join(map(str, sorted(found)))),
        st.lists(number, min_size=2, max_size=2, unique=True).map(lambda found: "-".join(map(str, sorted(found)))),
    )


def _occurrences_by_search(fields: str, zone: ZoneInfo, first: datetime, last: datetime) -> Iterator[datetime]:
    """Yield the occurrences (UTC) of a window, by trying each minute of it in wall times and in moments."""
    minute, hour, *_ = fields.split()
    minutes, hours, days = (
        set(range(low, high)) if each == ["*"] else set(each)
        for each, (low, high) in zip(croniter.expand(fields)[0], ((0, 60), (0, 24), (1, 32)), strict=False)
    )

    def matches(wall: datetime) -> bool:
        return wall.minute in minutes and wall.hour in hours and wall.day in days

    moments = [first + timedelta(minutes=number) for number in range(int((last - first).total_seconds() // 60) + 1)]
    walls = [moment.astimezone(zone).replace(tzinfo=None) for moment in moments]
    if minute.startswith("*") or hour.startswith("*"):
        yield from (moment for moment, wall in zip(moments, walls, strict=True) if matches(wall))
        return
    reached = walls[0] - timedelta(minutes=1)
    for moment, wall in zip(moments, walls, strict=True):
        # The wall times since the latest one that was reached before: those that do not exist are due now.
        passed = [
            reached + timedelta(minutes=number) for number in range(1, (wall - reached) // timedelta(minutes=1) + 1)
        ]
        reached = max(reached, wall)
        if any(map(matches, passed)):
            yield moment


@given(
    change=st.sampled_from(_CHANGES),
    fields=st.tuples(
        _field(0, 59), _field(0, 23), st.sampled_from(["*", "29,30,31", "*/2"]), st.just("*"), st.just("*")
    ),
    hours=st.integers(-30, 6),
)
@settings(max_examples=60)
def test_occurrences_agree_with_a_search_through_all_minutes(
    change: tuple[ZoneInfo, str], fields: tuple[str, ...], hours: int
) -> None:
    zone, near = change
    text = " ".join(fields)
    # The search begins before, so that it knows which wall times have passed already.
    after = datetime.fromisoformat(near).replace(tzinfo=UTC) + timedelta(hours=hours, minutes=hours * 7 % 60)
    begin, end = after - timedelta(hours=26), after + timedelta(hours=36)
    expected = [moment for moment in _occurrences_by_search(text, zone, begin, end) if moment > after]
    found = occurrences(
        Cron(text, zone), after_us=round(after.timestamp()) * SECOND_US, until_us=round(end.timestamp()) * SECOND_US
    )
    assert [datetime.fromtimestamp(occurrence // SECOND_US, UTC) for occurrence in found] == expected


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ("0 0 30 2 *", "bad day-of-month.*; .* some month must have the day"),
        ("0 9 * * monday", "bad day-of-week.*; names are as mon"),
        ("0 22-2 * * *", "bad hour.*; .* ranges go upwards"),
        ("0 0 31 4,6 *", "bad day-of-month"),
        ("60 * * * *", "bad minute"),
        ("* * * *", "wrong number of fields.*; use five fields: minute hour"),
        ("", "wrong number of fields"),
        ("*/0 * * * *", "cannot be read"),
        ("5-1 * * * *", "bad minute"),
        ("0 0 * * mon#6", "bad day-of-week"),
        ("@reboot", "is no nickname"),
        (b"* * * * *", "must be a string"),
    ],
)
def test_fields_that_cannot_be_read_are_refused(fields: object, message: str) -> None:
    with pytest.raises(InvalidSchedule, match=message):
        make_cron(fields, UTC_ZONE)


def test_fields_that_are_too_long_are_refused() -> None:
    assert make_cron(",".join(map(str, range(60))) + " * * * *", UTC_ZONE)
    with pytest.raises(InvalidSchedule, match="cron= has 1,001 characters, more than 1,000; use ranges and steps"):
        make_cron("0," * 496 + "0 * * * *", UTC_ZONE)


@pytest.mark.parametrize("zone", [BERLIN, LORD_HOWE, UTC_ZONE])
@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ("* * * * * *", 1),
        ("*/30 0 * * * *", 1),
        ("5 * * * * *", 60),
        ("* * * * *", 60),
        ("0,59 * * * *", 60),
        ("45 * * * *", 3_600),
        ("45 1,2 * * *", 3_600),
        ("@hourly", 3_600),
        ("30 2 * * *", 86_400),
        ("@weekly", 86_400),
    ],
)
def test_no_two_occurrences_are_nearer_than_the_least_distance(fields: str, seconds: int, zone: ZoneInfo) -> None:
    rule = make_cron(fields, zone)
    assert rule.least_distance_us == seconds * SECOND_US
    # No clocks change meanwhile.
    found = occurrences(rule, after_us=us("2026-06-01T12:00", zone), until_us=us("2026-08-01T12:00", zone))
    assert min(later - earlier for earlier, later in pairwise(islice(found, 500))) >= rule.least_distance_us


def test_a_rule_ends_before_the_last_moment_that_a_score_holds() -> None:
    rule = make_cron("0 0 1 1 *", UTC_ZONE)
    assert rule.next_after(2**53 - 2) is None
    assert rule.next_after(2**60) is None
