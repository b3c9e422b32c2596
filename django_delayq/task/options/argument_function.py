"""Argument functions: options that are computed from the arguments of a job, such as its unique key and its tenant.

Such a function takes those parameters of the task that it names.
"""

import inspect
from collections.abc import Callable, Iterable
from functools import lru_cache
from inspect import Parameter, Signature
from typing import Any

from django.views.decorators.debug import sensitive_variables

from django_delayq.conf.spelling import did_you_mean
from django_delayq.conf.validators import check_name

#: Returns a text, or None for none, given those arguments of the task that it names.
ArgumentFunction = Callable[..., str | None]
#: Bounded, because a caller may make a function for each job.
_signature = lru_cache(maxsize=1_024)(inspect.signature)


def check_argument_function(func: Any, of: Signature, *, name: str) -> None:
    """Raise TypeError or ValueError if the function does not fit a task with this signature; `name` is the option's."""
    if not callable(func):
        raise TypeError(f"{name} must be text, or a function of the task's arguments, got {type(func).__name__}")
    open_ended = any(each.kind is Parameter.VAR_KEYWORD for each in of.parameters.values())
    _check(func, tuple(of.parameters), open_ended, name)


@sensitive_variables()
def call_with_arguments(
    func: ArgumentFunction,
    of: Signature,
    args: Iterable[Any],
    kwargs: dict[str, Any],
    *,
    task: str,
    name: str,
    numbers: bool = False,
) -> str | None:
    """Return the value of the option `name` for a job with these arguments; defaults of the task are filled in.

    With `numbers` a whole number counts as its text.
    Raises TypeError if the arguments do not fit the task, ValueError for a value that is no text of 1 to 200 bytes, and
    what the function raises.
    """
    bound = of.bind(*args, **kwargs)
    bound.apply_defaults()
    values = bound.arguments
    for each, parameter in of.parameters.items():
        if parameter.kind is Parameter.VAR_KEYWORD:
            values = {**values[each], **values}
    parameters = _signature(func).parameters
    if not any(each.kind is Parameter.VAR_KEYWORD for each in parameters.values()):
        values = {each: value for each, value in values.items() if each in parameters}
    try:
        value: Any = func(**values)
    except StopIteration as error:
        # An iterator that makes jobs would end here, and the rest would be lost without a word.
        raise RuntimeError(f"the {name}= function of {task} raised StopIteration; give next() a default") from error
    except Exception as error:
        error.add_note(f"This was raised by the {name}= function of {task}.")
        raise
    if numbers and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    return None if value is None else check_name(value, name=f"the {name} of {task}")


# Django's own tasks are checked at each enqueue, because settings may name the function.
@lru_cache(maxsize=1_024)
def _check(func: Any, names: tuple[str, ...], open_ended: bool, label: str) -> None:
    if inspect.iscoroutinefunction(func):
        raise TypeError(f"{label} must be a plain function, not async def: it is called where jobs are enqueued")
    try:
        parameters = _signature(func).parameters
    except (ValueError, TypeError) as error:
        raise ValueError(f"{label} must be a function whose parameters Python can read; wrap it in a lambda") from error
    for name, parameter in parameters.items():
        if parameter.kind in (Parameter.VAR_POSITIONAL, Parameter.POSITIONAL_ONLY):
            raise ValueError(
                f"{label} is a function with the positional parameter {name!r}; it is called by name, so name those "
                f"parameters of the task that it needs"
            )
        is_optional = parameter.default is not Parameter.empty or parameter.kind is Parameter.VAR_KEYWORD
        if name not in names and not is_optional and not open_ended:
            raise ValueError(
                f"{label} is a function of {name!r}, which is no parameter of the task{did_you_mean(name, names)}"
            )
