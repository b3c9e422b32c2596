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


def group(*errors: Exception, note: str = "") -> ExceptionGroup[Exception]:
    made = ExceptionGroup("several\nlines", errors)
    if note:
        made.add_note(note)
    return made


def noted(error: Exception, note: str) -> Exception:
    error.add_note(note)
    return error


def raised(error: Exception, behind: Exception | None = None) -> Exception:
    """Return an exception with a traceback, and with one behind it."""
    try:
        if behind is not None:
            try:
                raise behind
            except Exception:
                raise error  # noqa: B904
        raise error
    except Exception as found:
        return found


SEVERAL = "several\nlines (2 sub-exceptions)"
LINKED = "a\n\nDuring handling of the above exception, another exception occurred:\n\nb"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ValueError("one\nValueError: two\nValueError"), "one\nValueError: two\nValueError"),
        (ValueError(LINKED), LINKED),
        (noted(ValueError(), "card 12"), "card 12"),
        (noted(ValueError("no"), "card 12"), "no\ncard 12"),
        (group(ValueError("a\nb"), group(KeyError("c"), OSError("d"))), SEVERAL),
        (group(ValueError("a"), KeyError("b"), note="in all"), f"{SEVERAL}\nin all"),
        (group(ValueError("a"), raised(ValueError("b"), KeyError("c"))), SEVERAL),
        (SyntaxError("no", ("shop.py", 1, 1, "x = = 1")), "no"),
        (RecursionError(), ""),
    ],
)
@pytest.mark.parametrize("behind", [None, ValueError("first"), group(ValueError("first"), KeyError())], ids=repr)
@pytest.mark.parametrize("is_raised", [False, True], ids=["made", "raised"])
def test_the_message_is_what_the_exception_says_itself(
    error: Exception, message: str, behind: Exception | None, is_raised: bool
) -> None:
    error.__traceback__ = error.__context__ = None
    found = JobError.of(*stored(raised(error, behind) if is_raised else error))
    assert found.message == message


def test_a_class_inside_a_function_has_its_message() -> None:
    class Inner(Exception):
        """An exception of a function."""

    assert JobError.of(*stored(raised(Inner("no")))).message == "no"


def test_a_task_that_gives_up_says_why_in_any_number_of_lines() -> None:
    assert JobError.of("the user\nis gone", "django_delayq.exceptions.DeadLetterNow").message == "the user\nis gone"


def test_a_cut_group_has_its_last_error_as_message() -> None:
    text, path = stored(raised(group(ValueError("a"), KeyError("b"))))
    assert JobError.of(f"…{text[-120:]}", path).message == "KeyError: 'b'"


def test_an_ending_without_an_exception_is_its_sentence() -> None:
    assert JobError.of("The process was killed.", "") == JobError("", "The process was killed.", "")


def test_a_cut_text_has_its_last_line_as_message() -> None:
    assert JobError.of("…rest of a message", "shop.Failure").message == "…rest of a message"


def test_the_repr_has_no_traceback() -> None:
    assert "a secret local" not in repr(JobError("x.Y", "m", "a secret local"))
