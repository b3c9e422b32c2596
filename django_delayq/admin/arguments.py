"""Payloads: a job's arguments as people may see them, in one line or in full.

Hidden are the parameters that the task calls sensitive, whatever has a name that ADMIN["REDACT"] matches, at any depth,
and everything where the task is not registered here or its arguments no longer fit: names are all there is to go by.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from inspect import Parameter
from re import Pattern
from typing import Any
from unicodedata import category

from django_delayq.exceptions import PayloadNotSerializable
from django_delayq.job.job import Job
from django_delayq.task import registry
from django_delayq.task.redaction import HIDDEN, redact

#: What stands in the place of a hidden value.
DOTS = "•••"
#: Characters of the one-line form, and of all arguments together before "Show all".
LINE, FULL = 200, 8 * 1024
#: Persian words and emoji need them; elsewhere they only make two names look alike.
_JOINERS = "\u200c\u200d"
#: No parameter has this name. Redacting by it alone finds out whether the arguments still fit.
_NOBODY = " "


class _Redacted(str):
    """Stands for a hidden value: prints without quotes, and is a string in JSON."""

    def __repr__(self) -> str:
        return DOTS


_DOTS = _Redacted(DOTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument, spelled out."""

    #: Empty where nobody knows what the parameter is called.
    name: str
    text: str
    hidden: bool

    @property
    def is_long(self) -> bool:
        """Whether it needs more than a line."""
        return len(self.text) > 100 or "\n" in self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class DisplayedArguments:
    """The arguments of one job for one pair of eyes."""

    task: str
    args: list[Any]
    kwargs: dict[str, Any]
    #: Whether anything is hidden.
    hidden: bool = False

    @classmethod
    def of(cls, job: Job, hide: Pattern[str], *, reveal: bool = False) -> "DisplayedArguments":
        """Return the arguments with what must be hidden hidden, unless `reveal`."""
        if reveal:
            return cls(task=job.task, args=job.args, kwargs=job.kwargs)
        args, kwargs = _redacted(job, hide)
        hidden = any(value is _DOTS for value in _values([args, kwargs]))
        return cls(task=job.task, args=args, kwargs=kwargs, hidden=hidden)

    def line(self, limit: int | None = LINE, *, bare: bool = False) -> str:
        """Return `send_invoice(42, lang='de')`, bare: `42, lang='de'`, cut at so many characters; None: not cut."""
        parts: list[str] = []
        room = limit
        for part in self._spelled(limit, bare=bare):
            parts.append(part)
            if room is not None and (room := room - len(part)) < 0:
                return "".join(parts)[: (limit or 0) - 1] + "…"
        return "".join(parts)

    def arguments(self, limit: int | None = FULL) -> tuple[list[Argument], bool]:
        """Return the arguments one by one, pretty-printed, and whether they were cut at so many characters in all."""
        named = [*zip(_positions(self.task, len(self.args)), self.args, strict=True), *self.kwargs.items()]
        found, room = [], limit
        for name, value in named:
            text = DOTS if value is _DOTS else pretty(value)
            if room is not None:
                text, whole = text[:room], text
                room -= len(text)
            found.append(Argument(name=printable(name), text=text, hidden=value is _DOTS))
            if room is not None and (room <= 0 or text is not whole and len(text) < len(whole)):
                return found, True
        return found, False

    def as_json_texts(self) -> dict[str, str]:
        """Return "args" and "kwargs" as JSON, each for itself."""
        return {name: json.dumps(value, indent=2) for name, value in (("args", self.args), ("kwargs", self.kwargs))}

    def json(self) -> str:
        """Return {"args", "kwargs"} as JSON."""
        return json.dumps({"args": self.args, "kwargs": self.kwargs}, indent=2)

    def _spelled(self, limit: int | None, *, bare: bool) -> Iterator[str]:
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


def printable(text: str, *, lines: bool = False) -> str:
    """Return text with everything written out that does not print (NUL, lone surrogates, marks that turn the reading
    direction); with `lines`, lines and tabs stay.

    What people write stays as well: spaces of other widths, and joiners between letters that need them.
    """
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(
        c if c.isprintable() or c in kept or _is_written(text, at) else written_out(c) for at, c in enumerate(text)
    )


def written_out(text: str) -> str:
    """Return characters that do not print as Python's escapes."""
    return text.encode("unicode_escape").decode("ascii")


def _is_written(text: str, at: int) -> bool:
    """Say whether a character that does not print is part of people's writing, and seen by what it does there."""
    around = text[at - 1 : at] + text[at + 1 : at + 2]
    if len(around) < 2 or not around.isprintable() or " " in around:
        return False
    return category(text[at]) == "Zs" or (text[at] in _JOINERS and min(around) > "\x7f")


def short(name: str) -> str:
    """Return the last part of a dotted name."""
    return name.rpartition(".")[2] or name


def pretty(value: Any) -> str:
    """Return a JSON value over several lines."""
    return printable(json.dumps(value, indent=2, ensure_ascii=False), lines=True)


def read_arguments(text: str, kind: type) -> Any:
    """Read edited arguments: JSON of a list or an object. Raises `PayloadNotSerializable`, never anything else."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PayloadNotSerializable(f"this is not JSON: {error}") from error
    if type(value) is not kind:
        wanted = "a list, [ … ]" if kind is list else "an object, { … }"
        raise PayloadNotSerializable(f"this must be {wanted}, got {type(value).__name__}")
    return value


def _redacted(job: Job, hide: Pattern[str]) -> tuple[list[Any], dict[str, Any]]:
    task = registry.find(job.task)
    if task is None:
        return [_DOTS] * len(job.args), dict.fromkeys(job.kwargs, _DOTS)
    fits = task.signature
    names = [_NOBODY, *filter(hide.search, (*fits.parameters, *job.kwargs))]
    sensitive = task.sensitive if isinstance(task.sensitive, bool) else tuple(task.sensitive)
    if sensitive is not True:
        sensitive = (*(sensitive or ()), *names)
    args, kwargs = redact(fits, sensitive, job.args, job.kwargs)
    return [_deep(value, hide) for value in args], {name: _deep(value, hide) for name, value in kwargs.items()}


def _deep(value: Any, hide: Pattern[str]) -> Any:
    # By identity: a job may well carry an equal text of its own.
    if value is HIDDEN:
        return _DOTS
    if isinstance(value, list):
        return [_deep(item, hide) for item in value]
    if isinstance(value, dict):
        return {key: _DOTS if hide.search(key) else _deep(item, hide) for key, item in value.items()}
    return value


def _values(value: Any) -> Iterator[Any]:
    if isinstance(value, list | dict):
        for item in value if isinstance(value, list) else value.values():
            yield from _values(item)
    else:
        yield value


def _positions(task_name: str, count: int) -> list[str]:
    """Return what the first positional parameters are called, as far as this process knows."""
    task = registry.find(task_name)
    kinds = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
    parameters = task.signature.parameters.values() if task else ()
    names = [parameter.name for parameter in parameters if parameter.kind in kinds][:count]
    return names + [""] * (count - len(names))


def _quoted(text: str) -> str:
    """Return text as Python writes it, but for what people's writing needs."""
    if text.isprintable():
        return repr(text)
    return "'" + printable(text.replace("\\", "\\\\").replace("'", "\\'")) + "'"


def _python(value: Any, limit: int | None) -> Iterator[str]:
    """Yield a JSON value as Python writes it, piece by piece; no text is longer than `limit`."""
    if value is _DOTS:
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
