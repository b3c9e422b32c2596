"""The fixture of the tests of tasks: a registry of their own."""

from typing import Any

import pytest


@pytest.fixture
def own_registry(registered: Any) -> None:
    """Undo at the end of a test what it registered."""
    registered()
