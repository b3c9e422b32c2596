"""The fixture of the tests of tasks: a registry of their own."""

import pytest

from django_delayq.task import registry


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Undo at the end of a test what it registered."""
    monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))
