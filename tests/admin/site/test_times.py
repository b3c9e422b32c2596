"""Times: the text of spans, moments and shares."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from django.template import Context, Template
from django.utils import translation

from django_delayq.clock import moment_us
from django_delayq.templatetags.delayq import clock_text, duration_text, grouped, percent, relative_text

SECOND, MINUTE, HOUR, DAY = 1_000_000, 60_000_000, 3_600_000_000, 86_400_000_000


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (None, "–"),
        (0, "0 ms"),
        (250, "0.25 ms"),
        (1_000, "1 ms"),
        (7_800, "8 ms"),
        (999_000, "999 ms"),
        (999_600, "1.0 s"),
        (1_440_000, "1.4 s"),
        (9_960_000, "10 s"),
        (99 * SECOND, "99 s"),
        (100 * SECOND, "2 min"),
        (99 * MINUTE, "99 min"),
        (100 * MINUTE, "2 h"),
        (47 * HOUR, "47 h"),
        (48 * HOUR, "2 d"),
        (3_650 * DAY, "3,650 d"),
        (-3 * MINUTE, "3 min"),
    ],
)
def test_a_span_is_in_its_largest_unit(us: int | None, text: str) -> None:
    assert duration_text(us) == text


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "now"),
        (-999_999, "now"),
        (999_999, "now"),
        (SECOND, "in 1 s"),
        (-9_970_000, "9 s ago"),
        (-12 * SECOND, "12 s ago"),
        (3 * MINUTE, "in 3 min"),
        (-2 * DAY, "2 d ago"),
    ],
)
def test_a_moment_is_relative_to_now(us: int, text: str) -> None:
    assert relative_text(us) == text


def test_a_clock_names_the_day_unless_it_is_today() -> None:
    zone = ZoneInfo("Asia/Tokyo")
    now = moment_us(datetime(2026, 11, 21, 14, 30, tzinfo=UTC))
    assert clock_text(now, now, UTC) == "14:30:00"
    assert clock_text(now, now, zone) == "23:30:00"
    assert clock_text(now + HOUR, now, UTC) == "15:30:00"
    assert clock_text(now + HOUR, now, zone) == "2026-11-22 00:30:00"


@pytest.mark.parametrize("us", [2**53, -(2**53), 2**62, -(2**62), 253_402_300_799_999_999])
def test_the_ends_of_the_calendar_are_valid_moments(us: int) -> None:
    for zone in ("Pacific/Kiritimati", "Pacific/Niue"):
        assert clock_text(us, 0, ZoneInfo(zone))


@pytest.mark.parametrize(
    ("share", "text"),
    [(None, "–"), (0, "0%"), (1, "100%"), (0.5, "50.0%"), (0.9996, "99.9%"), (0.0001, "0.1%"), (0.998, "99.8%")],
)
def test_only_the_whole_is_100_percent(share: float | None, text: str) -> None:
    assert percent(share) == text


def test_numbers_follow_the_language() -> None:
    with translation.override("de"):
        assert (grouped(1_020_000), duration_text(1_440_000)) == ("1.020.000", "1,4 s")


def test_no_moment_is_a_dash() -> None:
    assert Template("{% load delayq %}{% moment None %}").render(Context({})) == "–"
