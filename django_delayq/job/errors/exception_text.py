"""Exception text: what is read of an exception of the project, whose `__str__()` or metaclass may raise anything."""

import traceback

from django_delayq.job.retry import class_path


def path_of(error: BaseException) -> str:
    """Return "module.qualname" of the class of an exception. Raises nothing."""
    try:
        return class_path(type(error))
    except BaseException:
        # Its metaclass raises, so bypass it.
        return str(type.__getattribute__(type(error), "__name__"))


def text_of(error: BaseException) -> str:
    """Return the message of an exception as a plain str. Raises what its `__str__()` raises."""
    # A subclass of str may run code of its own wherever it is used, even in the loop of the worker.
    return str.__str__(str(error))


def message_of(error: BaseException) -> str | None:
    """Return the message of an exception; None if it cannot be read. Raises nothing."""
    try:
        return text_of(error)
    except BaseException:
        # It may even be SystemExit.
        return None


def traceback_of(error: BaseException, *, chain: bool = True) -> str:
    """Return the traceback of an exception, with those behind it if `chain`. Raises nothing."""
    try:
        return "".join(traceback.format_exception(error, chain=chain))
    except BaseException as unprintable:
        return f"{path_of(error)} (its traceback cannot be printed: {path_of(unprintable)})"
