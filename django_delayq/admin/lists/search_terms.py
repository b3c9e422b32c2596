"""Search terms: what people write into the search field, such as `task:send error:Timeout order 4711`."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Any, Self

from django.utils.translation import gettext as _

from django_delayq.admin.lists.filters import (
    FILTER_NAMES,
    OUTCOMES,
    OVERDUE,
    SPANS,
    Filter,
    from_url_name,
    read_moment,
    url_name,
)
from django_delayq.clock import SECOND_US
from django_delayq.display.text import read_span

#: Terms with a name. They are the same in every language, so that addresses and notes of a team can name them.
NAMES = (*FILTER_NAMES, "key", "due", "failed", "ended", "outcome")
#: A value with a space needs quotation marks. Everything else is text.
_TERM = re.compile(rf'(?:({"|".join(NAMES)}):\s*)?(?:"([^"]*)"|(\S+))')
#: Terms that are suggested besides names; and most names, and characters of a name, that are.
_TIMES = ("due:overdue", "due:1h", "due:24h", "failed:1h", "failed:24h")
_MOST, _LONGEST = 20, 200
_DAY = re.compile(r"\d{4}-\d{2}-\d{2}")


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchTerms:
    """What a person searches for."""

    #: Name of a term -> its value; the last one of a name counts.
    named: Mapping[str, str] = field(default_factory=dict)
    text: str = ""

    @classmethod
    def read(cls, written: str) -> Self:
        """Read the content of the field. Raises ValueError with the cure if a value makes no sense."""
        named: dict[str, str] = {}
        words = []
        for name, quoted, plain in _TERM.findall(written):
            value = quoted or plain
            if not name:
                words.append(value)
            elif value:
                named[name] = _name(value) if name in FILTER_NAMES else value
        return cls(named=named, text=" ".join(words))

    def apply(self, job_filter: Filter, *, now_us: int) -> Filter:
        """Return a filter with these terms in place of its own of the same kind. Raises ValueError with the cure."""
        names: dict[str, Any] = {name: self.named[name] for name in FILTER_NAMES if name in self.named}
        changed = replace(job_filter.plain(), **names)
        if "task" in names or "error" in names:
            changed = replace(changed, error_group="")
        if self.text:
            changed = replace(changed, text=self.text)
        for name in ("due", "failed", "ended"):
            if value := self.named.get(name):
                changed = _within(changed, value, now_us=now_us, ahead=name == "due")
        if "ended" in self.named and changed.at_us is not None:
            # *Finished* begins with the last one until then.
            changed = replace(changed, at_us=None, to_us=changed.at_us)
        return replace(changed, outcome=_outcome(self.named["outcome"])) if "outcome" in self.named else changed


def _name(value: str) -> str:
    try:
        return from_url_name(value)
    except ValueError as error:
        raise ValueError(_("“%s” is no name.") % value[:40]) from error


def _outcome(text: str) -> str:
    found = {name.term: state for state, name in OUTCOMES.items()}
    if text not in found:
        words = ", ".join(found)
        raise ValueError(_("“%(word)s” is no outcome: write one of %(words)s.") % {"word": text[:40], "words": words})
    return found[text].value


def write_term(name: str, value: str) -> str:
    """Return a term as `SearchTerms.read()` reads it, in quotation marks if its value needs them."""
    written = url_name(value)
    if written.startswith('"') or (re.search(r"\s", written) and '"' in written):
        written = "~" + value.encode("utf-8", "surrogatepass").hex()
    return f'{name}:"{written}"' if re.search(r"\s", written) else f"{name}:{written}"


def write_terms(names: Iterable[tuple[str, str]]) -> list[str]:
    """Return the terms of these names and values, without values that are too long for a suggestion."""
    return [write_term(*each) for each in names if 0 < len(each[1]) <= _LONGEST]


def suggestions(queues: Iterable[str], tasks: Iterable[str]) -> list[str]:
    """Return terms that the field suggests; at most a kilobyte or two of a page."""
    names = [("queue", name) for name in sorted(queues)] + [("task", name) for name in sorted(tasks)]
    return write_terms(names)[:_MOST] + list(_TIMES)


def _within(job_filter: Filter, text: str, *, now_us: int, ahead: bool) -> Filter:
    """Return the filter with the times of `due:`, `failed:` or `ended:`."""
    changed = replace(job_filter, within="", from_us=None, to_us=None)
    if text in SPANS or (ahead and text == OVERDUE):
        return replace(changed, within=text)
    try:
        if ".." in text:
            start, _dots, end = text.partition("..")
            return replace(changed, from_us=_moment(start), to_us=_moment(end, ends=True))
        if _DAY.fullmatch(text):
            return replace(changed, from_us=_moment(text), to_us=_moment(text, ends=True))
        if text[:1].isdecimal() and text[-1:].isalpha() and "T" not in text:
            span_us = int(read_span(text).total_seconds() * SECOND_US)
            end_us = read_moment(str(now_us + span_us if ahead else now_us - span_us))
            return replace(changed, to_us=end_us) if ahead else replace(changed, from_us=end_us)
        return replace(changed, at_us=read_moment(text))
    except (ValueError, OverflowError) as error:
        cure = _("“%s” is no time: write 24h, 2026-12-24, 2026-12-24T09:00, or two of these dates with .. between.")
        raise ValueError(cure % text[:40]) from error


def _moment(text: str, *, ends: bool = False) -> int | None:
    """Read one end of a range; a day ends with its last µs. None: the range is open."""
    if not text:
        return None
    if ends and _DAY.fullmatch(text):
        # A day is 23 or 25 hours long when clocks change.
        text = (date.fromisoformat(text) + timedelta(days=1)).isoformat()
    return read_moment(text)
