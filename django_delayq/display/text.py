"""Text: names and values as people read them. Nothing in it can move a cursor or turn the reading direction."""

import json
import re
from datetime import timedelta
from typing import Any
from unicodedata import category

from django.utils.formats import localize
from django.utils.translation import gettext as _

from django_delayq.clock import DAY_US, HOUR_US, SECOND_US
from django_delayq.templatetags.delayq import grouped

#: Persian words and emoji need them; between ASCII characters they make two different names look alike.
_JOINERS = "\u200c\u200d"
_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_UNITS = {"ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def printable(text: str, *, lines: bool = False) -> str:
    """Return text with unprintable characters escaped: NUL, lone surrogates, marks that change the reading direction.

    Spaces of other widths stay, and joiners between letters that need them; with `lines`, line breaks and tabs too.
    """
    if text.isprintable():
        return text
    kept = "\n\t" if lines else ""
    return "".join(
        c if c.isprintable() or c in kept or _is_ordinary(text, at) else escaped(c) for at, c in enumerate(text)
    )


def escaped(text: str) -> str:
    """Return characters as Python escapes."""
    return text.encode("unicode_escape").decode("ascii")


def _is_ordinary(text: str, at: int) -> bool:
    """Return whether an unprintable character belongs to ordinary writing and has a visible effect there."""
    around = text[at - 1 : at] + text[at + 1 : at + 2]
    if len(around) < 2 or not around.isprintable() or " " in around:
        return False
    return category(text[at]) == "Zs" or (text[at] in _JOINERS and max(around) > "\x7f")


def short(name: str) -> str:
    """Return the last part of a dotted name."""
    return name.rpartition(".")[2] or name


def pretty(value: Any) -> str:
    """Return a JSON value as indented text."""
    return printable(json.dumps(value, indent=2, ensure_ascii=False), lines=True)


def span_text(us: int) -> str:
    """Return a span in µs exactly, unlike the filter `duration`: `30 s`, `1 min 30 s`, `2 h`."""
    words = []
    for unit, size in ((_("%s d"), DAY_US), (_("%s h"), HOUR_US), (_("%s min"), 60 * SECOND_US)):
        number, us = divmod(us, size)
        words += [unit % grouped(number)] if number else []
    if us or not words:
        words.append(_("%s s") % localize(us / SECOND_US if us % SECOND_US else us // SECOND_US))
    return " ".join(words)


def read_span(text: str, *, or_write: str = "") -> timedelta:
    """Read "10m" or "1h30m": a number with each of the units ms, s, m, h, d, w. Raises ValueError with the cure.

    `or_write` ends the cure where people may write more than spans.
    """
    parts = _SPAN.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{text!r:.80} is no time: use 10m, 1h30m or 2d{or_write}")
    try:
        return sum((timedelta(**{_UNITS[unit]: float(number)}) for number, unit in parts), timedelta())
    except OverflowError as error:
        raise ValueError(f"{text!r:.80} is too long: a span is at most {timedelta.max.days}d") from error


def write_span(us: int) -> str:
    """Return a span in µs as `read_span()` reads it."""
    parts = []
    for unit, size in (("d", DAY_US), ("h", HOUR_US), ("m", 60 * SECOND_US), ("s", SECOND_US)):
        number, us = divmod(us, size)
        parts += [f"{number}{unit}"] if number else []
    return "".join([*parts, *([f"{us / 1_000:g}ms"] if us or not parts else [])])
