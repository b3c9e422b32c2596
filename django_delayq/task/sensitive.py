"""Sensitive: the option of a task that names the parameters whose values people do not see, and how these are hidden.

Errors are not redacted: the message of an exception that a task raises is stored and logged unchanged.
"""

import inspect
from collections.abc import Mapping, Sequence
from inspect import Parameter, Signature
from typing import Any

from django_delayq.conf.spelling import did_you_mean

#: Shown instead of a hidden value.
HIDDEN = "********"
#: Names of the parameters whose values are hidden; True for all.
Sensitive = tuple[str, ...] | bool


def check_sensitive(func: Any, sensitive: Any) -> Sensitive:
    """Return the `sensitive` option in its stored form. Raises TypeError, and ValueError for an unknown parameter."""
    if isinstance(sensitive, bool):
        return sensitive
    if not isinstance(sensitive, list | tuple) or not all(isinstance(name, str) for name in sensitive):
        raise TypeError(
            f"sensitive must be True or a tuple of parameter names such as ('card',), got {type(sensitive).__name__}"
        )
    parameters = inspect.signature(func).parameters
    open_ended = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
    for name in sensitive:
        # Only the caller knows the names in **options.
        if name not in parameters and not open_ended:
            raise ValueError(
                f"sensitive names {name!r:.80}, which is no parameter of the task{did_you_mean(name, parameters)}"
            )
    return tuple(sensitive)


def redact(
    signature: Signature, sensitive: Sensitive, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments with the values of sensitive parameters hidden, however they were passed.

    If they do not fit the signature, because the function has changed, all are hidden.
    """
    if not sensitive:
        return list(args), dict(kwargs)
    try:
        signature.bind(*args, **kwargs)
    except TypeError:
        sensitive = True
    if isinstance(sensitive, bool):
        return [HIDDEN] * len(args), dict.fromkeys(kwargs, HIDDEN)
    if signature.parameters.keys().isdisjoint(sensitive) and kwargs.keys().isdisjoint(sensitive):
        # As for most jobs. An export has a hundred thousand.
        return list(args), dict(kwargs)
    by_kind: dict[Any, list[str]] = {}
    for name, parameter in signature.parameters.items():
        by_kind.setdefault(parameter.kind, []).append(name)
    positional = by_kind.get(Parameter.POSITIONAL_ONLY, []) + by_kind.get(Parameter.POSITIONAL_OR_KEYWORD, [])
    keywords = {*by_kind.get(Parameter.POSITIONAL_OR_KEYWORD, ()), *by_kind.get(Parameter.KEYWORD_ONLY, ())}
    var_args, var_kwargs = (by_kind.get(kind, [""])[0] for kind in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD))
    names = positional + [var_args] * (len(args) - len(positional))
    return (
        [HIDDEN if name in sensitive else value for name, value in zip(names, args, strict=False)],
        {
            name: HIDDEN if name in sensitive or (name not in keywords and var_kwargs in sensitive) else value
            for name, value in kwargs.items()
        },
    )
