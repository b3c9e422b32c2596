"""Filters: which rows of a list are asked for, as the query string tells it; and the query string that tells it again.

Whatever somebody writes into an address is read as far as it makes sense; the rest becomes a complaint on the page.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from re import Pattern
from typing import Any, Self

from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.http import urlencode
from django.utils.translation import gettext

from django_delayq.admin.arguments import DisplayedArguments, printable
from django_delayq.admin.errors import ErrorSummary
from django_delayq.clock import DAY_US, HOUR_US, moment_us
from django_delayq.store.queries.job_pages import JobRow

#: A row's place in its list: score and member.
Cursor = tuple[float, bytes]
SIZES = (25, 50, 100, 250)
#: Words for a stretch of time that ends or begins now.
SPANS = {"15m": HOUR_US // 4, "1h": HOUR_US, "24h": DAY_US, "7d": 7 * DAY_US}
OVERDUE = "overdue"
GROUPS = ("error", "function")
#: Characters of a name, two for a byte where it is written as digits; of text to look for.
_LONGEST, _TEXT = 3_000, 500
#: µs from the epoch: the year 2255.
_FARTHEST = 2**53
_MOMENT, _WHOLE = re.compile(r"-?[0-9]{1,18}"), re.compile(r"-?[0-9]{1,16}")
#: A score that was edited manually in Redis may be a fraction, or larger than any time.
_CURSOR = re.compile(
    r"(-?[0-9]{1,16}|-?inf|-?[0-9]{1,17}\.[0-9]{1,20}|-?[0-9.]{1,20}e[-+]?[0-9]{1,3})\.((?:[0-9a-f]{2}){0,64})"
)
_HEX = re.compile(r"~((?:[0-9a-f]{2})+)")


def url_name(name: str) -> str:
    """Return a name of a queue or function as addresses carry it: as it is, or "~" and hexadecimal digits."""
    if (
        name.isprintable()
        and name == name.strip()
        and name.strip(".")
        and not set(name) & set("/\\")
        and name[0] != "~"
    ):
        return name
    return "~" + name.encode("utf-8", "surrogatepass").hex()


def from_url_name(text: str) -> str:
    """Read what `url_name` wrote. Raises ValueError for what it cannot have written."""
    if len(text) > _LONGEST:
        # Cut, it would be another name, and mean other rows.
        raise ValueError("longer than any name")
    if not text.startswith("~"):
        return text
    found = _HEX.fullmatch(text)
    if not found:
        raise ValueError("not a name")
    return bytes.fromhex(found[1]).decode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """What is asked of a list."""

    queue: str = ""
    #: A task function's name, or the end of it from a dot on, or "=" and the whole; an error's class likewise.
    function: str = ""
    error: str = ""
    text: str = ""
    within: str = ""
    from_us: int | None = None
    to_us: int | None = None
    count: int = 50
    #: Where to begin instead.
    at_us: int | None = None
    #: Whether the list is turned round.
    reversed: bool = False
    group: str = ""
    #: Where the page begins or, with `before`, ends; None: at the list's own beginning or end.
    cursor: Cursor | None = None
    before: bool = False
    #: What could not be read.
    errors: tuple[str, ...] = ()

    @classmethod
    def read(cls, query: Mapping[str, Any]) -> Self:
        """Read a query string."""
        complaints: list[str] = []

        def given(name: str, read: Callable[[str], Any], otherwise: Any = "") -> Any:
            text = str(query.get(name, "")).strip()
            try:
                return read(text) if text else otherwise
            except (ValueError, OverflowError):
                facts = {"name": name, "value": printable(text[:40])}
                complaints.append(gettext("“%(name)s” is not understood: %(value)s") % facts)
                return otherwise

        before = bool(query.get("before"))
        return cls(
            queue=given("queue", from_url_name),
            function=given("function", from_url_name),
            error=given("error", from_url_name),
            text=given("q", _text),
            within=given("within", _one_of(*SPANS, OVERDUE)),
            from_us=given("from", read_moment, None),
            to_us=given("to", read_moment, None),
            at_us=given("at", read_moment, None),
            count=int(given("n", _one_of(*map(str, SIZES)), "50")),
            reversed=bool(given("sort", _one_of("turned"))),
            group=given("group", _one_of(*GROUPS)),
            before=before,
            cursor=given("before" if before else "after", read_cursor, None),
            errors=tuple(complaints),
        )

    def pairs(self, **changes: Any) -> dict[str, Any]:
        """Return the parameters that `read` reads again, with changes."""
        this = replace(self, **changes)
        pairs = {
            **{name: url_name(value) for name in ("queue", "function", "error") if (value := getattr(this, name))},
            "q": this.text,
            "within": this.within,
            "from": this.from_us,
            "to": this.to_us,
            "at": this.at_us,
            "n": this.count if this.count != 50 else "",
            "sort": "turned" if this.reversed else "",
            "group": this.group,
        }
        if this.cursor or this.before:
            pairs["before" if this.before else "after"] = write_cursor(this.cursor)
        return {name: value for name, value in pairs.items() if value not in ("", None)}

    def query(self, **changes: Any) -> str:
        """Return them as a query string, without a leading "?"."""
        return urlencode(self.pairs(**changes))

    def page(self, cursor: Cursor | None = None, *, before: bool = False) -> str:
        """Return the query string of another page of the same list."""
        return self.query(cursor=cursor, before=before, at_us=None)

    def plain(self) -> Self:
        """Return what an address can say: of a list's beginning, without what was not understood."""
        return replace(self, cursor=None, before=False, at_us=None, errors=())

    @property
    def is_set(self) -> bool:
        """Whether anything is left out."""
        return bool(self.queue or self.within or self.scans or self.from_us is not None or self.to_us is not None)

    @property
    def scans(self) -> bool:
        """Whether rows have to be looked at one by one, in any list."""
        return bool(self.function or self.error or self.text)

    def with_absolute_times(self, now_us: int, *, ahead: bool) -> Self:
        """Return the filter with moments in place of "within the next hour" (`ahead`) or "the last"."""
        from_us, to_us = self.from_us, self.to_us
        if self.within == OVERDUE:
            to_us = now_us
        elif self.within and ahead:
            to_us = now_us + SPANS[self.within]
        elif self.within:
            from_us = now_us - SPANS[self.within]
        return replace(self, within="", from_us=from_us, to_us=to_us)

    def match(self, hide: Pattern[str], *, by_queue: bool) -> Callable[[JobRow], bool] | None:
        """Return what says whether a row is meant; None where all are.

        Text is looked for in what everybody may see of the arguments: else whoever may filter could find out the rest.
        """
        tests: list[Callable[[JobRow], bool]] = []
        if self.queue and by_queue:
            tests.append(lambda row: row.queue == self.queue)
        if self.function:
            tests.append(lambda row: _ends(row.task, self.function))
        if self.error:
            tests.append(lambda row: _ends(ErrorSummary.of(row.attempts).error, self.error))
        if self.text:
            wanted = self.text.casefold()
            tests.append(lambda row: wanted in _searched(row, hide).casefold())
        return (lambda row: all(test(row) for test in tests)) if tests else None


