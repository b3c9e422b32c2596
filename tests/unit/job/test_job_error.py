"""JobError: class, message and traceback from what an attempt history stores."""

import traceback

import pytest

from django_delayq.job.result import JobError


class Failure(Exception):
    """An exception of a project."""


def stored(error: BaseException) -> tuple[str, str]:
    """Return the text and the class path as execution stores them."""
    kind = type(error)
    return "".join(traceback.format_exception(error)), f"{kind.__module__}.{kind.__qualname__}"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("no"), "no"),
        (Failure("a: b\nmore lines\n\nlast"), "a: b\nmore lines\n\nlast"),
        (Failure(), ""),
        (ValueError("ValueError: again"), "ValueError: again"),
    ],
)
def test_class_and_message_of_an_exception(error: Exception, message: str) -> None:
    text, path = stored(error)
    found = JobError.of(text, path)
    assert (found.class_path, found.message) == (path, message)
    assert found.traceback == text


def test_the_last_exception_of_a_chain_counts() -> None:
    try:
        try:
            raise ValueError("first")
        except ValueError:
            raise ValueError("second")  # noqa: B904
    except ValueError as error:
        assert JobError.of(*stored(error)).message == "second"


def test_an_ending_without_an_exception_is_its_sentence() -> None:
    assert JobError.of("The process was killed.", "") == JobError("", "The process was killed.", "")


def test_a_cut_text_has_its_last_line_as_message() -> None:
    assert JobError.of("…rest of a message", "shop.Failure").message == "…rest of a message"


def test_the_repr_has_no_traceback() -> None:
    assert "a secret local" not in repr(JobError("x.Y", "m", "a secret local"))
