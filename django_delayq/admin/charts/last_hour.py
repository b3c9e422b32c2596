"""Past: the last hour as charts: what finished, how late it began, and how long it ran."""

from collections.abc import Callable, Sequence
from datetime import tzinfo
from typing import TypedDict

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_delayq.admin.charts.drawing import Chart, Series, build_chart
from django_delayq.metrics import EDGES_US, MINUTE_US, MinuteSeries, Stats
from django_delayq.templatetags.delayq import duration_text, grouped, zoned

#: Buckets shown at least, so that a single bar is not as wide as the page.
_FEWEST = 10
_HALF, _MOST = 0.5, 0.95


def finished(history: MinuteSeries, now_us: int, tz: tzinfo) -> Chart:
    """Draw what ended in each minute, by how it ended."""
    minutes, hour = history.series(now_us), history.last(now_us)
    facts = {"done": grouped(hour.done), "retried": grouped(hour.retried), "dead": grouped(hour.dead)}
    return build_chart(
        "finished",
        _("Finished per minute"),
        _("Last hour: %(done)s done, %(retried)s failed and tried again, %(dead)s dead.") % facts,
        [
            Series(kind="done", title=_("done"), values=[each.done for each in minutes]),
            Series(kind="retried", title=_("tried again"), values=[each.retried for each in minutes]),
            Series(kind="dead", title=_("dead"), values=[each.dead for each in minutes]),
        ],
        heads=[_("Minute"), _("Done"), _("Tried again"), _("Dead")],
        text=grouped,
        **_hour(now_us, tz),
    )


def percentiles(name: str, title: str, history: MinuteSeries, now_us: int, tz: tzinfo) -> Chart:
    """Draw the median and the 95th percentile of `lag` or `run` by the minute."""
    times, hour = _times(name), history.last(now_us)
    minutes = history.series(now_us)
    return build_chart(
        f"{name}-time",
        title,
        _summary(hour, times),
        [
            Series(kind="half", title="p50", values=[times(each, _HALF) for each in minutes]),
            Series(kind="most", title="p95", values=[times(each, _MOST) for each in minutes]),
        ],
        heads=[_("Minute"), "p50", "p95"],
        text=duration_text,
        lined=True,
        **_hour(now_us, tz),
    )


def histogram(name: str, title: str, hour: Stats) -> Chart:
    """Draw how many runs of the last hour took how long to begin (`lag`) or to end (`run`)."""
    counts = hour.lag if name == "lag" else hour.run
    shown = _shown(counts)
    texts = [duration_text(0), *map(duration_text, EDGES_US)]
    labels = [f"{texts[at]}–{texts[at + 1]}" if at < len(EDGES_US) else _("over %s") % texts[at] for at in shown]
    runs = sum(counts)
    most = max(range(len(shown)), key=lambda at: counts[shown[at]])
    said = ngettext("Last hour: %(count)s run, %(most)s.", "Last hour: %(count)s runs, most often %(most)s.", runs)
    return build_chart(
        f"{name}-spread",
        title,
        said % {"count": grouped(runs), "most": labels[most]} if runs else _("Nothing ran within the last hour."),
        [Series(kind=name, title=_("runs"), values=[counts[at] for at in shown])],
        heads=[_("Time"), _("Runs")],
        labels=labels,
        # Two may not stand side by side where there is little room.
        axis=[texts[at] if not (at - shown[0]) % 2 else "" for at in shown],
        text=grouped,
    )


def _times(name: str) -> Callable[[Stats, float], int | None]:
    return Stats.lag_us if name == "lag" else Stats.run_us


def _summary(hour: Stats, times: Callable[[Stats, float], int | None]) -> str:
    half_us, most_us = times(hour, _HALF), times(hour, _MOST)
    if half_us is None:
        return _("Nothing ran within the last hour.")
    facts = {"half": duration_text(half_us), "most": duration_text(most_us)}
    return _("Last hour: half within %(half)s, 95%% within %(most)s.") % facts


def _shown(counts: Sequence[int]) -> range:
    """Return the buckets worth showing: those between the first and the last that hold anything, and some around."""
    held = [at for at, count in enumerate(counts) if count] or [0]
    first, last = max(0, held[0] - 1), min(len(counts) - 1, held[-1] + 1)
    last = min(len(counts) - 1, max(last, first + _FEWEST - 1))
    return range(max(0, min(first, last - _FEWEST + 1)), last + 1)


class _Hour(TypedDict):
    labels: list[str]
    axis: list[str]


def _hour(now_us: int, tz: tzinfo) -> _Hour:
    minute = now_us // MINUTE_US
    labels = [f"{zoned(each * MINUTE_US, tz):%H:%M}" for each in range(minute - 59, minute + 1)]
    return {"labels": labels, "axis": [*labels[:-9:10], _("now")]}
