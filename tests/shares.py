"""Shares: how far queues are from the shares of their weights, in the order of claims or runs."""

from collections.abc import Mapping, Sequence
from itertools import accumulate


def while_all_have_jobs(order: Sequence[str], weights: Mapping[str, int]) -> list[str]:
    """Return the part before the first queue was empty: that queue's last job ends it."""
    ends = [max(at for at, queue in enumerate(order) if queue == name) for name in weights]
    return list(order[: min(ends) + 1])


def furthest(order: Sequence[str], weights: Mapping[str, int], *, window: int) -> float:
    """Return by how many jobs a queue is furthest from its share, over any `window` jobs in a row.

    Raises AssertionError if there are fewer.
    """
    assert len(order) >= window, f"{len(order)} jobs, which is no window of {window}"
    found = 0.0
    for queue, weight in weights.items():
        sums = [0, *accumulate(each == queue for each in order)]
        share = window * weight / sum(weights.values())
        found = max(found, *(abs(end - start - share) for start, end in zip(sums, sums[window:], strict=False)))
    return found
