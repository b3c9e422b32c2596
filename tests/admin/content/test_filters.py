"""Filters: from an address to the filter of a list, and back."""

import re
from typing import Any

import pytest
from django.http import QueryDict
from hypothesis import given
from hypothesis import strategies as st

from django_delayq.admin.lists.filters import Filter, from_url_name, url_name
from tests.admin.jobs import HOSTILE

NOW = 1_800_000_000_000_000


def read(query: str) -> Filter:
    return Filter.read(QueryDict(query))


@given(st.text(alphabet=st.characters(), min_size=1, max_size=60))
def test_any_name_comes_back_from_an_address(name: str) -> None:
    assert from_url_name(url_name(name)) == name
    assert url_name(name).encode()


@pytest.mark.parametrize("name", ["..", ".", "", "a/b", " a", "~6162", "\x00", "\ud800", "\\", "\u202e"])
def test_names_that_an_address_would_change_become_hexadecimal(name: str) -> None:
    assert re.fullmatch("~[0-9a-f]*", url_name(name))


@pytest.mark.parametrize("name", ["email", "a b", "größe", "x~y", "a?b&c=d#e", "<b>"])
def test_other_names_stay_as_they_are(name: str) -> None:
    assert url_name(name) == name


@pytest.mark.parametrize("text", ["~", "~6", "~zz", "~ED", "~ff", "~6162x"])
def test_text_that_is_not_an_encoded_name_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        from_url_name(text)


def test_a_filter_comes_back_from_its_own_address() -> None:
    job_filter = Filter(
        queue="a/b",
        task="x.y",
        error="\ud800",
        text="two words",
        within="1h",
        from_us=NOW,
        to_us=NOW + 1,
        count=100,
        reversed=True,
        group="error",
        cursor=(NOW, b"\x00\xff"),
        before=True,
    )
    assert read(job_filter.query()) == job_filter
    assert read(Filter().query()) == Filter() == read("")
    assert read(Filter(before=True).query()) == Filter(before=True)
    assert read(Filter(at_us=-5_000_000_000).query()) == Filter(at_us=-5_000_000_000)


@pytest.mark.parametrize("score", [0, -1, 2**53, 0.5, -2.25, 1e16, 1e308, -1e308, 5e-324, float("inf"), float("-inf")])
def test_a_cursor_keeps_every_score(score: float) -> None:
    job_filter = Filter(cursor=(score, b"\x12\xe5"))
    assert read(job_filter.query()) == job_filter


def test_another_page_keeps_the_filter_and_drops_the_jump() -> None:
    job_filter = Filter(text="x", count=25, at_us=NOW)
    assert read(job_filter.page((5, b"a"))) == Filter(text="x", count=25, cursor=(5, b"a"))


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("1800000000000001", 1_800_000_000_000_001),
        ("2027-01-15T08:00:00Z", 1_800_000_000_000_000),
        ("2027-01-15T09:00", 1_800_000_000_000_000),
        ("2027-01-15 08:00:00.5+00:00", 1_800_000_000_500_000),
        ("2027-01-15", 1_799_967_600_000_000),
    ],
)
def test_a_moment_is_microseconds_or_a_date_in_the_current_time_zone(text: str, us: int) -> None:
    assert read("from=" + text.replace("+", "%2B")).from_us == us


@pytest.mark.parametrize(
    "name", ["queue", "task", "error", "within", "from", "to", "at", "n", "after", "before", "sort", "group"]
)
@pytest.mark.parametrize(
    "value",
    [
        HOSTILE,
        "x" * 1_000_000,
        "9" * 1_000,
        "-1",
        "0001-01-01T00:00",
        "9999-12-31T23:59:59.999999",
        "~x",
        "1e999",
        "٣",
        "2027-02-30",
        "1.",
        ".0",
        "1.zz",
    ],
)
def test_an_invalid_value_is_at_most_an_error_message(name: str, value: str) -> None:
    job_filter = Filter.read({name: value})
    assert Filter.read(QueryDict(job_filter.query())).query() == job_filter.query()
    assert all(len(each) < 200 and each.isprintable() for each in job_filter.errors)


def test_invalid_parameters_are_reported() -> None:
    job_filter = read("n=7&from=soon&queue=~x&within=1h")
    assert job_filter.within == "1h"
    assert len(job_filter.errors) == 3
    assert "soon" in job_filter.errors[1]


def test_spans_become_moments() -> None:
    def bounds(query: str, **options: Any) -> tuple[int | None, int | None]:
        fixed = read(query).with_absolute_times(NOW, **options)
        assert fixed.within == ""
        return fixed.from_us, fixed.to_us

    assert bounds("within=1h", ahead=True) == (None, NOW + 3_600_000_000)
    assert bounds("within=1h", ahead=False) == (NOW - 3_600_000_000, None)
    assert bounds("within=overdue", ahead=True) == (None, NOW)
    assert bounds("from=1800000000000001", ahead=True) == (NOW + 1, None)
