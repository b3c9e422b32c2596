"""The search field of every page: it leads to a job, or to a list with a filter."""

from dataclasses import replace

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect, QueryDict
from django.utils import timezone
from django.utils.translation import gettext as _

from django_delayq.admin.lists.filters import Filter
from django_delayq.admin.lists.job_lists import FAILED, FINISHED, JOB_LISTS, READY, SCHEDULED, JobList
from django_delayq.admin.lists.job_rows import JobLine, JobRows
from django_delayq.admin.lists.search_terms import SearchTerms
from django_delayq.admin.page import PageContext
from django_delayq.display.text import printable
from django_delayq.job.ids import from_text
from django_delayq.store.digests import key_digest
from django_delayq.store.queries.job_filter import names_match
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.task import registry


def show(page: PageContext) -> HttpResponse:
    """Redirect to what was searched for. The form has the list and its filter, which the terms are added to."""
    query = page.request.GET
    # The field takes no more, and an address that is too long is refused.
    written, list_name = query.get("find", "").strip()[:500], query.get("list", "")
    job_list = FINISHED if list_name == FINISHED.name else JOB_LISTS.get(list_name)
    if from_text(written):
        return HttpResponseRedirect(page.url("job_detail", written))
    with timezone.override(page.timezone):
        job_filter = Filter.read(QueryDict(query.get("filter", "")))
        try:
            terms = SearchTerms.read(written)
            if "key" in terms.named:
                return _show_key(page, terms, job_list or SCHEDULED, job_filter)
            job_list = _list_of(terms, job_list)
            job_filter = terms.apply(job_filter, now_us=page.now_us)
            if (unknown := "tenant" if job_list is FINISHED else "outcome") in terms.named:
                text = _("“%(term)s:” is left out: %(list)s cannot be found by it.")
                messages.warning(page.request, text % {"term": unknown, "list": job_list.title})
        except ValueError as error:
            messages.warning(page.request, printable(str(error)))
    return _to_list(page, job_list or SCHEDULED, job_filter)


def _list_of(terms: SearchTerms, job_list: JobList | None) -> JobList:
    """Return the list that has what the terms name."""
    if "failed" in terms.named or "error" in terms.named:
        return FAILED
    if "due" in terms.named:
        return SCHEDULED
    if "ended" in terms.named or "outcome" in terms.named:
        return FINISHED
    if job_list is FINISHED and "tenant" in terms.named:
        # Nobody records the tenant of a finished job.
        return SCHEDULED
    return job_list or SCHEDULED


def _to_list(page: PageContext, job_list: JobList, job_filter: Filter) -> HttpResponse:
    if job_list is READY and not job_filter.queue:
        return HttpResponseRedirect(page.url("queues"))
    # What a list does not know would hide all rows of it, or none.
    if job_list is FINISHED:
        job_filter = replace(job_filter, tenant="", error="", error_group="")
    else:
        job_filter = replace(job_filter, outcome="")
    in_query = replace(job_filter, queue="") if job_list is READY else job_filter
    return HttpResponseRedirect(job_list.address(page, job_filter.queue, in_query.query()))


def _show_key(page: PageContext, terms: SearchTerms, job_list: JobList, job_filter: Filter) -> HttpResponse:
    """Redirect to the job that holds a key; show those of several tasks. O(1) a task of this project."""
    key, found = terms.named["key"], _holders(page, terms)
    if not found:
        text = _("No job holds the key “%s”. A job holds its key until it ends.") % printable(key)
        messages.info(page.request, text)
        return _to_list(page, job_list, job_filter)
    if len(found) == 1:
        return HttpResponseRedirect(page.url("job_detail", found[0].id))
    title = _("Jobs with the key “%s”") % printable(key)
    lines = [JobLine(row, page.config.redact, url=page.url("job_detail", row.id)) for row in found]
    rows = JobRows(now_us=page.now_us, timezone=page.timezone, cells=("task", "call", "id"), selectable=False)
    return page.render("key.html", tab="", title=title, rows=rows.html(lines))


def _holders(page: PageContext, terms: SearchTerms) -> list[JobRow]:
    """Return the jobs that hold a key, or the window of a throttle, among the jobs of the named task or of all."""
    wanted, tenant = terms.named.get("task", ""), terms.named.get("tenant")
    tasks = [name for name in registry.names() if not wanted or names_match(name, wanted)] or [wanted]
    digests = [key_digest(task, terms.named["key"], tenant) for task in tasks]
    of_shards = page.reads.read(lambda shard: page.store.lookup(shard).read_holders(digests))
    return [
        row
        for shard, holders in of_shards.items()
        for row in page.store.lookup(shard).find_many(sorted({holder.raw_id for holder in holders if holder}))
        if not row.ended
    ]
