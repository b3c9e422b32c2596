"""Forecast: the occurrences of each hour are those that a look at each of them finds."""

from datetime import UTC, datetime

import pytest

from django_delayq.clock import HOUR_US, moment_us
from django_delayq.recurring.forecast import count_by_hour
from django_delayq.recurring.rule import Rule, make_rule, occurrences

START_US = moment_us(datetime(2027, 1, 1, 15, tzinfo=UTC))
HOURS = 72


def counted(rule: Rule, *, start_us: int | None, end_us: int | None) -> list[int]:
    """Return the occurrences of each hour, one by one."""
    counts, first_us = [0] * HOURS, max(START_US, start_us or 0)
    until_us = START_US + HOURS * HOUR_US - 1
    for occurrence in occurrences(rule, after_us=first_us - 1, until_us=until_us):
        if end_us is None or occurrence <= end_us:
            counts[(occurrence - START_US) // HOUR_US] += 1
    return counts


@pytest.mark.parametrize(
    ("start_us", "end_us"),
    [
        (None, None),
        (START_US + 5 * HOUR_US + 1_234_567, START_US + 30 * HOUR_US),
        (START_US - HOUR_US, START_US + 1),
        (START_US - 5 * HOUR_US, START_US - 1),
        (START_US + (HOURS + 1) * HOUR_US, None),
        (START_US, START_US),
    ],
)
@pytest.mark.parametrize(
    "options",
    [
        *({"every": seconds} for seconds in (7, 60, 300, 3_600, 5_400, 86_400, 100_000)),
        {"every": 3_600, "start": datetime(2027, 1, 2, 3, 4, 5, tzinfo=UTC)},
        *(
            {"cron": fields, "tz": tz}
            for tz in ("UTC", "Europe/Berlin", "Asia/Kolkata", "Asia/Kathmandu")
            for fields in (
                "*/5 * * * *",
                "0 9 * * mon-fri",
                "30,59 0-5 * * *",
                "10-40/10 30 7,8 * * *",
                "*/10 15,45 * * * *",
                "@daily",
                "0 0 L * *",
            )
        ),
    ],
    ids=str,
)
def test_the_occurrences_of_each_hour(options: dict[str, object], start_us: int | None, end_us: int | None) -> None:
    rule = make_rule(**options)
    found = count_by_hour(rule, from_us=START_US, hours=HOURS, start_us=start_us, end_us=end_us)
    assert found == counted(rule, start_us=start_us, end_us=end_us)


@pytest.mark.parametrize(
    ("fields", "days", "expected"),
    [
        # 02:00 to 03:00 does not exist on 28 March, and comes twice on 31 October.
        ("0 * * * *", (27, 3), 23 + 24),
        ("0 * * * *", (30, 10), 24 + 25),
        ("30 2 * * *", (30, 10), 2),
        ("30 2 * * *", (27, 3), 2),
    ],
)
def test_days_on_which_clocks_change(fields: str, days: tuple[int, int], expected: int) -> None:
    day, month = days
    rule = make_rule(cron=fields, tz="Europe/Berlin")
    from_us = moment_us(datetime(2027, month, day, 22 if month == 10 else 23, tzinfo=UTC)) - 24 * HOUR_US
    assert sum(count_by_hour(rule, from_us=from_us, hours=24 + (23 if month == 3 else 25))) == expected


def test_an_interval_of_a_second_costs_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    rule = make_rule(every=1)
    monkeypatch.setattr("django_delayq.recurring.forecast.occurrences", None)
    assert count_by_hour(rule, from_us=START_US, hours=168) == [3_600] * 168
