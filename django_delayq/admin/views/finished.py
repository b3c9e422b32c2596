"""Finished jobs: the last ones that ended, newest first, as their workers reported them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse, HttpResponseRedirect
from django.utils.http import urlencode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from django_delayq.admin.lists.filters import SIZES, Cursor, Filter, url_name
from django_delayq.admin.lists.job_lists import FAILED
from django_delayq.admin.lists.job_rows import short_id
from django_delayq.admin.page import PageContext
from django_delayq.admin.views.lists import filter_of
from django_delayq.display.text import printable, short
from django_delayq.job.ending import ENDED, Ending
from django_delayq.job.ids import from_text
from django_delayq.job.job import State
from django_delayq.store.queries.job_filter import names_match
from django_delayq.task import registry

#: Outcome -> its name, and the CSS class of its chip.
OUTCOMES: dict[State, tuple[Any, str]] = {
    State.DONE: (gettext_lazy("done"), "good"),
    State.DEAD: (gettext_lazy("failed"), "bad"),
    State.CANCELLED: (gettext_lazy("stopped"), "warn"),
    State.EXPIRED: (gettext_lazy("expired"), ""),
    State.DROPPED: (gettext_lazy("dropped"), ""),
}


@dataclass(frozen=True, slots=True)
class EndingLine:
    """One finished job."""

    ending: Ending
    #: The address of the job's own page.
    url: str

    @property
    def task(self) -> str:
        """The task's dotted name; empty if it could not be read."""
        return printable(self.ending.task)

    @property
    def task_name(self) -> str:
        """The task's name without its module."""
        return printable(short(self.ending.task)) or "?"

    @property
    def short_id(self) -> str:
        """The end of the id; the beginning is the creation time."""
        return short_id(self.ending.id)

    @property
    def outcome(self) -> str:
        """How it ended."""
        return str(OUTCOMES[self.ending.state][0])

    @property
    def css_class(self) -> str:
        """The CSS class of its chip."""
        return OUTCOMES[self.ending.state][1]

    @property
    def queue(self) -> str:
        """The queue's name."""
        return printable(self.ending.queue)

    @property
    def worker(self) -> str:
        """The worker that ran it."""
        return printable(self.ending.worker)


def line_of(page: PageContext, ending: Ending) -> EndingLine:
    """Return an ending as pages show it."""
    return EndingLine(ending, page.url("job_detail", ending.id))


def show(page: PageContext) -> HttpResponse:
    """Show the list; two round trips."""
    job_filter, outcome = filter_of(page), _outcome(page)
    if from_text(job_filter.text):
        return HttpResponseRedirect(page.url("job_detail", job_filter.text))
    endings = page.store.endings(reads=page.reads)
    wanted = job_filter.with_absolute_times(page.now_us, ahead=False)
    is_filtered = job_filter.is_set or outcome is not None
    matching = [each for each in endings if _matches(each, wanted, outcome)] if is_filtered else endings
    first, rows = _rows(matching, job_filter)
    last = first + len(rows)
    more = {"outcome": str(outcome)} if outcome else {}
    address = page.url("finished")

    def url(cursor: Cursor | None = None, *, before: bool = False) -> str:
        pairs = {**job_filter.pairs(cursor=cursor, before=before, at_us=None), **more}
        return f"{address}?{urlencode(pairs)}" if pairs else address

    return page.render(
        "finished.html",
        tab="finished",
        title=_("Finished jobs"),
        lines=[line_of(page, each) for each in rows],
        filter=job_filter,
        filtered=is_filtered or job_filter.cursor is not None,
        first=first + 1,
        last=last,
        total=len(matching),
        endings=len(endings),
        most=page.store.config.worker.finished_kept,
        list_url=address,
        clear_url="?".join(filter(None, (address, Filter(count=job_filter.count).query()))),
        first_url=url(),
        last_url=url(before=True),
        previous_url=url(_cursor(rows[0]), before=True) if rows and first else "",
        next_url=url(_cursor(rows[-1])) if rows and last < len(matching) else "",
        outcomes=[(state.value, text, state is outcome) for state, (text, _css) in OUTCOMES.items()],
        queues=[
            (url_name(name), printable(name), name == job_filter.queue)
            for name in sorted({*(each.queue for each in endings), job_filter.queue} - {""})
        ],
        task_names=sorted({url_name(each) for each in (*registry.names(), *(row.task for row in rows)) if each}),
        task_text=url_name(job_filter.task) if job_filter.task else "",
        spans=FAILED.spans,
        sizes=SIZES,
    )


def _outcome(page: PageContext) -> State | None:
    given = page.request.GET.get("outcome", "")
    return next((state for state in ENDED if state == given), None)


def _matches(ending: Ending, wanted: Filter, outcome: State | None) -> bool:
    return (
        (outcome is None or ending.state is outcome)
        and (not wanted.queue or ending.queue == wanted.queue)
        and (not wanted.task or names_match(ending.task, wanted.task))
        and (wanted.from_us is None or ending.ended_us >= wanted.from_us)
        and (wanted.to_us is None or ending.ended_us <= wanted.to_us)
        and (not wanted.text or wanted.text.casefold() in f"{ending.id} {ending.worker}".casefold())
    )


def _rows(matching: Sequence[Ending], job_filter: Filter) -> tuple[int, Sequence[Ending]]:
    """Return how many endings come before the page, and those of the page."""
    at, cursor, count = 0, job_filter.cursor, job_filter.count
    if job_filter.before:
        newer = len(matching) if cursor is None else sum(_cursor(each) > cursor for each in matching)
        at = max(0, newer - count)
    elif cursor is not None:
        at = sum(_cursor(each) >= cursor for each in matching)
    return at, matching[at : at + count]


def _cursor(ending: Ending) -> tuple[int, bytes]:
    return ending.ended_us, ending.raw_id
