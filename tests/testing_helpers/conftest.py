"""Fixture of the tests of `django_delayq.testing`: the calls of their tasks."""

import pytest

from tests.testing_helpers import tasks


@pytest.fixture(autouse=True)
def calls() -> list[object]:
    """Return the list of the tasks' calls, emptied for each test."""
    tasks.calls.clear()
    return tasks.calls
