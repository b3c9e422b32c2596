"""The fixture of the tests of unique keys: a registry of their own."""

from typing import Any

import pytest

from django_delayq.task import registry


@pytest.fixture(autouse=True)
def own_registry() -> Any:
    """Forget the tasks that a test declares."""
    with registry.override():
        yield
