"""Charts of the last hour or week: attempts that ended, the delay of their starts, and their durations."""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext, pgettext

from django_delayq.admin.charts.drawing import WIDTH, Chart, Mark, Series
from django_delayq.admin.page import PageContext
from django_delayq.display.text import printable
from django_delayq.metrics import EDGES_US, HOUR_US, MINUTE_US, HourSeries, Stats
from django_delayq.templatetags.delayq import clock_text, duration_text, grouped, zoned

#: Fewest buckets of a histogram, so that a single bar is not as wide as the page.
_FEWEST_BUCKETS = 10
_HALF, _MOST = 0.5, 0.95


class Span(NamedTuple):
    """A time until now, cut into steps."""

    title: Any
    #: Its name at the beginning of a sentence, and the sentence if nothing ran.
    last: Any
    nothing: Any
    step_us: int
    #: The header of the steps, and the title of the chart of what ended in each.
    step: Any
    finished: Any


#: By their names in addresses; the first one is the default.
SPANS = {
    "hour": Span(
        gettext_lazy("1 hour"),
        gettext_lazy("Last hour"),
        gettext_lazy("Nothing ran within the last hour."),
        MINUTE_US,
        gettext_lazy("Minute"),
        gettext_lazy("Finished per minute"),
    ),
    "week": Span(
        gettext_lazy("7 days"),
        gettext_lazy("Last 7 days"),
        gettext_lazy("Nothing ran within the last 7 days."),
        HOUR_US,
        gettext_lazy("Hour"),
        gettext_lazy("Finished per hour"),
    ),
}


class _History(NamedTuple):
    """What the charts draw."""

    span: Span
    steps: Sequence[Stats]
    total: Stats
    labels: Sequence[str]
    axis: Sequence[str]
    marks: Sequence[Mark]


def chosen(page: PageContext) -> str:
    """Return the name of the span in the address."""
    name = page.request.GET.get("span", "")
    return name if name in SPANS else next(iter(SPANS))


def load(page: PageContext, dimension: bytes, **options: Any) -> None:
    """Read the snapshot of the page with what `charts()` needs; `options` are those of `load_snapshot()`."""
    page.load_snapshot(dimension=dimension, week=chosen(page) == "week", **options)


def total(page: PageContext, dimension: bytes) -> Stats:
    """Return the total of the span that the page shows, after `load()`."""
    return _history(page, dimension).total


def charts(page: PageContext, dimension: bytes, *, link: Callable[[str], str]) -> list[Chart]:
    """Return all charts of a dimension, after `load()`.

    `link` returns the address of the page for the name of a span, which is empty for the default.
    """
    history, name = _history(page, dimension), chosen(page)
    links = [
        (str(each.title), link("" if key == next(iter(SPANS)) else key), key == name) for key, each in SPANS.items()
    ]
    return [
        _finished(history, links),
        _percentiles("lag", _("Start delay"), history),
        _histogram("lag", _("Start delay, how often"), history.total.lag, history.span),
        _percentiles("run", _("Run time"), history),
        _histogram("run", _("Run time, how often"), history.total.run, history.span),
    ]


