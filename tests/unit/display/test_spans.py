"""Spans as people write them: what is written is read back."""

from datetime import timedelta

import pytest

from django_delayq.display.text import read_span, write_span

DAY = 86_400_000_000


@pytest.mark.parametrize(
    ("us", "text"),
    [
        (0, "0ms"),
        (1_500, "1.5ms"),
        (90_000_000, "1m30s"),
        (5_400_000_000, "1h30m"),
        (DAY, "1d"),
        (90_061_250_000, "1d1h1m1s250ms"),
        (400 * DAY + 1_000_000, "400d1s"),
    ],
)
def test_what_is_written_is_read_back(us: int, text: str) -> None:
    assert write_span(us) == text
    assert read_span(text) == timedelta(microseconds=us)


@pytest.mark.parametrize("text", ["", "10", "m", "1x", "1h 30m", "-1s", "1e3s", "1.s"])
def test_what_is_no_span(text: str) -> None:
    with pytest.raises(ValueError, match="is no time: use 10m, 1h30m or 2d, or a moment"):
        read_span(text, or_write=", or a moment")
