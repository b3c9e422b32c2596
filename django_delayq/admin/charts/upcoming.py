"""Chart of the jobs that become due within the next hour, day or month; its bars link to these jobs."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any

from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_delayq.admin.charts.drawing import Chart, Series
from django_delayq.admin.page import PageContext
from django_delayq.clock import SECOND_US, moment_us
from django_delayq.conf.config import DAY_US, HOUR_US
from django_delayq.templatetags.delayq import grouped, zoned

_MINUTE_US = 60 * SECOND_US


@dataclass(frozen=True, slots=True)
class Span:
    """A time from now on, cut into steps."""

    title: Any
    #: The chart's summary.
    sentence: Any
    length_us: int
    step_us: int


SPANS = {
    "hour": Span(
        gettext_lazy("1 hour"),
        gettext_lazy("%(due)s due within the next hour, %(later)s later."),
        HOUR_US,
        2 * _MINUTE_US,
    ),
    "day": Span(
        gettext_lazy("24 hours"),
        gettext_lazy("%(due)s due within the next 24 hours, %(later)s later."),
        DAY_US,
        30 * _MINUTE_US,
    ),
    "month": Span(
        gettext_lazy("30 days"),
        gettext_lazy("%(due)s due within the next 30 days, %(later)s later."),
        30 * DAY_US,
        DAY_US,
    ),
}
_DEFAULT = "day"


def chart(visit: PageContext) -> Chart:
    """Return the chart of the span that the query string names; a round trip a shard, O(log n) a bar."""
    chosen = visit.request.GET.get("due", "")
    name = chosen if chosen in SPANS else _DEFAULT
    span, snapshot = SPANS[name], visit.snapshot
    edges = list(_edges(visit, span))
    shards = [visit.store.dashboard(shard) for shard in range(visit.store.config.shards)]
    histograms = [shard.due_histogram(edges, queues=list(snapshot.queues)) for shard in shards]
    counts = [sum(bars) for bars in zip(*histograms, strict=True)]
    due = sum(counts)
    numbers = {"due": grouped(due), "later": grouped(max(0, snapshot.scheduled - snapshot.overdue - due))}
    texts = [_text(visit, edge, span) for edge in edges]
    return Chart(
        name="coming",
        title=_("Coming due"),
        summary=str(span.sentence % numbers),
        series=[Series("due", _("due"), counts)],
        headers=[_("Due"), _("Tasks")],
        labels=texts[:-1] if span.step_us == DAY_US else [f"{start}–{end}" for start, end in pairwise(texts)],
        axis=[_("now"), *texts[6:-5:6], texts[-1]],
        text=grouped,
        urls=[visit.url("pending", **{"from": start, "to": end - 1}) for start, end in pairwise(edges)],
        toggle_links=[
            (str(each.title), visit.url("overview", due="" if key == _DEFAULT else key), key == name)
            for key, each in SPANS.items()
        ],
    )


def _edges(visit: PageContext, span: Span) -> Iterator[int]:
    """Yield now, the whole steps of the reader's time zone (its days begin at midnight), and the end."""
    now_us = visit.now_us
    end_us = now_us + span.length_us
    yield now_us
    if span.step_us < DAY_US:
        yield from range(now_us // span.step_us * span.step_us + span.step_us, end_us, span.step_us)
    else:
        today = zoned(now_us, visit.timezone).date()
        days = (today + timedelta(days=number) for number in range(1, span.length_us // DAY_US + 2))
        midnights = (moment_us(datetime(day.year, day.month, day.day, tzinfo=visit.timezone)) for day in days)
        yield from (us for us in midnights if us < end_us)
    yield end_us


def _text(visit: PageContext, us: int, span: Span) -> str:
    at = zoned(us, visit.timezone)
    return date_format(at, "MONTH_DAY_FORMAT") if span.step_us == DAY_US else f"{at:%H:%M}"
