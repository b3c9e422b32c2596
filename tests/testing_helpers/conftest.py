"""Fixture of the tests of the `delayq` fixture, which they use themselves."""

import pytest

from tests.testing_helpers import tasks


@pytest.fixture(autouse=True)
def calls() -> list[object]:
    """The calls of the tasks, none at first."""
    tasks.calls.clear()
    return tasks.calls