def _history(page: PageContext, dimension: bytes) -> _History:
    name, now = chosen(page), page.snapshot
    span, now_us = SPANS[name], now.now_us
    if name == "week":
        series = HourSeries(now.week)
        steps, total = series.hours(now_us), series.week(now_us)
    else:
        steps, total = now.series(dimension).minutes(now_us), now.hour(dimension)
    begin_us = (now_us // span.step_us - len(steps) + 1) * span.step_us
    moments = [zoned(begin_us + number * span.step_us, page.timezone) for number in range(len(steps))]
    if name == "week":
        labels = [f"{_day(at)} {at:%H:%M}" for at in moments]
        # Every second one: neighbours would touch on a narrow screen.
        axis = [*("" if at % 2 else _day(day) for at, day in enumerate(moments[::24])), _("now")]
    else:
        labels = [f"{at:%H:%M}" for at in moments]
        axis = [*labels[:-9:10], _("now")]
    return _History(span, steps, total, labels, axis, _marks(page, begin_us, len(steps) * span.step_us))


def _day(at: datetime) -> str:
    """Return a day of the last week: `Thu 20`."""
    return date_format(at, "D j")


def _marks(page: PageContext, begin_us: int, length_us: int) -> list[Mark]:
    """Return a mark for each release that began in this time, oldest first."""
    found = []
    for release, us in sorted(page.snapshot.releases.items(), key=lambda item: item[1]):
        if begin_us <= us < begin_us + length_us:
            facts = {"release": printable(release), "time": clock_text(us, page.now_us, page.timezone)}
            label = _("Release %(release)s began at %(time)s.") % facts
            found.append(Mark((us - begin_us) * WIDTH // length_us, label))
    return found


def _finished(history: _History, links: Sequence[tuple[str, str, bool]]) -> Chart:
    steps, total = history.steps, history.total
    facts = {"done": grouped(total.done), "retried": grouped(total.retried), "failed": grouped(total.dead)}
    facts["last"] = str(history.span.last)
    summary = _("%(last)s: %(done)s done, %(retried)s retried, %(failed)s failed.") % facts
    series = [
        Series("done", pgettext("attempts", "done"), [each.done for each in steps]),
        Series("retried", pgettext("attempts", "retried"), [each.retried for each in steps]),
        Series("failed", pgettext("attempts", "failed"), [each.dead for each in steps]),
    ]
    headers = [
        str(history.span.step),
        pgettext("attempts", "Done"),
        pgettext("attempts", "Retried"),
        pgettext("attempts", "Failed"),
    ]
    # Few projects have such jobs; the others need no empty column.
    if total.snoozed:
        series.append(Series("snoozed", pgettext("attempts", "snoozed"), [each.snoozed for each in steps]))
        headers.append(pgettext("attempts", "Snoozed"))
    if total.expired:
        summary = " ".join([summary, _("%s expired.") % grouped(total.expired)])
        series.append(Series("expired", pgettext("attempts", "expired"), [each.expired for each in steps]))
        headers.append(pgettext("attempts", "Expired"))
    if total.dropped:
        summary = " ".join([summary, _("%s dropped.") % grouped(total.dropped)])
        series.append(Series("dropped", pgettext("attempts", "dropped"), [each.dropped for each in steps]))
        headers.append(pgettext("attempts", "Dropped"))
    if total.cancelled:
        series.append(Series("cancelled", pgettext("attempts", "stopped"), [each.cancelled for each in steps]))
        headers.append(pgettext("attempts", "Stopped"))
    return Chart(
        name="finished",
        title=str(history.span.finished),
        summary=summary,
        series=series,
        headers=headers,
        labels=history.labels,
        axis=history.axis,
        text=grouped,
        toggle_links=links,
        marks=history.marks,
    )


def _percentiles(name: str, title: str, history: _History) -> Chart:
    """Draw the median and the 95th percentile of `lag` or `run`."""
    time_of: Callable[[Stats, float], int | None] = Stats.lag_us if name == "lag" else Stats.run_us
    half_us, most_us = time_of(history.total, _HALF), time_of(history.total, _MOST)
    facts = {"last": history.span.last, "half": duration_text(half_us), "most": duration_text(most_us)}
    return Chart(
        name=f"{name}-time",
        title=title,
        summary=str(history.span.nothing)
        if half_us is None
        else _("%(last)s: half within %(half)s, 95%% within %(most)s.") % facts,
        series=[
            Series("half", "p50", [time_of(each, _HALF) for each in history.steps]),
            Series("most", "p95", [time_of(each, _MOST) for each in history.steps]),
        ],
        headers=[str(history.span.step), "p50", "p95"],
        labels=history.labels,
        axis=history.axis,
        text=duration_text,
        is_line=True,
        marks=history.marks,
    )


def _histogram(name: str, title: str, counts: Sequence[int], span: Span) -> Chart:
    """Draw how many runs had which `lag` or `run` time."""
    shown = _shown(counts)
    texts = [duration_text(0), *map(duration_text, EDGES_US)]
    labels = [f"{texts[at]}–{texts[at + 1]}" if at < len(EDGES_US) else _("over %s") % texts[at] for at in shown]
    runs = sum(counts)
    most = max(range(len(shown)), key=lambda at: counts[shown[at]])
    summary = ngettext("%(last)s: %(count)s run, %(most)s.", "%(last)s: %(count)s runs, most often %(most)s.", runs)
    return Chart(
        name=f"{name}-spread",
        title=title,
        summary=summary % {"last": span.last, "count": grouped(runs), "most": labels[most]}
        if runs
        else str(span.nothing),
        series=[Series(name, _("runs"), [counts[at] for at in shown])],
        headers=[pgettext("duration", "Time"), _("Runs")],
        labels=labels,
        # Every second one: neighbours would touch on a narrow screen.
        axis=["" if (at - shown[0]) % 2 else texts[at] for at in shown],
        text=grouped,
    )


def _shown(counts: Sequence[int]) -> range:
    """Return the buckets to show: from the first to the last that has runs, and some around."""
    used = [at for at, count in enumerate(counts) if count] or [0]
    first, last = max(0, used[0] - 1), min(len(counts) - 1, used[-1] + 1)
    last = min(len(counts) - 1, max(last, first + _FEWEST_BUCKETS - 1))
    return range(max(0, min(first, last - _FEWEST_BUCKETS + 1)), last + 1)
