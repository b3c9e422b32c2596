"""Job views: the text of a time span in messages about jobs."""

from datetime import timedelta

import pytest

from django_delayq.testing.job_views import span


@pytest.mark.parametrize(
    ("time", "words"),
    [
        ({"seconds": 0}, "0 s"),
        ({"seconds": 0.04}, "0 s"),
        ({"seconds": 1.55}, "1.6 s"),
        ({"seconds": 59.4}, "59.4 s"),
        ({"seconds": 59.7}, "1 min"),
        ({"seconds": 90}, "1 min 30 s"),
        ({"minutes": 60, "seconds": -0.4}, "1 h"),
        ({"hours": 26, "minutes": 3, "seconds": 0.4}, "1 d 2 h 3 min"),
        ({"days": 3_000}, "3000 d"),
        ({"minutes": -5}, "-5 min"),
    ],
)
def test_a_time_span_is_written_in_plain_units(time: dict[str, float], words: str) -> None:
    assert span(timedelta(**time)) == words
