"""The database URL, durations in words, the span field, migrations."""

from datetime import timedelta

import pytest
from django.core.management import call_command

from market.forms import SpanField
from market.templatetags.moments import late, span
from marketplace.database import parse_database_url


@pytest.mark.parametrize(
    "url, expected",
    [
        ("sqlite:///market.db", {"ENGINE": "django.db.backends.sqlite3", "NAME": "market.db"}),
        ("sqlite:////var/market.db", {"NAME": "/var/market.db"}),
        (
            "postgres://ann:p%40ss@db.example:5433/market?sslmode=require",
            {
                "ENGINE": "django.db.backends.postgresql",
                "NAME": "market",
                "USER": "ann",
                "PASSWORD": "p@ss",
                "HOST": "db.example",
                "PORT": "5433",
                "OPTIONS": {"sslmode": "require"},
            },
        ),
        ("mysql://ann@localhost/market", {"ENGINE": "django.db.backends.mysql", "PASSWORD": "", "PORT": ""}),
    ],
)
def test_a_database_url_becomes_settings(url, expected):
    parsed = parse_database_url(url)
    assert {key: parsed[key] for key in expected} == expected


def test_an_unknown_database_is_an_error_that_names_the_known_ones():
    with pytest.raises(ValueError, match="'oracle', expected one of sqlite, postgres"):
        parse_database_url("oracle://x")


@pytest.mark.parametrize(
    "seconds, words",
    [
        (0, "0 s"), (0.4, "0.4 s"), (1.24, "1.2 s"), (2, "2 s"), (9.99, "10 s"), (45, "45 s"), (60, "1 min"),
        (61, "1 min 1 s"), (3600, "1 h"), (7500, "2 h 5 min"), (86400 * 3 + 3600, "3 d 1 h"), (86400 + 5, "1 d 5 s"),
    ],
)  # fmt: skip
def test_a_duration_is_formatted_in_its_two_largest_units(seconds, words):
    assert span(timedelta(seconds=seconds)) == words


@pytest.mark.parametrize("ms, words", [(0.84, "0.8 ms"), (12.34, "12.3 ms"), (1420, "1.42 s")])
def test_a_lateness_is_formatted_in_milliseconds(ms, words):
    assert late(timedelta(milliseconds=ms)) == words


@pytest.mark.parametrize("data, expected", [(["10", "60"], 600), (["2", "86400"], 172800), (["1", "1"], 1)])
def test_a_span_field_multiplies_its_parts(data, expected):
    field = SpanField(least=timedelta(seconds=1), most=timedelta(days=60))
    assert field.clean(data) == timedelta(seconds=expected)
    assert field.widget.decompress(field.clean(data)) == [int(data[0]), data[1]]


@pytest.mark.parametrize(
    "data",
    [["", "60"], ["0", "1"], ["-5", "60"], ["61", "86400"], ["9" * 30, "86400"], ["x", "1"], ["1", "7"], ["nan", "1"]],
)
def test_a_span_field_rejects_values_out_of_bounds(data):
    from django.core.exceptions import ValidationError

    with pytest.raises(ValidationError):
        SpanField(least=timedelta(seconds=1), most=timedelta(days=60)).clean(data)


@pytest.mark.django_db
def test_the_migrations_match_the_models():
    call_command("makemigrations", "--check", "--dry-run", verbosity=0)
