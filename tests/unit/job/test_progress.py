"""Progress: what a task may report, and how it is stored."""

from typing import Any

import pytest

from django_delayq.exceptions import InvalidProgress
from django_delayq.job.progress import LONGEST_NOTE, Progress


@pytest.mark.parametrize(
    "fraction", [1.4, -0.1, 1.00001, -0.00001, float("nan"), float("inf"), "0.5", None, True, 10**400]
)
def test_a_fraction_outside_0_to_1_is_refused(fraction: Any) -> None:
    with pytest.raises(InvalidProgress, match=r"fraction must be a number from 0 to 1, got .*divide"):
        Progress.checked(fraction, "")


def test_a_note_that_is_too_long_or_no_text_is_refused() -> None:
    with pytest.raises(InvalidProgress, match=r"at most 500 characters, got 10,240; store"):
        Progress.checked(0.5, "x" * 10_240)
    with pytest.raises(InvalidProgress, match="note must be a text, got int"):
        Progress.checked(0.5, 7)


@pytest.mark.parametrize("progress", [Progress(0.0), Progress(1.0, "ü" * LONGEST_NOTE), Progress(0.4, 'a "b"\n')])
def test_the_stored_form_is_read_again(progress: Progress) -> None:
    assert Progress.unpack(progress.pack()) == progress


@pytest.mark.parametrize(
    "stored", [b"", b"{", b"[]", b"{}", b"7", b'{"fraction":2}', b'{"fraction":0.5,"note":7}', b"\xff"]
)
def test_a_damaged_form_reads_as_none(stored: bytes) -> None:
    assert Progress.unpack(stored) is None


@pytest.mark.parametrize("fraction", [1 + 1e-9, sum([0.02] * 50), sum([1 / 49] * 49)])
def test_a_sum_of_floats_that_passes_1_is_1(fraction: float) -> None:
    assert fraction > 1 and Progress.checked(fraction, "") == Progress(1.0)


def test_a_difference_of_floats_that_passes_0_is_0() -> None:
    assert Progress.checked(0.3 - 3 * 0.1, "") == Progress(0.0)


def test_a_whole_number_is_a_fraction() -> None:
    assert Progress.checked(1, "done") == Progress(1.0, "done")
