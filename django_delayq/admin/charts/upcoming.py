"""Chart of the jobs that become due within the next hour, day or month; its bars link to these jobs."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple

from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext

from django_delayq.admin.charts.drawing import Chart, Series
from django_delayq.admin.page import PageContext
from django_delayq.clock import DAY_US, HOUR_US, moment_us
from django_delayq.metrics import MINUTE_US
from django_delayq.monitoring.due import due_in_all_shards
from django_delayq.templatetags.delayq import grouped, zoned


class Span(NamedTuple):
    """A time from now on, cut into steps."""

    title: Any
    #: The chart's summary.
    sentence: Any
    length_us: int
    step_us: int


_HOUR = gettext_lazy("%(due)s due within the next hour, %(later)s later.")
_DAY = gettext_lazy("%(due)s due within the next 24 hours, %(later)s later.")
_MONTH = gettext_lazy("%(due)s due within the next 30 days, %(later)s later.")
SPANS = {
    "hour": Span(gettext_lazy("1 hour"), _HOUR, HOUR_US, 2 * MINUTE_US),
    "day": Span(gettext_lazy("24 hours"), _DAY, DAY_US, 30 * MINUTE_US),
    "month": Span(gettext_lazy("30 days"), _MONTH, 30 * DAY_US, DAY_US),
}
_DEFAULT = "day"


class Upcoming(NamedTuple):
    """The jobs that become due within the span that the query string names."""

    name: str
    #: The edges of the bars (µs), and the jobs of each queue within each bar.
    edges: Sequence[int]
    by_queue: Mapping[str, Sequence[int]]


def read(page: PageContext) -> Upcoming:
    """Read what becomes due; one round trip, O(log n) a bar and queue."""
    chosen = page.request.GET.get("due", "")
    name = chosen if chosen in SPANS else _DEFAULT
    edges = list(_edges(page, SPANS[name]))
    [by_queue] = due_in_all_shards(page, (edges,), list(page.snapshot.queues))
    return Upcoming(name, edges, by_queue)


def chart(page: PageContext, upcoming: Upcoming, *, link: Callable[[str], str]) -> Chart:
    """Return the chart.

    `link` returns the address of the page for the name of a span, which is empty for the default.
    """
    name, edges, by_queue = upcoming
    span, waiting = SPANS[name], page.snapshot.total
    counts = [sum(bars) for bars in zip(*by_queue.values(), strict=True)] or [0] * (len(edges) - 1)
    due = sum(counts)
    numbers = {"due": grouped(due), "later": grouped(max(0, waiting.scheduled - waiting.overdue - due))}
    texts = [_text(page, edge, span) for edge in edges]
    return Chart(
        name="coming",
        title=_("Coming due"),
        summary=str(span.sentence % numbers),
        series=[Series("due", pgettext("jobs", "due"), counts)],
        headers=[_("Due"), _("Jobs")],
        labels=texts[:-1] if span.step_us == DAY_US else [f"{start}–{end}" for start, end in pairwise(texts)],
        axis=[_("now"), *texts[6:-5:6], texts[-1]],
        text=grouped,
        urls=[page.url("scheduled", **{"from": start, "to": end - 1}) for start, end in pairwise(edges)],
        toggle_links=[
            (str(each.title), link("" if key == _DEFAULT else key), key == name) for key, each in SPANS.items()
        ],
    )


def _edges(page: PageContext, span: Span) -> Iterator[int]:
    """Yield now, the whole steps of the reader's time zone (its days begin at midnight), and the end."""
    now_us = page.now_us
    end_us = now_us + span.length_us
    yield now_us
    if span.step_us < DAY_US:
        yield from range(now_us // span.step_us * span.step_us + span.step_us, end_us, span.step_us)
    else:
        today = zoned(now_us, page.timezone).date()
        days = (today + timedelta(days=number) for number in range(1, span.length_us // DAY_US + 2))
        midnights = (moment_us(datetime(day.year, day.month, day.day, tzinfo=page.timezone)) for day in days)
        yield from (us for us in midnights if us < end_us)
    yield end_us


def _text(page: PageContext, us: int, span: Span) -> str:
    at = zoned(us, page.timezone)
    return date_format(at, "MONTH_DAY_FORMAT") if span.step_us == DAY_US else f"{at:%H:%M}"
