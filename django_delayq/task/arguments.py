"""Arguments: check that the function accepts them, and that JSON returns them unchanged."""

import inspect
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cache
from typing import Any

from django_delayq.exceptions import PayloadNotSerializable, PayloadTooLarge
from django_delayq.job.job import MAX_CONTEXT, MAX_DEPTH

#: Python refuses to print or read integers of more than 4,300 digits.
_MAX_INTEGER_BITS = 13_000
#: Most values in a payload of the largest size: each takes two bytes.
_MAX_VALUES = 4 * 1024 * 1024
_PLAIN_INTEGER = 2**63
_SURROGATE_PAIR = re.compile("[\\ud800-\\udbff][\\udc00-\\udfff]")
_SCALARS = (str, int, bool, type(None))
#: Type of an argument -> what to send instead.
_HINTS = {
    "tuple": "use a list",
    "set": "use a list",
    "frozenset": "use a list",
    "datetime": "send value.isoformat()",
    "date": "send value.isoformat()",
    "timedelta": "send value.total_seconds()",
    "Decimal": "send str(value)",
    "UUID": "send str(value)",
    "bytes": "send base64 text",
    "SafeString": "send value + ''",
}


#: The arguments of one job of `enqueue_many()`: positional, or named.
Arguments = Sequence[Any] | Mapping[str, Any]
signature = cache(inspect.signature)


