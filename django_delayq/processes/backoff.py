"""Backoff: how long a loop waits before it repeats what failed."""


def backoff(failures: int, *, first: float, longest: float) -> float:
    """Return the seconds to wait after that many failures in a row (≥ 1): `first`, then doubled, up to `longest`."""
    return min(longest, first * 2.0 ** min(failures - 1, 10))
