"""Sorting: the order of a table that the page has whole, by the column in its address."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self, TypeVar

from django_delayq.admin.page import PageContext

T = TypeVar("T")
_DESCENDING = "-"


@dataclass(frozen=True, slots=True)
class Column:
    """A column that a table can be sorted by."""

    #: What is compared; rows with None come last.
    value: Callable[[Any], Any]
    #: The first click sorts from the largest on, as people look for in numbers.
    largest_first: bool = True


class SortLink(NamedTuple):
    """The link in the heading of a column."""

    url: str
    #: How the table is sorted by this column now, as `aria-sort` has it; empty if it is not.
    direction: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sorting:
    """The columns of one table, and the chosen one with its direction; "": the default order."""

    columns: Mapping[str, Column]
    links: Mapping[str, SortLink]
    chosen: str = ""
    descending: bool = False

    @classmethod
    def of(cls, page: PageContext, tab: str, columns: Mapping[str, Column]) -> Self:
        """Read `sort` in the address of a page: a column, or "-" and a column. Anything else is the default order."""
        given = page.request.GET.get("sort", "")
        chosen, descending = given.removeprefix(_DESCENDING), given.startswith(_DESCENDING)
        query, links = page.request.GET.copy(), {}
        # Chosen once, it is remembered.
        query.pop("zone", None)
        for name, column in columns.items():
            is_chosen = name == chosen
            query["sort"] = f"{'' if (descending if is_chosen else not column.largest_first) else _DESCENDING}{name}"
            direction = ("descending" if descending else "ascending") if is_chosen else ""
            links[name] = SortLink(f"{page.url(tab)}?{query.urlencode()}", direction)
        if chosen not in columns:
            return cls(columns=columns, links=links)
        return cls(columns=columns, links=links, chosen=chosen, descending=descending)

    def apply(self, rows: Iterable[T]) -> list[T]:
        """Return the rows in the chosen order; rows with equal values keep theirs."""
        if not self.chosen:
            return list(rows)
        valued = [(self.columns[self.chosen].value(row), row) for row in rows]
        known = [each for each in valued if each[0] is not None]
        known.sort(key=lambda each: each[0], reverse=self.descending)
        return [row for _, row in known] + [row for value, row in valued if value is None]
