"""Future: what comes due within the next hour, day or month, as a chart that leads to the tasks themselves."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_delayq.admin.charts.drawing import Chart, Series, build_chart
from django_delayq.admin.page import PageContext
from django_delayq.clock import DAY_US, HOUR_US, SECOND_US, moment_us
from django_delayq.templatetags.delayq import grouped, zoned

_MINUTE_US = 60 * SECOND_US
_HALF_HOUR_US = 30 * _MINUTE_US


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A stretch of the future, cut into steps."""

    title: Any
    #: What the chart's sentence says of a number of tasks.
    sentence: Any
    length_us: int
    step_us: int


SPANS = {
    "hour": Span(
        title=gettext_lazy("1 hour"),
        sentence=gettext_lazy("%(due)s due within the next hour, %(later)s later."),
        length_us=HOUR_US,
        step_us=2 * _MINUTE_US,
    ),
    "day": Span(
        title=gettext_lazy("24 hours"),
        sentence=gettext_lazy("%(due)s due within the next 24 hours, %(later)s later."),
        length_us=DAY_US,
        step_us=_HALF_HOUR_US,
    ),
    "month": Span(
        title=gettext_lazy("30 days"),
        sentence=gettext_lazy("%(due)s due within the next 30 days, %(later)s later."),
        length_us=30 * DAY_US,
        step_us=DAY_US,
    ),
}
_FIRST = "day"


def chart(visit: PageContext) -> Chart:
    """Draw the span that the query string names; a round trip a shard, O(log n) a bar."""
    chosen = visit.request.GET.get("due", "")
    name = chosen if chosen in SPANS else _FIRST
    span = SPANS[name]
    edges = list(_edges(visit, span))
    counts = [0] * (len(edges) - 1)
    for shard in range(visit.store.config.shards):
        counts = [
            a + b
            for a, b in zip(
                counts,
                visit.store.dashboard(shard).due_histogram(edges, queues=list(visit.snapshot.queues)),
                strict=True,
            )
        ]
    snapshot = visit.snapshot
    due = sum(counts)
    numbers = {"due": grouped(due), "later": grouped(max(0, snapshot.scheduled - snapshot.overdue - due))}
    texts = [_text(visit, edge, span) for edge in edges]
    return build_chart(
        "coming",
        _("Coming due"),
        str(span.sentence % numbers),
        [Series(kind="due", title=_("due"), values=counts)],
        heads=[_("Due"), _("Tasks")],
        labels=texts[:-1]
        if span.step_us == DAY_US
        else [_between(a, b) for a, b in zip(texts, texts[1:], strict=False)],
        axis=[_("now"), *texts[6:-5:6], texts[-1]],
        text=grouped,
        urls=[visit.url("pending", **{"from": a, "to": b - 1}) for a, b in zip(edges, edges[1:], strict=False)],
        switch=[
            (str(each.title), visit.url("overview", due="" if key == _FIRST else key), key == name)
            for key, each in SPANS.items()
        ],
    )


def _edges(visit: PageContext, span: Span) -> Iterator[int]:
    """Yield now, the whole steps of the reader's clock (days begin at midnight there), and the end."""
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


def _between(start: str, end: str) -> str:
    return f"{start}–{end}"
