"""Exceptions: a message ends with the address of its section, whatever a project gives as the message."""

import pickle
from typing import Any

import pytest

from django_delayq.exceptions import DelayQError, PayloadTooLarge, see

TOO_LARGE = see(PayloadTooLarge.part)


class OwnError(PayloadTooLarge):
    part = PayloadTooLarge.part


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("is it x", "is it x."),
        ("is it 7", "is it 7."),
        ("is it 'x'", "is it 'x'."),
        ("is it x (or y)", "is it x (or y)."),
        ("is it x.", "is it x."),
        ("is it x?", "is it x?"),
        ("x …", "x …"),
        ({"size": 7}, "{'size': 7}."),
        (7, "7."),
    ],
)
def test_a_message_has_one_end_before_its_address(message: Any, text: str) -> None:
    error = PayloadTooLarge(message)
    assert str(error) == f"{text} {TOO_LARGE}"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_a_class_without_a_docstring_has_the_message_of_its_base() -> None:
    assert OwnError.__doc__ is None and PayloadTooLarge.__doc__
    assert str(OwnError()) == str(PayloadTooLarge()) == f"{PayloadTooLarge.__doc__} {TOO_LARGE}"
    assert str(type("Bare", (DelayQError,), {})()) == DelayQError.__doc__
