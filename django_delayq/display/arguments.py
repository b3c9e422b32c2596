"""Arguments: what people see of a job's arguments, in one line or in full, and of its context.

Hidden are the task's sensitive parameters, and values at any depth whose name matches ADMIN["REDACT"]. If the task is
not registered here or its arguments no longer fit the signature, all values are hidden: their names are unknown.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from inspect import Parameter
from re import Pattern
from typing import Any, NamedTuple

from django_delayq.display.text import pretty, printable, short
from django_delayq.job.job import Job
from django_delayq.task import registry
from django_delayq.task.sensitive import HIDDEN, Sensitive, redact

#: Shown to people instead of a hidden value. Compared by identity: an argument may be an equal text.
DOTS = "•••"
#: Most characters of the one-line form, and of all arguments together before "Show all".
LINE, FULL = 200, 8 * 1024
#: No parameter has this name; redacting it only checks whether the arguments fit the signature.
_NO_PARAMETER = " "
#: Longest names of keyword arguments that are cached, in characters altogether.
_LONGEST_CACHED = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument as text."""

    #: Empty if the parameter's name is unknown.
    name: str
    text: str
    hidden: bool

    @property
    def is_long(self) -> bool:
        """Whether it needs more than a line."""
        return len(self.text) > 100 or "\n" in self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayedArguments:
    """The arguments of one job as one person may see them."""

    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    #: Whether anything is hidden.
    hidden: bool = False

    @classmethod
    def of(cls, job: Job, hide: Pattern[str], *, reveal: bool = False) -> "DisplayedArguments":
        """Return the arguments, with hidden values replaced unless `reveal`."""
        if reveal:
            return cls(task=job.task, args=job.args, kwargs=job.kwargs)
        args, kwargs = _redacted(job, hide)
        return cls(task=job.task, args=args, kwargs=kwargs, hidden=_has_dots(args) or _has_dots(kwargs))

    def line(self, limit: int | None = LINE, *, bare: bool = False) -> str:
        """Return `send_invoice(42, lang='de')`, or `42, lang='de'` if `bare`, truncated to `limit` characters."""
        parts: list[str] = []
        room = limit
        for part in self._parts(limit, bare=bare):
            parts.append(part)
            if room is not None and (room := room - len(part)) < 0:
                return "".join(parts)[: (limit or 0) - 1] + "…"
        return "".join(parts)

    def arguments(self, limit: int | None = FULL) -> tuple[list[Argument], bool]:
        """Return the arguments one by one, indented, and whether they were truncated to `limit` characters in all."""
        named = [*zip(_positional_names(self.task, len(self.args)), self.args, strict=True), *self.kwargs.items()]
        found, room = [], limit
        for name, value in named:
            text = DOTS if value is DOTS else pretty(value)
            if room is not None:
                text, whole = text[:room], text
                room -= len(text)
            found.append(Argument(name=printable(name), text=text, hidden=value is DOTS))
            if room is not None and (room <= 0 or text is not whole and len(text) < len(whole)):
                return found, True
        return found, False

    def as_json_texts(self) -> dict[str, str]:
        """Return "args" and "kwargs", each as JSON."""
        return {name: json.dumps(value, indent=2) for name, value in (("args", self.args), ("kwargs", self.kwargs))}

    def json(self) -> str:
        """Return {"args", "kwargs"} as JSON."""
        return json.dumps({"args": self.args, "kwargs": self.kwargs}, indent=2)

    def _parts(self, limit: int | None, *, bare: bool) -> Iterator[str]:
        yield "" if bare else printable(short(self.task)) + "("
        between = ""
        for value in self.args:
            yield between
            yield from _python(value, limit)
            between = ", "
        for name, value in self.kwargs.items():
            yield f"{between}{printable(name[:limit])}="
            yield from _python(value, limit)
            between = ", "
        yield "" if bare else ")"


def displayed_context(job: Job, hide: Pattern[str], *, reveal: bool = False) -> dict[str, Any]:
    """Return the context of a job, with the values hidden whose names match ADMIN["REDACT"]."""
    context = job.context or {}
    return context if reveal else _with_dots(context, hide)


