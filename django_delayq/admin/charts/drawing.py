"""Charts: numbers as bars or lines in SVG. They are drawn on the server, so that they need no JavaScript.

Coordinates are whole numbers in a box of 1,000 × 100, which the page stretches to its width; the style sheet has the
colours. Each chart has a table of the same numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

#: The box of the drawing.
WIDTH, HEIGHT = 1_000, 100
#: The lowest bar of a number above 0: one among a million stays visible.
_LOWEST = 2


@dataclass(frozen=True, slots=True)
class Series:
    """One quantity: its values, one per column; None = no value."""

    #: CSS class of its marks: `done`, `retried`, `failed`, `snoozed`, `expired`, `dropped`, `cancelled`, `due`, `lag`,
    #: `run`, `half`, `most`.
    kind: str
    title: str
    values: Sequence[int | None]


@dataclass(frozen=True, slots=True)
class Column:
    """One place on the horizontal axis."""

    x: int
    width: int
    #: Its tooltip.
    label: str
    url: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment on the horizontal axis."""

    x: int
    #: What happened, in a sentence.
    label: str


@dataclass(frozen=True, kw_only=True)
class Chart:
    """Stacked bars, or a line per series, as the template draws them."""

    #: Unique on the page.
    name: str
    title: str
    #: What it shows, in a sentence with the numbers that matter.
    summary: str
    series: Sequence[Series]
    #: The headers of the table: of its first column, then of each series.
    headers: Sequence[str]
    #: The columns of the chart, the rows of the table.
    labels: Sequence[str]
    #: Texts below the axis, evenly spread.
    axis: Sequence[str]
    #: Formats a value.
    text: Callable[[int | None], str]
    #: Links of the columns, if they have any.
    urls: Sequence[str] = ()
    is_line: bool = False
    #: Other views of the same chart: title, address, whether it is the current one.
    toggle_links: Sequence[tuple[str, str, bool]] = ()
    #: Moments to mark.
    marks: Sequence[Mark] = ()

    @cached_property
    def columns(self) -> Sequence[Column]:
        """The columns, which fill the box; those of bars without a value have no link."""
        found = []
        for at, (left, right) in enumerate(self._edges):
            values = [(each.title, each.values[at]) for each in self.series]
            if self.is_line:
                label = ", ".join(f"{title} {self.text(value)}" for title, value in values)
            else:
                label = ", ".join(f"{self.text(value)} {title}" for title, value in values if value) or self.text(0)
            url = self.urls[at] if self.urls and any(value for _, value in values) else ""
            found.append(Column(left, right - left, f"{self.labels[at]}: {label}", url))
        return found

    @property
    def paths(self) -> Sequence[tuple[str, str]]:
        """The drawing: the kind of each series, and the `d` of an SVG path with all its bars, or its line."""
        return self._lines() if self.is_line else self._bars()

    @property
    def top(self) -> str:
        """The value at the top of the box; empty if all are 0."""
        return self.text(self._highest) if self._highest else ""

    @property
    def rows(self) -> Sequence[tuple[str, str, Sequence[str]]]:
        """The rows of the table: label, address, values."""
        return [
            (label, self.urls[at] if self.urls else "", [self.text(each.values[at]) for each in self.series])
            for at, label in enumerate(self.labels)
        ]

    @property
    def linked(self) -> bool:
        """Whether columns have links."""
        return any(column.url for column in self.columns)

    @cached_property
    def _highest(self) -> int:
        columns = zip(*([value or 0 for value in each.values] for each in self.series), strict=True)
        return max(map(max if self.is_line else sum, columns), default=0)

    @cached_property
    def _edges(self) -> Sequence[tuple[int, int]]:
        """Left and right of each column: whole numbers that fill the box."""
        count = len(self.labels)
        lefts = [round(at * WIDTH / count) for at in range(count + 1)]
        return list(zip(lefts, lefts[1:], strict=False))

    def _bars(self) -> Sequence[tuple[str, str]]:
        feet, paths = [HEIGHT] * len(self.labels), []
        for each in self.series:
            path = ""
            for at, (left, right) in enumerate(self._edges):
                if value := each.values[at]:
                    height = min(feet[at], max(_LOWEST, round(value * HEIGHT / self._highest)))
                    feet[at] -= height
                    gap = max(1, (right - left) // 10)
                    width = right - left - 2 * gap
                    path += f"M{left + gap} {feet[at]}h{width}v{height}h-{width}z"
            if path:
                paths.append((each.kind, path))
        return paths

    def _lines(self) -> Sequence[tuple[str, str]]:
        """Draw lines, broken where there is no value."""
        paths = []
        for each in self.series:
            path, drawing = "", False
            for value, (left, right) in zip(each.values, self._edges, strict=True):
                if value is not None:
                    y = HEIGHT - max(_LOWEST, round(value * (HEIGHT - _LOWEST) / (self._highest or 1)))
                    # From edge to edge of the column: a single minute is a dash, not an invisible point.
                    path += f"{'L' if drawing else 'M'}{left} {y}H{right}"
                drawing = value is not None
            paths.append((each.kind, path))
        return paths
