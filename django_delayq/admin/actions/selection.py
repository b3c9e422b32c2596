"""Which jobs an action is about: how many match, the first of them, and whether more match by now.

A count that takes longer than one request may take continues in the next one. The confirm page comes when the count is
complete, and the action changes no more jobs than that number.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain, islice
from time import monotonic

from django_delayq import runtime
from django_delayq.admin.actions.action_request import ActionRequest
from django_delayq.admin.actions.bulk_actions import Target
from django_delayq.admin.lists import job_lists
from django_delayq.admin.lists.filters import SIZES
from django_delayq.admin.lists.job_lists import FAILED, READY
from django_delayq.admin.lists.job_rows import JobLine
from django_delayq.admin.page import PageContext
from django_delayq.job.ids import created_us, to_text
from django_delayq.store.digests import tenant_digest
from django_delayq.store.queries.job_pages import JobPage, JobRow
from django_delayq.store.queries.tenants import TenantState

#: Rows shown on the confirm page.
SAMPLE = 5
#: The rank of a ready job holds its due time in ms.
_RANK_US = 1_000


def count_and_sample(page: PageContext, action_request: ActionRequest) -> None:
    """Count for up to a second, and put the first jobs into the sample. The number of selected rows is known."""
    if action_request.rows:
        return None
    if action_request.tenant:
        return _count_tenant(page, action_request)
    job_list, job_filter = action_request.job_list, action_request.filter
    if job_lists.JobQuery.of(page, job_list, job_filter).match is None:
        # Redis counts without a scan.
        listing = job_lists.read(page, job_list, replace(job_filter, count=SIZES[0]))
        _add_to_sample(page, action_request, listing.rows)
        action_request.count, action_request.counted = listing.total, True
        return
    until = monotonic() + runtime.current().bounds.count_seconds
    for shard, batch in matching(page, action_request, before=job_list.newest_first):
        _add_to_sample(page, action_request, batch.rows[::-1] if job_list.newest_first else batch.rows)
        action_request.count += len(batch.rows)
        counts = action_request.shard_counts
        counts[str(shard)] = counts.get(str(shard), 0) + len(batch.rows)
        action_request.scanned += batch.scanned
        action_request.advance(shard, batch.end)
        if page.store.has_shard(action_request.shard) and monotonic() > until:
            return
    action_request.counted, action_request.shard, action_request.cursor_text = True, 0, ""


def _count_tenant(page: PageContext, action_request: ActionRequest) -> None:
    """Count the waiting jobs of a tenant: Redis counts without a scan."""
    queue, tenant = action_request.filter.queue, action_request.tenant
    for shard, state in _tenant_states(page, action_request).items():
        tenants = page.store.tenants(shard)
        action_request.count += state.waiting
        ids = (raw_id for batch, _ in tenants.ids(queue, tenant, most=SAMPLE) for raw_id in batch)
        action_request.sample += [f"{to_text(raw_id, shard)}.0" for raw_id in islice(ids, SAMPLE)]
    action_request.counted = True


def _tenant_states(page: PageContext, action_request: ActionRequest) -> dict[int, TenantState]:
    """Return the state of the request's tenant in each shard that answers."""
    queue, digest = action_request.filter.queue, tenant_digest(action_request.tenant)
    return page.reads.read(lambda shard: page.store.tenants(shard).read_tenant(queue, digest))


def matching(page: PageContext, action_request: ActionRequest, *, before: bool) -> Iterator[tuple[int, JobPage]]:
    """Yield the rows that the action is about in batches, each with its shard, from the request's position on."""
    return job_lists.iter_batches(
        page,
        action_request.job_list,
        action_request.filter,
        test=_test(action_request),
        shard=action_request.shard,
        cursor=action_request.cursor,
        before=before,
        bodies=False,
    )


def more_match(page: PageContext, action_request: ActionRequest) -> bool:
    """Return whether jobs match that the finished action left alone because they came after the count.

    Looks for up to half a second, so it may miss some.
    """
    if action_request.tenant:
        return any(state.waiting for state in _tenant_states(page, action_request).values())
    until, job_list = monotonic() + runtime.current().bounds.more_seconds, action_request.job_list

    def came_since(row: JobRow) -> bool:
        return not _was_there(action_request, row)

    new = job_lists.iter_batches(
        page, job_list, action_request.current_filter, test=came_since, before=job_list.newest_first, bodies=False
    )
    bound_reached = action_request.handled >= action_request.count
    rest = matching(page, action_request, before=action_request.moves_later) if bound_reached else iter(())
    for _shard, batch in chain(rest, new):
        if batch.rows:
            return True
        if monotonic() > until:
            break
    return False


def find(page: PageContext, target: Target) -> JobRow | None:
    """Return the job of a selected row as it is now; None if it is gone, or if its shard does not exist or answer."""
    if target.shard not in page.answering:
        return None
    found = page.store.lookup(target.shard).find(target.raw_id)
    return None if found.ended else found


def _add_to_sample(page: PageContext, action_request: ActionRequest, rows: list[JobRow]) -> None:
    more = rows[: SAMPLE - len(action_request.sample)]
    action_request.sample += [JobLine(row, page.config.redact).token for row in more]


def sample_texts(page: PageContext, action_request: ActionRequest) -> list[str]:
    """Return a line of text for each of the first jobs that are still there. Two round trips a shard."""
    tokens = (action_request.rows or action_request.sample)[:SAMPLE]
    targets = [target for token in tokens if (target := Target.read(token))]
    found: dict[Target, JobRow] = {}
    for shard in {target.shard for target in targets} & set(page.answering):
        of_shard = [target for target in targets if target.shard == shard]
        rows = page.store.lookup(shard).find_many([target.raw_id for target in of_shard])
        found |= {target: row for target, row in zip(of_shard, rows, strict=True) if not row.ended}
    lines = [JobLine(found[target], page.config.redact) for target in targets if target in found]
    return [" ".join(filter(None, (line.short_id, line.call, str(line.error_summary)))) for line in lines]


def _test(action_request: ActionRequest) -> Callable[[JobRow], bool] | None:
    """Return the test for a row that matches the filter: it was there when the person looked, and was not moved yet."""
    if action_request.job_list is FAILED:
        return None
    new_due_us, new_queue = action_request.parameters.get("due_us"), action_request.parameters.get("queue")

    def is_meant(row: JobRow) -> bool:
        return row.due_us != new_due_us and row.queue != new_queue and _was_there(action_request, row)

    return is_meant


def _was_there(action_request: ActionRequest, row: JobRow) -> bool:
    """Return whether a row was in the list when the person looked."""
    seen_us = action_request.seen_us
    if action_request.job_list is FAILED:
        return row.moment_us <= seen_us
    return (
        # The id holds the enqueuer's time. A job has no other record of when it was enqueued.
        created_us(row.raw_id) <= seen_us
        and (action_request.job_list is not READY or (row.due_us or 0) <= seen_us + _RANK_US)
        and _returned_us(row) <= seen_us
    )


def _returned_us(row: JobRow) -> int:
    """Return when a job that ran came back to wait; 0 if it never ran."""
    if not row.attempts.history:
        return 0
    ended_us = row.attempts.history[-1].get("ended_us")
    # Nobody saw the end of an attempt whose lease expired. The job was due again at once.
    return int((row.due_us or 0) if ended_us is None else ended_us)
