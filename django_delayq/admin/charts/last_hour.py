"""Charts of the last hour: attempts that ended, the delay of their starts, and their durations."""

from collections.abc import Callable, Sequence
from datetime import tzinfo

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_delayq.admin.charts.drawing import Chart, Series
from django_delayq.metrics import EDGES_US, MINUTE_US, MinuteSeries, Stats
from django_delayq.templatetags.delayq import duration_text, grouped, zoned

#: Fewest buckets of a histogram, so that a single bar is not as wide as the page.
_FEWEST_BUCKETS = 10
_HALF, _MOST = 0.5, 0.95


def charts(series: MinuteSeries, now_us: int, tz: tzinfo) -> list[Chart]:
    """Return all charts of the last hour."""
    minutes, hour = series.minutes(now_us), series.hour(now_us)
    last = now_us // MINUTE_US
    labels = [f"{zoned(minute * MINUTE_US, tz):%H:%M}" for minute in range(last - 59, last + 1)]
    return [
        _finished(minutes, hour, labels),
        _percentiles("lag", _("Start delay"), minutes, hour, labels),
        _histogram("lag", _("Start delay, how often"), hour.lag),
        _percentiles("run", _("Run time"), minutes, hour, labels),
        _histogram("run", _("Run time, how often"), hour.run),
    ]


def _finished(minutes: Sequence[Stats], hour: Stats, labels: Sequence[str]) -> Chart:
    facts = {"done": grouped(hour.done), "retried": grouped(hour.retried), "failed": grouped(hour.dead)}
    summary = _("Last hour: %(done)s done, %(retried)s retried, %(failed)s failed.") % facts
    series = [
        Series("done", _("done"), [each.done for each in minutes]),
        Series("retried", _("retried"), [each.retried for each in minutes]),
        Series("failed", _("failed"), [each.dead for each in minutes]),
    ]
    headers = [_("Minute"), _("Done"), _("Retried"), _("Failed")]
    # Few projects have such jobs; the others need no empty column.
    if hour.snoozed:
        series.append(Series("snoozed", _("snoozed"), [each.snoozed for each in minutes]))
        headers.append(_("Snoozed"))
    if hour.expired:
        summary = f"{summary} {_('%s expired.') % grouped(hour.expired)}"
        series.append(Series("expired", _("expired"), [each.expired for each in minutes]))
        headers.append(_("Expired"))
    if hour.dropped:
        summary = f"{summary} {_('%s dropped.') % grouped(hour.dropped)}"
        series.append(Series("dropped", _("dropped"), [each.dropped for each in minutes]))
        headers.append(_("Dropped"))
    if hour.cancelled:
        series.append(Series("cancelled", _("stopped"), [each.cancelled for each in minutes]))
        headers.append(_("Stopped"))
    return Chart(
        name="finished",
        title=_("Finished per minute"),
        summary=summary,
        series=series,
        headers=headers,
        labels=labels,
        axis=_axis(labels),
        text=grouped,
    )


def _percentiles(name: str, title: str, minutes: Sequence[Stats], hour: Stats, labels: Sequence[str]) -> Chart:
    """Draw the median and the 95th percentile of `lag` or `run`."""
    time_of: Callable[[Stats, float], int | None] = Stats.lag_us if name == "lag" else Stats.run_us
    half_us, most_us = time_of(hour, _HALF), time_of(hour, _MOST)
    facts = {"half": duration_text(half_us), "most": duration_text(most_us)}
    return Chart(
        name=f"{name}-time",
        title=title,
        summary=_nothing_ran()
        if half_us is None
        else _("Last hour: half within %(half)s, 95%% within %(most)s.") % facts,
        series=[
            Series("half", "p50", [time_of(each, _HALF) for each in minutes]),
            Series("most", "p95", [time_of(each, _MOST) for each in minutes]),
        ],
        headers=[_("Minute"), "p50", "p95"],
        labels=labels,
        axis=_axis(labels),
        text=duration_text,
        is_line=True,
    )


def _histogram(name: str, title: str, counts: Sequence[int]) -> Chart:
    """Draw how many runs of the last hour had which `lag` or `run` time."""
    shown = _shown(counts)
    texts = [duration_text(0), *map(duration_text, EDGES_US)]
    labels = [f"{texts[at]}–{texts[at + 1]}" if at < len(EDGES_US) else _("over %s") % texts[at] for at in shown]
    runs = sum(counts)
    most = max(range(len(shown)), key=lambda at: counts[shown[at]])
    summary = ngettext("Last hour: %(count)s run, %(most)s.", "Last hour: %(count)s runs, most often %(most)s.", runs)
    return Chart(
        name=f"{name}-spread",
        title=title,
        summary=summary % {"count": grouped(runs), "most": labels[most]} if runs else _nothing_ran(),
        series=[Series(name, _("runs"), [counts[at] for at in shown])],
        headers=[_("Time"), _("Runs")],
        labels=labels,
        # Every second one: neighbours would touch on a narrow screen.
        axis=["" if (at - shown[0]) % 2 else texts[at] for at in shown],
        text=grouped,
    )


def _nothing_ran() -> str:
    return _("Nothing ran within the last hour.")


def _axis(labels: Sequence[str]) -> list[str]:
    return [*labels[:-9:10], _("now")]


def _shown(counts: Sequence[int]) -> range:
    """Return the buckets to show: from the first to the last that has runs, and some around."""
    used = [at for at, count in enumerate(counts) if count] or [0]
    first, last = max(0, used[0] - 1), min(len(counts) - 1, used[-1] + 1)
    last = min(len(counts) - 1, max(last, first + _FEWEST_BUCKETS - 1))
    return range(max(0, min(first, last - _FEWEST_BUCKETS + 1)), last + 1)