def write_cursor(cursor: Cursor | None) -> str:
    """Return a cursor as addresses and forms carry it; that of no row is a list's end."""
    return f"{cursor[0]}.{cursor[1].hex()}" if cursor else "end"


def read_cursor(text: str) -> Cursor | None:
    found = _CURSOR.fullmatch(text)
    if not found and text != "end":
        raise ValueError("not a cursor")
    if not found:
        return None
    read = int if _WHOLE.fullmatch(found[1]) else float
    return read(found[1]), bytes.fromhex(found[2])


def read_moment(text: str) -> int:
    """Read whole µs since the epoch, or a date and time, by default in the current time zone. Raises ValueError."""
    if _MOMENT.fullmatch(text):
        us = int(text)
    else:
        found = parse_datetime(text)
        if found is None:
            day = parse_date(text)
            if day is None:
                raise ValueError("not a moment")
            found = datetime(day.year, day.month, day.day)
        us = moment_us(found if timezone.is_aware(found) else timezone.make_aware(found))
    if abs(us) > _FARTHEST:
        raise ValueError("a score of Redis would not be exact")
    return us


def _text(text: str) -> str:
    return text[:_TEXT]


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError("not one of the words")
        return text

    return read


def _ends(name: str, wanted: str) -> bool:
    if wanted.startswith("="):
        # As groups ask: that name, and none that ends alike.
        return name == wanted[1:]
    return name == wanted or name.endswith(f".{wanted}")


def _searched(row: JobRow, hide: Pattern[str]) -> str:
    line = DisplayedArguments.of(row.job, hide).line(None) if row.job else ""
    return f"{row.id} {row.task} {line} {printable(row.worker)} {row.attempts.last_error}"
