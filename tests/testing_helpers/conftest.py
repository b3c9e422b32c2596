"""The tests here stand on the fixture they are about."""

import pytest

from tests.testing_helpers import tasks


@pytest.fixture(autouse=True)
def calls() -> list[object]:
    """What the tasks did, nothing at first."""
    tasks.calls.clear()
    return tasks.calls
