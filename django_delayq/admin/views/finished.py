"""Finished jobs: the last ones that ended, newest first, as their workers reported them."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from django_delayq.admin.lists.filters import OUTCOMES, Cursor, Filter
from django_delayq.admin.lists.job_lists import FINISHED
from django_delayq.admin.lists.job_rows import short_id
from django_delayq.admin.lists.search_terms import write_terms
from django_delayq.admin.page import PageContext
from django_delayq.admin.views.lists import filter_context, filter_of
from django_delayq.display.text import printable, short
from django_delayq.job.ending import Ending
from django_delayq.job.ids import from_text
from django_delayq.store.queries.job_filter import names_match
from django_delayq.task import registry

#: What the search field suggests here, beside names.
_TERMS = (*(f"outcome:{each.term}" for each in OUTCOMES.values()), "ended:1h", "ended:24h")


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
        return str(OUTCOMES[self.ending.state].title)

    @property
    def css_class(self) -> str:
        """The CSS class of its chip."""
        return OUTCOMES[self.ending.state].css_class

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
    job_filter = filter_of(page)
    if from_text(job_filter.text):
        return HttpResponseRedirect(page.url("job_detail", job_filter.text))
    endings = page.store.endings(reads=page.reads)
    wanted = job_filter.with_absolute_times(page.now_us, ahead=False)
    is_filtered = job_filter.is_set or bool(job_filter.outcome)
    matching = [each for each in endings if _matches(each, wanted)] if is_filtered else endings
    first, rows = _rows(matching, job_filter)
    last = first + len(rows)
    # The others are suggested on every page.
    names = {("task", row.task) for row in rows} - {("task", name) for name in registry.names()}
    names |= {("queue", row.queue) for row in rows} - {("queue", name) for name in page.snapshot.queues}

    def url(cursor: Cursor | None = None, *, before: bool = False) -> str:
        return FINISHED.address(page, "", job_filter.page(cursor, before=before))

    return page.render(
        "finished.html",
        tab="finished",
        title=_("Finished jobs"),
        lines=[line_of(page, each) for each in rows],
        **{
            **filter_context(page, FINISHED, job_filter, ()),
            "filtered": is_filtered or job_filter.cursor is not None,
            "row_terms": [*_TERMS, *write_terms(sorted(names))],
        },
        first=first + 1,
        last=last,
        total=len(matching),
        most=page.store.config.worker.finished_kept,
        first_url=url(),
        last_url=url(before=True),
        previous_url=url(_cursor(rows[0]), before=True) if rows and first else "",
        next_url=url(_cursor(rows[-1])) if rows and last < len(matching) else "",
    )


def _matches(ending: Ending, wanted: Filter) -> bool:
    return (
        (not wanted.outcome or ending.state == wanted.outcome)
        and (not wanted.queue or ending.queue == wanted.queue)
        and (not wanted.task or names_match(ending.task, wanted.task))
        and (wanted.from_us is None or ending.ended_us >= wanted.from_us)
        and (wanted.to_us is None or ending.ended_us <= wanted.to_us)
        and (not wanted.text or wanted.text.casefold() in f"{ending.id} {ending.task} {ending.worker}".casefold())
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
