"""Coming due: how many jobs each quarter of an hour of the next day has, and how late they will start."""

from collections.abc import Iterator
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext, pgettext

from django_delayq.admin.charts.drawing import Chart, Series
from django_delayq.admin.page import PageContext, PageResponse
from django_delayq.display.text import printable
from django_delayq.monitoring import delays
from django_delayq.monitoring.delays import DelayForecast, Quarter
from django_delayq.templatetags.delayq import duration_text, grouped, zoned

#: Most late quarters that have a sentence; and if none is late, the largest ones that are listed.
_MOST, _LARGEST = 12, 5


def show(page: PageContext) -> PageResponse:
    """Return the page; three round trips, and one more to compare the last hour."""
    found = delays.read(page)
    late = [quarter for quarter in found.quarters if quarter.is_late]
    listed = late[:_MOST] or sorted(found.quarters, key=lambda each: -each.due)[:_LARGEST]
    is_compared = "compare" in page.request.GET
    return page.render(
        "coming.html",
        tab="overview",
        title=_("Coming due"),
        crumb=_("Coming due"),
        charts=list(_charts(page, found)),
        late=[_sentence(page, found, each) for each in late[:_MOST]],
        more_late=max(0, len(late) - _MOST),
        rows=[
            (each, _clock(page, each.start_us), _url(page, each), _clock(page, each.started_by_us))
            for each in listed
            if each.due
        ],
        slots=found.slots,
        guessed=", ".join(printable(name) for name in found.guessed if any(found.loads[name].due)),
        is_compared=is_compared,
        comparison=delays.compare(page, page.store.endings(reads=page.reads)) if is_compared else None,
        compare_url=page.url("coming", compare=1),
    )


def _sentence(page: PageContext, found: DelayForecast, quarter: Quarter) -> str:
    """Return "09:00: 120,000 due, the last starts at 09:14 with 24 slots; 72 would keep it under 1 min"."""
    facts: dict[str, Any] = {
        "time": _clock(page, quarter.start_us),
        "due": grouped(quarter.due),
        "slots": grouped(found.slots),
        "needed": grouped(quarter.slots_needed),
        "by": _clock(page, quarter.started_by_us),
    }
    if quarter.started_by_us is None:
        return _("%(time)s: %(due)s due, and not all of them start within a day with %(slots)s slots.") % facts
    text = ngettext(
        "%(time)s: %(due)s due, the last starts at %(by)s with %(slots)s slot; %(needed)s would keep it under 1 min.",
        "%(time)s: %(due)s due, the last starts at %(by)s with %(slots)s slots; %(needed)s would keep it under 1 min.",
        found.slots,
    )
    return text % facts


def _charts(page: PageContext, found: DelayForecast) -> Iterator[Chart]:
    quarters = found.quarters
    labels = [f"{_clock(page, each.start_us)}–{_clock(page, each.end_us)}" for each in quarters]
    axis = [_("now"), *(_clock(page, each.start_us) for each in quarters[12:-11:12]), _clock(page, quarters[-1].end_us)]
    yield Chart(
        name="coming",
        title=_("Jobs due in each quarter of an hour"),
        summary=_("%s due within the next 24 hours.") % grouped(sum(each.due for each in quarters)),
        series=[Series("due", pgettext("jobs", "due"), [each.due for each in quarters])],
        headers=[_("Due"), _("Jobs")],
        labels=labels,
        axis=axis,
        text=grouped,
        urls=[_url(page, each) for each in quarters],
    )
    longest = max((each.delay_us or 0 for each in quarters), default=0)
    yield Chart(
        name="delay",
        title=_("Expected start delay"),
        summary=_("The longest one is %s.") % duration_text(longest),
        series=[Series("most", _("longest delay"), [each.delay_us if each.due else 0 for each in quarters])],
        headers=[_("Due"), _("Longest delay")],
        labels=labels,
        axis=axis,
        text=duration_text,
        is_line=True,
    )


def _url(page: PageContext, quarter: Quarter) -> str:
    return page.url("scheduled", **{"from": quarter.start_us, "to": quarter.end_us - 1})


def _clock(page: PageContext, us: int | None) -> str:
    return "" if us is None else f"{zoned(us, page.timezone):%H:%M}"
