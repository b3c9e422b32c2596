"""Charts: horizontal bars as SVG, readable on light and dark pages. Every bar has its figure as text."""

import math
from collections.abc import Callable
from html import escape

from benchmarks.report.tables import ms, rate, whole
from benchmarks.results import FLOOR, OURS, Results

WIDTH, LABEL, BAR, ROW, TOP = 760, 190, 480, 26, 44
STYLE = (
    "text{font:13px system-ui,sans-serif;fill:#1f2328}.t{font-size:15px;font-weight:600}.n{fill:#59636e}"
    ".ours{fill:#1f7a4d}.peer{fill:#8c959f}.floor{fill:#c9d1d9}"
    "@media(prefers-color-scheme:dark){text{fill:#f0f6fc}.n{fill:#9198a1}.ours{fill:#3fb97a}.floor{fill:#3d444d}}"
)
#: Table -> the charts above it.
ABOVE = {
    "Running": ("bench-run.svg", "bench-run-two.svg"),
    "Enqueueing": ("bench-enqueue.svg", "bench-bulk.svg"),
    "On time": ("bench-late.svg",),
    "Idle": ("bench-trips.svg",),
    "Waiting": ("bench-bytes.svg",),
}
#: File -> title, scenario, figure, format, whether the scale is logarithmic.
CHARTS: dict[str, tuple[str, str, str, Callable[[float], str], bool]] = {
    "bench-run.svg": ("No-op jobs run a second, one worker process", "drain", "rate", rate, False),
    "bench-run-two.svg": ("No-op jobs run a second, two worker processes", "drain_two", "rate", rate, False),
    "bench-enqueue.svg": ("Jobs enqueued a second, one at a time", "enqueue", "rate", rate, False),
    "bench-bulk.svg": ("Jobs enqueued a second, in bulk", "bulk", "rate", rate, False),
    "bench-late.svg": ("Start − due, p99 (shorter is better, logarithmic)", "lateness", "p99_ms", ms, True),
    "bench-trips.svg": (
        "From enqueue to start, idle, p50 (shorter is better, logarithmic)",
        "trips",
        "p50_ms",
        ms,
        True,
    ),
    "bench-bytes.svg": ("Bytes of Redis a waiting job takes (shorter is better)", "waiting", "bytes", whole, False),
}


def links(results: Results, title: str) -> str:
    """Return the links to the charts of a table that the results have figures for."""
    drawn = [name for name in ABOVE.get(title, ()) if bars(results, name)]
    return "".join(f"![{CHARTS[name][0]}](../images/{name})\n\n" for name in drawn)


def bars(results: Results, name: str) -> str | None:
    """Return one chart, the best bar first; None if fewer than two systems have the figure."""
    title, scenario, figure, show, logarithmic = CHARTS[name]
    found = [(system, spread) for system in results.systems if (spread := results.spread(scenario, system, figure))]
    if len(found) < 2:
        return None
    found.sort(key=lambda pair: pair[1].median, reverse=figure == "rate")
    length = _scale([spread.median for _, spread in found], logarithmic=logarithmic)
    height = TOP + ROW * len(found) + 10
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" role="img">',
        f"<title>{escape(title)}</title><style>{STYLE}</style>",
        f'<text class="t" x="8" y="24">{escape(title)}</text>',
    ]
    for at, (system, spread) in enumerate(found):
        kind = {OURS: "ours", FLOOR: "floor"}.get(system, "peer")
        y, wide = TOP + ROW * at, max(2.0, BAR * length(spread.median))
        label = results.systems[system]["name"]
        label += f", {spread.configuration}" if spread.configuration != "default" else ""
        parts.append(
            f'<text x="{LABEL - 8}" y="{y + 15}" text-anchor="end">{escape(label)}</text>'
            f'<rect class="{kind}" x="{LABEL}" y="{y}" width="{wide:.1f}" height="{ROW - 6}" rx="2"/>'
            f'<text class="n" x="{LABEL + wide + 6:.1f}" y="{y + 15}">{escape(show(spread.median))}</text>'
        )
    return "\n".join([*parts, "</svg>", ""])


def _scale(values: list[float], *, logarithmic: bool) -> Callable[[float], float]:
    """Return a function that maps a value to its share of the longest bar."""
    longest = max(values)
    if not logarithmic:
        return lambda value: value / longest
    # Half a decade below the minimum, so that the shortest bar is visible.
    start = math.log10(min(value for value in values if value > 0)) - 0.5
    return lambda value: (math.log10(max(value, 1e-9)) - start) / (math.log10(longest) - start)
