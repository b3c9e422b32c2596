"""Commits: databases, an error for rollbacks and the number of sent jobs, for the tests of commits."""

import pytest

from tests.inspection import inspection

BOTH = ["default", "other"]
real_commits = pytest.mark.django_db(transaction=True, databases=BOTH)


class Wrong(Exception):
    """An error that makes a transaction roll back."""


def sent() -> int:
    """Return how many jobs Redis holds."""
    counts = inspection().counts()
    return sum(counts.ready.values()) + sum(counts.scheduled.values())
