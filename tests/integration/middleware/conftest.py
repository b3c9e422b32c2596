"""The fixture of the tests of middlewares: list some, and forget what earlier tests made them do."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.integration.middleware import classes


@pytest.fixture
def middleware(delayq_settings: Any) -> Iterator[Callable[..., None]]:
    """List classes of `classes.py` in MIDDLEWARE: `middleware("Outer", "Inner")`."""

    def list_classes(*names: str) -> None:
        paths = [f"{classes.__name__}.{name}" for name in names]
        delayq_settings.DELAYQ = {**delayq_settings.DELAYQ, "MIDDLEWARE": paths}
        classes.seen.clear()

    token = classes.request_id.set("none")
    yield list_classes
    classes.request_id.reset(token)
    classes.Filling.value = classes.Refusing.at_enqueue = classes.Refusing.at_run = None
    classes.Calling.enqueue_by = classes.Calling.run_by = None
