"""The fixture of the tests of tasks: a registry of their own."""

import pytest

from django_delayq.task import registry


@pytest.fixture
def own_registry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a test register what it likes."""
    monkeypatch.setattr(registry, "_tasks", dict(registry._tasks))