def positional_and_named(arguments: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the positional and the keyword arguments of one job of `enqueue_many()`. Raises TypeError."""
    if isinstance(arguments, Mapping):
        return [], dict(arguments)
    if isinstance(arguments, str | bytes) or not isinstance(arguments, Iterable):
        raise TypeError(
            f"enqueue_many() takes a tuple of positional arguments, or a dict of keyword arguments, for each job, "
            f"got {type(arguments).__name__}; write (value,) for a single argument"
        )
    return list(arguments), {}


def args_and_kwargs(args: Any, kwargs: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the values of the options `args` and `kwargs` of one job. Raises TypeError."""
    # A set has no order.
    if isinstance(args, str | bytes | Mapping | Set) or not isinstance(args, Iterable):
        raise TypeError(
            f"args must be a list of positional arguments, got {type(args).__name__}; a dict is for kwargs="
        )
    if not isinstance(kwargs, Mapping | None):
        raise TypeError(f"kwargs must be a dict of keyword arguments, got {type(kwargs).__name__}")
    return list(args), dict(kwargs or {})


def check_fit(func: Callable[..., Any], args: list[Any], kwargs: dict[str, Any], *, of: str = "") -> None:
    """Raise TypeError if the function does not accept the arguments. The error names the task `of`."""
    least, most = _positional(func)
    if kwargs or not least <= len(args) <= most:
        try:
            signature(func).bind(*args, **kwargs)
        except TypeError as error:
            if not of:
                raise
            raise TypeError(f"The arguments do not fit the task {of}: {error}") from None


def check_payload(
    value: Any,
    path: str,
    *,
    show_keys: bool = True,
    depth: int = 0,
    above: Any = None,
    budget: list[int] | None = None,
) -> None:
    """Raise `PayloadNotSerializable` for a value that JSON cannot carry unchanged, or `PayloadTooLarge`.

    The error names the path to the value, never the value. Keys of dicts are shown in the path only with `show_keys`.
    """
    kind = type(value)
    if kind in _SCALARS:
        if kind is str and not value.isascii() and _SURROGATE_PAIR.search(value):
            raise PayloadNotSerializable(f"{path} has a surrogate pair, which JSON would join; decode the text first")
        if kind is int and value.bit_length() > _MAX_INTEGER_BITS:
            raise PayloadTooLarge(f"{path} is an integer of more than 4,000 digits; send it as hexadecimal text")
        return
    if kind is float:
        if not math.isfinite(value):
            raise PayloadNotSerializable(f"{path} is {value!r}, which JSON does not have; send None or a string")
        return
    if kind is not list and kind is not dict:
        raise PayloadNotSerializable(f"{path} is a {kind.__name__}, which JSON cannot carry unchanged; {_hint(value)}")
    if depth >= MAX_DEPTH:
        while above is not None:
            above, other = above
            if other is value:
                raise PayloadNotSerializable(
                    f"{path:.200} … contains itself, which JSON cannot carry; send a copy or a reference"
                )
        raise PayloadTooLarge(
            f"{path:.200} … is nested deeper than {MAX_DEPTH} levels; send a flatter value or a reference"
        )
    # A few nested lists that share items can stand for more values than fit into memory.
    budget = [_MAX_VALUES] if budget is None else budget
    budget[0] -= len(value)
    if budget[0] < 0:
        raise PayloadTooLarge(
            f"{path:.200} has more than {_MAX_VALUES:,} values; store them elsewhere and pass a reference"
        )
    above = (above, value)
    if kind is list:
        for index, item in enumerate(value):
            if not _is_plain(item):
                inner = f"{path}[{index}]"
                check_payload(item, inner, show_keys=show_keys, depth=depth + 1, above=above, budget=budget)
        return
    for key, item in value.items():
        if type(key) is not str:
            raise PayloadNotSerializable(
                f"{path} has a key of type {type(key).__name__}; JSON objects have str keys: convert it with str()"
            )
        if not _is_plain(item):
            inner = f"{path}[{key!r:.80}]" if show_keys else f"{path}[…]"
            check_payload(item, inner, show_keys=show_keys, depth=depth + 1, above=above, budget=budget)


def check_arguments(args: list[Any], kwargs: dict[str, Any], *, show_keys: bool) -> None:
    """Check each argument of a job with `check_payload()`."""
    for index, value in enumerate(args):
        if not _is_plain(value):
            check_payload(value, f"args[{index}]", show_keys=show_keys)
    for name, value in kwargs.items():
        check_payload(value, f"kwargs[{name!r}]", show_keys=show_keys)


def check_context(context: Any, *, of: str) -> None:
    """Raise `PayloadNotSerializable` or `PayloadTooLarge` for a context that no job of the task `of` can have."""
    name = f"the context of the job of {of}"
    if type(context) is not dict:
        raise PayloadNotSerializable(
            f"{name} must be a dict, got {type(context).__name__}; middlewares fill job.context"
        )
    check_payload(context, name)
    size = len(json.dumps(context, separators=(",", ":")))
    if size > MAX_CONTEXT:
        largest = max(context, key=lambda key: len(json.dumps(context[key])))
        raise PayloadTooLarge(
            f"{name} takes {size:,} bytes of JSON, more than {MAX_CONTEXT:,}; its largest value is {largest!r:.80}. "
            f"A middleware puts a reference into job.context and looks the rest up in run()"
        )


@cache
def _positional(func: Callable[..., Any]) -> tuple[float, float]:
    """Return the least and most positional arguments that surely fit; binding costs ten times as much."""
    parameters = signature(func).parameters.values()
    by_place = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    if any(each.kind is each.KEYWORD_ONLY and each.default is each.empty for each in parameters):
        return math.inf, math.inf
    least = sum(each.default is each.empty for each in by_place)
    return least, math.inf if any(each.kind is each.VAR_POSITIONAL for each in parameters) else len(by_place)


def _is_plain(value: Any) -> bool:
    """Return whether a value is surely valid. Most are, and building the path of each would be the largest cost."""
    kind = type(value)
    if kind is int:
        return bool(-_PLAIN_INTEGER < value < _PLAIN_INTEGER)
    return value.isascii() if kind is str else value is None or kind is bool


def _hint(value: Any) -> str:
    name = type(value).__name__
    if hasattr(value, "_meta") and hasattr(value, "pk"):
        return "send its primary key (value.pk)"
    if name in _HINTS:
        return _HINTS[name]
    if isinstance(value, (str, int)):
        return "convert it with str() or int(), or send value.value of an enum"
    return "convert it to str, int, float, bool, None, list or dict"
