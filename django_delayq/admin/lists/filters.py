"""The filter of a list, and its query string.

Invalid query parameters are ignored and reported on the page.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from re import Pattern
from typing import Any, NamedTuple, Self

from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.http import urlencode
from django.utils.translation import gettext, gettext_lazy

from django_delayq.clock import DAY_US, HOUR_US, moment_us
from django_delayq.display.arguments import DisplayedArguments
from django_delayq.display.text import printable
from django_delayq.job.job import State
from django_delayq.store.queries.job_filter import JobFilter
from django_delayq.store.queries.job_pages import JobRow

#: A row's position in its list: score and member.
Cursor = tuple[float, bytes]
SIZES = (25, 50, 100, 250)
#: Values of `within`: a span that ends or begins now.
SPANS = {"15m": HOUR_US // 4, "1h": HOUR_US, "24h": DAY_US, "7d": 7 * DAY_US}
OVERDUE = "overdue"
GROUPS = ("error", "task")
#: Orders of groups: by number, by their last and by their first job.
ORDERS = ("jobs", "last", "first")
#: Most characters of a name, with two digits per byte if it is in hexadecimal; and of a text to search for.
_MAX_NAME, _MAX_TEXT = 3_000, 500
#: µs since the epoch: the year 2255.
_MAX_US = 2**53
#: Fields with a name, which an address holds as `url_name()` writes it.
FILTER_NAMES = ("queue", "task", "error", "tenant")


class OutcomeName(NamedTuple):
    """How the pages name the way in which a job ended."""

    #: After `outcome:` in the search field, in every language.
    term: str
    title: Any
    #: The CSS class of its chip.
    css_class: str


OUTCOMES = {
    State.DONE: OutcomeName("done", gettext_lazy("done"), "good"),
    State.DEAD: OutcomeName("failed", gettext_lazy("failed"), "bad"),
    State.CANCELLED: OutcomeName("stopped", gettext_lazy("stopped"), "warn"),
    State.EXPIRED: OutcomeName("expired", gettext_lazy("expired"), ""),
    State.DROPPED: OutcomeName("dropped", gettext_lazy("dropped"), ""),
}
_MOMENT, _WHOLE = re.compile(r"-?[0-9]{1,18}"), re.compile(r"-?[0-9]{1,16}")
#: A score that was edited manually in Redis may be a fraction, or larger than any time.
_CURSOR = re.compile(
    r"(-?[0-9]{1,16}|-?inf|-?[0-9]{1,17}\.[0-9]{1,20}|-?[0-9.]{1,20}e[-+]?[0-9]{1,3})\.((?:[0-9a-f]{2}){0,64})"
)
_GROUP = re.compile(r"[0-9a-f]{24}")
_HEX = re.compile(r"~((?:[0-9a-f]{2})+)")


def url_name(name: str) -> str:
    """Return the name of a queue or task for an address: unchanged, or "~" and hexadecimal digits."""
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
    """Read the result of `url_name`. Raises ValueError for anything else."""
    if len(text) > _MAX_NAME:
        # Truncated, it would be the name of something else.
        raise ValueError("longer than any name")
    if not text.startswith("~"):
        return text
    found = _HEX.fullmatch(text)
    if not found:
        raise ValueError("not a name")
    return bytes.fromhex(found[1]).decode("utf-8", "surrogatepass")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """Which rows of a list to show, in which order, from where."""

    queue: str = ""
    #: A task: its name, the last parts of its name, or "=" and its exact name. `error` names a class in the same ways.
    task: str = ""
    error: str = ""
    #: An error group's 12 bytes in hexadecimal; it says which error of which task.
    error_group: str = ""
    tenant: str = ""
    #: A key of `OUTCOMES`: how a finished job ended. Other lists ignore it.
    outcome: str = ""
    text: str = ""
    within: str = ""
    from_us: int | None = None
    to_us: int | None = None
    count: int = 50
    #: The moment to begin at, in µs.
    at_us: int | None = None
    #: Whether the list is in reverse order.
    reversed: bool = False
    group: str = ""
    #: By what the groups are ordered.
    order: str = ""
    #: Where the page begins or, with `before`, ends; None: at the beginning or end of the list.
    cursor: Cursor | None = None
    before: bool = False
    #: Messages about invalid parameters.
    errors: tuple[str, ...] = ()

    @classmethod
    def read(cls, query: Mapping[str, Any]) -> Self:
        """Read a query string."""
        errors: list[str] = []

        def given(name: str, read: Callable[[str], Any], otherwise: Any = "") -> Any:
            text = str(query.get(name, "")).strip()
            try:
                return read(text) if text else otherwise
            except (ValueError, OverflowError):
                facts = {"name": name, "value": printable(text[:40])}
                errors.append(gettext("“%(name)s” is not understood: %(value)s") % facts)
                return otherwise

        before = bool(query.get("before"))
        return cls(
            **{name: given(name, from_url_name) for name in FILTER_NAMES},
            error_group=given("error_group", _error_group),
            outcome=given("outcome", _one_of(*OUTCOMES)),
            text=given("q", _text),
            within=given("within", _one_of(*SPANS, OVERDUE)),
            from_us=given("from", read_moment, None),
            to_us=given("to", read_moment, None),
            at_us=given("at", read_moment, None),
            count=int(given("n", _one_of(*map(str, SIZES)), "50")),
            reversed=bool(given("sort", _one_of("reversed"))),
            group=given("group", _one_of(*GROUPS)),
            order=given("order", _one_of(*ORDERS)),
            before=before,
            cursor=given("before" if before else "after", read_cursor, None),
            errors=tuple(errors),
        )

    def pairs(self, **changes: Any) -> dict[str, Any]:
        """Return the query parameters of this filter with changes, for `read`."""
        changed = replace(self, **changes)
        pairs = {
            **{name: url_name(value) for name in FILTER_NAMES if (value := getattr(changed, name))},
            "error_group": changed.error_group,
            "outcome": changed.outcome,
            "q": changed.text,
            "within": changed.within,
            "from": changed.from_us,
            "to": changed.to_us,
            "at": changed.at_us,
            "n": changed.count if changed.count != 50 else "",
            "sort": "reversed" if changed.reversed else "",
            "group": changed.group,
            "order": changed.order,
        }
        if changed.cursor or changed.before:
            pairs["before" if changed.before else "after"] = write_cursor(changed.cursor)
        return {name: value for name, value in pairs.items() if value not in ("", None)}

    def query(self, **changes: Any) -> str:
        """Return them as a query string without "?"."""
        return urlencode(self.pairs(**changes))

    def page(self, cursor: Cursor | None = None, *, before: bool = False) -> str:
        """Return the query string of another page of the same list."""
        return self.query(cursor=cursor, before=before, at_us=None)

    def plain(self) -> Self:
        """Return the filter at the beginning of the list, without errors."""
        return replace(self, cursor=None, before=False, at_us=None, errors=())

    @property
    def is_set(self) -> bool:
        """Whether it excludes any row."""
        texts = (self.queue, self.task, self.error, self.error_group, self.tenant, self.text, self.within)
        return any(texts) or self.from_us is not None or self.to_us is not None

    def with_absolute_times(self, now_us: int, *, ahead: bool) -> Self:
        """Return the filter with moments instead of "within the next hour" (`ahead`) or "within the last hour"."""
        from_us, to_us = self.from_us, self.to_us
        if self.within == OVERDUE:
            to_us = now_us
        elif self.within and ahead:
            to_us = now_us + SPANS[self.within]
        elif self.within:
            from_us = now_us - SPANS[self.within]
        return replace(self, within="", from_us=from_us, to_us=to_us)

    def match(
        self, hide: Pattern[str], *, by_queue: bool = True, by_error: bool = True
    ) -> Callable[[JobRow], bool] | None:
        """Return the test for a row; None if all rows match.

        `by_queue` says whether it tests the queue, and `by_error` whether it tests the task and the error.
        The text is searched for in the arguments without hidden values: a filter must not reveal them.
        """
        task, error = (self.task, self.error) if by_error else ("", "")
        store_filter = JobFilter(queue=self.queue if by_queue else "", task=task, error=error, tenant=self.tenant)
        wanted = self.text.casefold()
        return store_filter.match(*([lambda row: wanted in _search_text(row, hide).casefold()] if wanted else []))


def write_cursor(cursor: Cursor | None) -> str:
    """Return a cursor as text; None is the end of the list."""
    return f"{cursor[0]}.{cursor[1].hex()}" if cursor else "end"


def read_cursor(text: str) -> Cursor | None:
    """Read the result of `write_cursor`. Raises ValueError for anything else."""
    found = _CURSOR.fullmatch(text)
    if not found and text != "end":
        raise ValueError("not a cursor")
    if not found:
        return None
    read = int if _WHOLE.fullmatch(found[1]) else float
    return read(found[1]), bytes.fromhex(found[2])


def write_position(cursor: Cursor) -> str:
    """Return the position of a job in its list for a link to the job's page, whose path has the id."""
    return write_cursor((cursor[0], cursor[1][12:])).rstrip(".")


def read_position(text: str, raw_id: bytes) -> Cursor | None:
    """Read the result of `write_position`; None for anything else."""
    score, _, rest = text.partition(".")
    try:
        return read_cursor(f"{score}.{raw_id.hex()}{rest}")
    except ValueError:
        return None


def read_moment(text: str) -> int:
    """Read whole µs since the epoch, or a date and time, by default in the current zone. Raises ValueError."""
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
    if abs(us) > _MAX_US:
        raise ValueError("Redis could not hold it exactly as a score")
    return us


def _error_group(text: str) -> str:
    if not _GROUP.fullmatch(text):
        raise ValueError("not an error group")
    return text


def _text(text: str) -> str:
    return text[:_MAX_TEXT]


def _one_of(*words: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in words:
            raise ValueError("not one of the choices")
        return text

    return read


def _search_text(row: JobRow, hide: Pattern[str]) -> str:
    line = DisplayedArguments.of(row.job, hide).line(None) if row.job else ""
    return f"{row.id} {row.task} {line} {printable(row.worker)} {row.last_attempt.last_error}"