def displayed_key(job: Job, hide: Pattern[str], *, reveal: bool = False) -> str:
    """Return the unique key of a job, "" without one. It is often made of the arguments: hidden if they are."""
    if job.key is None:
        return ""
    hidden = not reveal and (registry.find(job.task) is None or DisplayedArguments.of(job, hide).hidden)
    return DOTS if hidden else printable(job.key)


def _redacted(job: Job, hide: Pattern[str]) -> tuple[list[Any], dict[str, Any]]:
    task = registry.find(job.task)
    if task is None:
        return [DOTS] * len(job.args), dict.fromkeys(job.kwargs, DOTS)
    read = _hidden_places if sum(map(len, job.kwargs)) < _LONGEST_CACHED else _hidden_places.__wrapped__
    hidden = read(job.task, task.func, task.sensitive, hide, len(job.args), tuple(job.kwargs))
    args, kwargs = _with_dots(job.args, hide), job.kwargs
    if hidden.numbers:
        args = [DOTS if number in hidden.numbers else value for number, value in enumerate(args)]
    return args, {name: DOTS if name in hidden.names else _with_dots(value, hide) for name, value in kwargs.items()}


class _HiddenPlaces(NamedTuple):
    """The arguments of a task that are hidden, whatever their values are."""

    numbers: frozenset[int]
    names: frozenset[str]


# An export has a hundred thousand jobs of few tasks, and binding the arguments of each would take 10 µs.
@lru_cache(maxsize=1_024)
def _hidden_places(
    name: str, _func: object, sensitive: Sensitive, hide: Pattern[str], count: int, keywords: Sequence[str]
) -> _HiddenPlaces:
    """Return what is hidden of so many positional arguments and of these keywords of the task of a name."""
    signature = registry.find(name).signature  # type: ignore[union-attr]
    if sensitive is not True:
        hidden = filter(hide.search, (*signature.parameters, *keywords))
        sensitive = (*(sensitive or ()), _NO_PARAMETER, *hidden)
    args, kwargs = redact(signature, sensitive, [None] * count, dict.fromkeys(keywords))
    return _HiddenPlaces(
        frozenset(number for number, value in enumerate(args) if value is HIDDEN),
        frozenset(name for name, value in kwargs.items() if value is HIDDEN),
    )


def _with_dots(value: Any, hide: Pattern[str]) -> Any:
    if isinstance(value, list):
        return [_with_dots(item, hide) for item in value]
    if isinstance(value, dict):
        return {key: DOTS if hide.search(key) else _with_dots(item, hide) for key, item in value.items()}
    return value


def _has_dots(value: Any) -> bool:
    if isinstance(value, list):
        return any(map(_has_dots, value))
    return any(map(_has_dots, value.values())) if isinstance(value, dict) else value is DOTS


def _positional_names(task_name: str, count: int) -> list[str]:
    """Return the names of the first positional parameters, empty for those that this process does not know."""
    task = registry.find(task_name)
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    parameters = task.signature.parameters.values() if task else ()
    names = [parameter.name for parameter in parameters if parameter.kind in kinds][:count]
    return names + [""] * (count - len(names))


def _quoted(text: str) -> str:
    """Return the repr of a text, without escapes in ordinary writing."""
    if text.isprintable():
        return repr(text)
    return "'" + printable(text.replace("\\", "\\\\").replace("'", "\\'")) + "'"


def _python(value: Any, limit: int | None) -> Iterator[str]:
    """Yield a JSON value as Python writes it, piece by piece; no text is longer than `limit`."""
    if value is DOTS:
        yield DOTS
    elif isinstance(value, str):
        yield _quoted(value[:limit])
    elif isinstance(value, list):
        yield "["
        for number, item in enumerate(value):
            yield ", " if number else ""
            yield from _python(item, limit)
        yield "]"
    elif isinstance(value, dict):
        yield "{"
        for number, (key, item) in enumerate(value.items()):
            yield f"{', ' if number else ''}{_quoted(key[:limit])}: "
            yield from _python(item, limit)
        yield "}"
    else:
        yield repr(value)
