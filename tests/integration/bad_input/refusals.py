"""Refusals: the check of an error, a password that it must not show, and tasks, for the tests of bad input."""

from collections.abc import Callable
from typing import Any

import pytest

SECRET = "s3cret-canary"
NAME = "tests.sample_app.tasks.noop"


def refused(kind: type[Exception], builtin: type[Exception], words: str, act: Callable[[], Any]) -> Exception:
    """Check that `act` raises an error of both classes whose text matches `words`; return it."""
    with pytest.raises(kind, match=words) as caught:
        act()
    assert isinstance(caught.value, builtin)
    assert SECRET not in str(caught.value) and len(str(caught.value)) < 800
    return caught.value


def narrow(user_id: int, *, name: str = "") -> None:
    raise AssertionError("called")


async def narrow_async(user_id: int) -> None:
    raise AssertionError("called")
