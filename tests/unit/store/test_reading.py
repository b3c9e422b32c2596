"""Readings: several of them side by side."""

from collections.abc import Sequence
from typing import Any

import pytest

from django_delayq.store.client.reading import Reading, run_alone, together


def reading(name: str, *sizes: int) -> Reading[list[Any]]:
    """Return a reading of a step for each size, which reads all replies."""
    found: list[Any] = []
    for step, size in enumerate(sizes):
        found += yield [f"{name}{step}{number}".encode() for number in range(size)]
    return found


@pytest.mark.parametrize(
    ("steps", "trips"),
    [
        ([], 0),
        ([()], 0),
        ([(1,)], 1),
        ([(2,), (1,), (3,)], 1),
        ([(1, 1, 1), (), (2,), (1, 2)], 3),
    ],
)
def test_readings_run_side_by_side(steps: list[tuple[int, ...]], trips: int) -> None:
    sent: list[Sequence[Any]] = []

    def read_all(calls: Sequence[Any]) -> list[Any]:
        sent.append(calls)
        return [call.decode() for call in calls]

    values = run_alone(together([reading(chr(97 + at), *each) for at, each in enumerate(steps)]), read_all)
    assert len(sent) == trips
    for at, each in enumerate(steps):
        expected = [f"{chr(97 + at)}{step}{number}" for step, size in enumerate(each) for number in range(size)]
        assert values[at] == expected
