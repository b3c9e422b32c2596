"""Charts: numbers as bars and lines in SVG, drawn here, so that no script is needed to see them.

Everything is a whole number in a box of 1,000 × 100, which the page stretches to its width; colours and text are the
style sheet's. Each chart has the same numbers as a table beside it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

#: The box that everything is drawn in.
WIDTH, HEIGHT = 1_000, 100
#: The least height of a bar that is not nothing: one among a million is still seen.
_LEAST = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One thing that is counted or measured: its values, one per column; None: there is none."""

    #: Class of its marks: `done`, `retried`, `dead`, `due`, `lag`, `run`, `half`, `most`.
    kind: str
    title: str
    values: Sequence[int | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One place on the horizontal axis."""

    x: int
    width: int
    #: What it says when pointed at.
    label: str
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """What is drawn of one series: all its bars, or its line."""

    kind: str
    #: The `d` of an SVG path.
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """What the template draws."""

    #: Unique on the page.
    name: str
    title: str
    #: What it shows, in a sentence with the numbers that matter.
    summary: str
    series: Sequence[Series]
    #: Heading of the first column of the table, then of each of its rows.
    headers: Sequence[str]
    columns: Sequence[Column]
    paths: Sequence[Path]
    #: Whether these are lines, rather than bars.
    is_line: bool = False
    #: Texts below the axis, evenly spread.
    axis: Sequence[str] = ()
    #: The value at the top of the box, as text.
    top: str = ""
    #: Of the table: label, address, values.
    rows: Sequence[tuple[str, str, Sequence[str]]] = ()
    #: Other views of the same: title, address, whether it is this one.
    toggle_links: Sequence[tuple[str, str, bool]] = ()

    @property
    def linked(self) -> bool:
        """Whether bars lead somewhere."""
        return any(column.url for column in self.columns)


def build_chart(
    name: str,
    title: str,
    summary: str,
    series: Sequence[Series],
    *,
    heads: Sequence[str],
    labels: Sequence[str],
    axis: Sequence[str],
    text: Callable[[int | None], str],
    urls: Sequence[str] = (),
    switch: Sequence[tuple[str, str, bool]] = (),
    lined: bool = False,
) -> Chart:
    """Return stacked bars, one column per label, or a line per series; `heads` is the table's, `text` writes values."""
    columns, shapes, top = (_lines if lined else _bars)(series, labels, text, urls)
    return Chart(
        name=name,
        title=title,
        summary=summary,
        series=series,
        headers=heads,
        columns=columns,
        paths=shapes,
        is_line=lined,
        axis=axis,
        top=text(top) if top else "",
        rows=[
            (label, urls[at] if urls else "", [text(each.values[at]) for each in series])
            for at, label in enumerate(labels)
        ],
        toggle_links=switch,
    )


def _bars(
    series: Sequence[Series], labels: Sequence[str], text: Callable[[int | None], str], urls: Sequence[str]
) -> tuple[list[Column], list[Path], int]:
    totals = [sum(value or 0 for value in values) for values in zip(*(s.values for s in series), strict=True)]
    top = max(totals, default=0)
    edges = _edges(len(labels))
    feet = [HEIGHT] * len(labels)
    paths: dict[str, list[str]] = {each.kind: [] for each in series}
    columns = []
    for at, (label, (left, right)) in enumerate(zip(labels, edges, strict=True)):
        values = [(each, each.values[at] or 0) for each in series]
        gap = max(1, (right - left) // 10)
        for each, value in values:
            if value:
                height = min(feet[at], max(_LEAST, round(value * HEIGHT / top)))
                feet[at] -= height
                width = right - left - 2 * gap
                paths[each.kind].append(f"M{left + gap} {feet[at]}h{width}v{height}h-{width}z")
        told = ", ".join(f"{text(value)} {each.title}" for each, value in values if value) or text(0)
        url = urls[at] if urls and totals[at] else ""
        columns.append(Column(x=left, width=right - left, label=f"{label}: {told}", url=url))
    return columns, [Path(kind=kind, path="".join(path)) for kind, path in paths.items() if path], top


def _lines(
    series: Sequence[Series], labels: Sequence[str], text: Callable[[int | None], str], urls: Sequence[str]
) -> tuple[list[Column], list[Path], int]:
    """Draw lines over the labels, broken where there is no value."""
    top = max((value for each in series for value in each.values if value is not None), default=0)
    edges = _edges(len(labels))
    columns = [
        Column(
            x=left,
            width=right - left,
            label=f"{label}: " + ", ".join(f"{each.title} {text(each.values[at])}" for each in series),
            url=urls[at] if urls else "",
        )
        for at, (label, (left, right)) in enumerate(zip(labels, edges, strict=True))
    ]
    return columns, [Path(kind=each.kind, path=_line(each, edges, top or 1)) for each in series], top


def _edges(count: int) -> list[tuple[int, int]]:
    """Return left and right of each column: whole numbers that fill the box."""
    lefts = [round(at * WIDTH / count) for at in range(count + 1)]
    return list(zip(lefts, lefts[1:], strict=False))


def _line(series: Series, edges: Sequence[tuple[int, int]], top: int) -> str:
    path, drawing = [], False
    for value, (left, right) in zip(series.values, edges, strict=True):
        if value is not None:
            y = HEIGHT - max(_LEAST, round(value * (HEIGHT - _LEAST) / top))
            # From edge to edge of the column, so that a single minute is a dash and not a point nobody sees.
            path.append(f"{'L' if drawing else 'M'}{left} {y}H{right}")
        drawing = value is not None
    return "".join(path)
