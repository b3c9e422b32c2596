"""Commits: databases, an error for rollbacks and the number of sent jobs, for the tests of commits."""

import pytest

from django_delayq import get_store

BOTH = ["default", "other"]
real_commits = pytest.mark.django_db(transaction=True, databases=BOTH)


class Wrong(Exception):
    """An error that makes a transaction roll back."""


def sent() -> int:
    """Return how many jobs Redis holds."""
    counts = get_store().lookup(0).counts()
    return sum(counts.ready.values()) + sum(counts.scheduled.values())
