"""The rule of a limit in words: as the project wrote it, or as an equal rate of a shorter unit."""

import pytest

from django_delayq.conf.limit_rules import LIMITS
from django_delayq.display.limits import rule_text


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rate": "100/s", "burst": 20, "max_running": 5}, "100/s, burst 20, at most 5 at a time"),
        ({"rate": "7/s"}, "7/s, burst 1"),
        ({"rate": "50/m"}, "50/m, burst 1"),
        ({"rate": "60/m"}, "1/s, burst 1"),
        ({"rate": "90/m"}, "90/m, burst 1"),
        ({"rate": "20/h"}, "20/h, burst 1"),
        ({"rate": "10/d"}, "10/d, burst 1"),
        ({"rate": "1/d"}, "1/d, burst 1"),
        ({"rate": "10000/s"}, "10,000/s, burst 1,000"),
        ({"rate": "863999999/d"}, "863,999,999/d, burst 999"),
        ({"max_running": 1}, "at most 1 at a time"),
    ],
)
def test_a_rule_reads_as_it_was_written(options: dict[str, object], text: str) -> None:
    assert rule_text(LIMITS("LIMITS", {"x": options})["x"]) == text
