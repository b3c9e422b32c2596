"""The retry policy in words and as data: every field is seen, and no wait that no job has."""

import json
from datetime import timedelta
from typing import Any

import pytest

from django_delayq.display.retry import retry_facts, retry_text
from django_delayq.display.text import span_text
from django_delayq.job.retry import RetryPolicy

CRASHES = "retries no exception, only crashes, lost leases and RetryLater"


@pytest.mark.parametrize(
    ("options", "full", "brief"),
    [
        (
            {"delays": [5, 60, 600], "retry_on": "shop.errors.Busy", "dead_on": ValueError},
            "up to 4 attempts, after 5 s, 1 min, 10 min; retries only shop.errors.Busy; fails at once on ValueError",
            "after 5 s, …, 10 min; only Busy; not ValueError",
        ),
        (
            {},
            "up to 5 attempts, after random delays of up to 2 s, 4 s, 8 s, 16 s",
            "after random delays of up to 2 s, …, 16 s",
        ),
        (
            {"max_attempts": None},
            "tried forever, after random delays of up to 2 s, 4 s, 8 s, …, then 1 h each time",
            "after random delays of up to 2 s, …, then 1 h each time",
        ),
        (
            {"max_attempts": None, "delays": [30]},
            "tried forever, after 30 s each time",
            "after 30 s each time",
        ),
        (
            {"max_attempts": 1_000, "delays": [5, 90]},
            "up to 1,000 attempts, after 5 s, then 1 min 30 s each time",
            "after 5 s, then 1 min 30 s each time",
        ),
        # Only the delays that come before the last attempt.
        ({"max_attempts": 2, "delays": [5, 60, 600]}, "up to 2 attempts, after 5 s", "after 5 s"),
        ({"max_attempts": 3, "delays": [5, 5]}, "up to 3 attempts, after 5 s each time", "after 5 s each time"),
        ({"max_attempts": 3, "base": 0}, "up to 3 attempts, at once", "at once"),
        ({"max_attempts": 3, "delays": [0, 0]}, "up to 3 attempts, at once", "at once"),
        ({"max_attempts": 3, "delays": [0, 5]}, "up to 3 attempts, after 0 s, 5 s", "after 0 s, 5 s"),
        (
            {"max_attempts": 3, "base": 60, "cap": 10},
            "up to 3 attempts, after random delays of up to 10 s each time",
            "after random delays of up to 10 s each time",
        ),
        (
            {"max_attempts": 8, "base": 3, "cap": 7_200},
            "up to 8 attempts, after random delays of up to 3 s, 6 s, 12 s, …, 3 min 12 s",
            "after random delays of up to 3 s, …, 3 min 12 s",
        ),
        ({"max_attempts": 1, "dead_on": ValueError}, "1 attempt, no retry", "no retry"),
        (
            {"on_error": False, "dead_on": ValueError, "delays": [1]},
            f"up to 2 attempts, after 1 s; {CRASHES}",
            "after 1 s; no exception",
        ),
        (
            {"on_error": False, "retry_on": [OSError, "a.b.C"], "delays": [1]},
            "up to 2 attempts, after 1 s; retries only OSError, a.b.C",
            "after 1 s; only OSError, C",
        ),
    ],
)
def test_a_policy_in_words(options: dict[str, Any], full: str, brief: str) -> None:
    policy = RetryPolicy(**options)
    assert retry_text(policy) == full
    assert retry_text(policy, brief=True) == brief


def test_a_policy_as_data_is_json() -> None:
    policy = RetryPolicy(max_attempts=None, delays=[5, timedelta(minutes=1)], retry_on="a.B", dead_on=[OSError])
    assert json.loads(json.dumps(retry_facts(policy))) == {
        "max_attempts": None,
        "delays": [5.0, 60.0],
        "base": 2.0,
        "cap": 3_600.0,
        "on_error": True,
        "retry_on": ["a.B"],
        "dead_on": ["builtins.OSError"],
    }
    assert set(retry_facts(RetryPolicy())) == set(RetryPolicy.__dataclass_fields__)


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0 s"),
        (1, "0.000001 s"),
        (500_000, "0.5 s"),
        (59_999_999, "59.999999 s"),
        (150_000_000, "2 min 30 s"),
        (5_400_000_000, "1 h 30 min"),
        (86_400_000_000 * 3_650, "3,650 d"),
    ],
)
def test_a_span_is_exact(us: int, text: str) -> None:
    assert span_text(us) == text
