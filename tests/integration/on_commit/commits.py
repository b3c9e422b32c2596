"""What the tests of commits share."""

import pytest

from django_delayq import get_store

BOTH = ["default", "other"]
real_commits = pytest.mark.django_db(transaction=True, databases=BOTH)


class Wrong(Exception):
    """What makes a transaction roll back here."""


def sent() -> int:
    """Return how many jobs Redis holds."""
    counts = get_store().lookup(0).counts()
    return sum(counts.ready.values()) + sum(counts.scheduled.values())
