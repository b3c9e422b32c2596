"""Runs an action batch by batch, for about two seconds a request; the next request continues at the same place."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from time import monotonic
from typing import NamedTuple

from django_delayq import runtime
from django_delayq.admin.actions.action_request import ActionRequest
from django_delayq.admin.actions.bulk_actions import ActionResult, Change, Parameters, Target
from django_delayq.admin.actions.selection import matching
from django_delayq.admin.lists import job_lists
from django_delayq.admin.lists.filters import Cursor
from django_delayq.admin.page import PageContext
from django_delayq.job.ids import created_us
from django_delayq.store.operations.batch import Effect
from django_delayq.store.operations.spread import Spread


class _Batch(NamedTuple):
    """Jobs of one shard, and the position after them."""

    shard: int
    targets: Sequence[Target]
    next_shard: int
    cursor: Cursor | None


def run(page: PageContext, action_request: ActionRequest) -> Iterator[tuple[Target, Effect]]:
    """Continue for two seconds, to the end, or up to the confirmed number of jobs; yield each change.

    If Redis fails, the request's results hold everything that certainly happened.
    """
    until = monotonic() + runtime.current().bounds.action_seconds
    parameters = {**action_request.parameters, "now_us": page.now_us}
    for shard, targets, next_shard, cursor in _batches(page, action_request):
        # First: if Redis fails now, the jobs may have changed, and a continued action must not change them twice.
        action_request.advance(next_shard, cursor)
        changes = _apply(page, action_request, shard, targets, parameters)
        for target, (result, effect) in zip(targets, changes, strict=True):
            action_request.results[result] = action_request.results.get(result, 0) + 1
            if result is ActionResult.DONE:
                yield target, effect
        # The only bound of every action. The clocks of enqueuers differ, so a job that came after the count may match;
        # and a row that could not be changed stays in the list beside others.
        if action_request.handled >= action_request.count:
            break
        if monotonic() > until:
            return
    action_request.finished = True
    if "spread_us" in parameters:
        for shard in page.answering:
            page.store.operations(shard).dead_letters.end_spread(_spread(action_request, shard, begun=True))


def _apply(
    page: PageContext, action_request: ActionRequest, shard: int, targets: Sequence[Target], parameters: Parameters
) -> Sequence[Change]:
    # A selected row may name any shard, also one that does not exist.
    if not targets or not page.store.has_shard(shard):
        return [Change(ActionResult.SKIPPED)] * len(targets)
    if shard not in page.answering:
        return [Change(ActionResult.UNREACHABLE)] * len(targets)
    if "spread_us" in parameters:
        # The counts travel in the form, so that a later request knows what is left.
        counts, key = action_request.shard_counts, str(shard)
        begun = key in counts
        counts.setdefault(key, _count(page, action_request, shard))
        parameters = {**parameters, "spread": _spread(action_request, shard, left=counts[key], begun=begun)}
        counts[key] -= len(targets)
    return action_request.action.apply(page.store.operations(shard), targets, parameters)


def _spread(action_request: ActionRequest, shard: int, *, left: int = 0, begun: bool) -> Spread:
    """Return the spread of this action, which no other one shares."""
    name = f"{action_request.nonce} {shard}".encode()
    return Spread(name=name, length_us=action_request.parameters["spread_us"], left=left, begun=begun)


def _count(page: PageContext, action_request: ActionRequest, shard: int) -> int:
    """Return how many jobs of a shard the action is about, before the first of them changes."""
    if action_request.rows:
        return sum(target.shard == shard for target in _selected(action_request))
    # All jobs of the list: Redis counts them without a scan.
    return job_lists.count(page, action_request.job_list, action_request.filter, shard)


def _batches(page: PageContext, action_request: ActionRequest) -> Iterator[_Batch]:
    """Yield the jobs in batches of one shard, never more of them than were confirmed."""
    most = runtime.current().bounds.changed_jobs
    if action_request.rows:
        # Each selected row has one result, so their number is the position.
        left = _selected(action_request)[action_request.handled :]
        for shard, found in groupby(left, key=attrgetter("shard")):
            targets = list(found)
            for at in range(0, len(targets), most):
                yield _Batch(shard, targets[at : at + most], 0, None)
        return
    if action_request.tenant:
        yield from _batches_of_tenant(page, action_request, most)
        return
    backwards = action_request.moves_later
    for shard, page_of_jobs in matching(page, action_request, before=backwards):
        rows, at = page_of_jobs.rows[::-1] if backwards else page_of_jobs.rows, 0
        while at < len(rows) and action_request.handled < action_request.count:
            batch = rows[at : at + min(most, action_request.count - action_request.handled)]
            at += len(batch)
            targets = [Target(row.raw_id, row.shard, row.moment_us) for row in batch]
            yield _Batch(shard, targets, shard, batch[-1].cursor)
        yield _Batch(shard, (), shard, page_of_jobs.end)


def _batches_of_tenant(page: PageContext, action_request: ActionRequest, most: int) -> Iterator[_Batch]:
    """Yield the waiting jobs of a tenant in the batches in which Redis lists them."""
    for shard in page.answering:
        if shard < action_request.shard:
            continue
        _score, after = action_request.cursor or (0, b"")
        tenants = page.store.tenants(shard)
        for ids, last in tenants.ids(action_request.filter.queue, action_request.tenant, after=after, most=most):
            # The id holds the enqueuer's time.
            known = [raw_id for raw_id in ids if created_us(raw_id) <= action_request.seen_us]
            targets = [Target(raw_id, shard, 0) for raw_id in known[: action_request.count - action_request.handled]]
            yield _Batch(shard, targets, shard, (0, last))
        yield _Batch(shard, (), shard, None)


def _selected(action_request: ActionRequest) -> list[Target]:
    """Return the selected rows, ordered by their shard."""
    targets = [target for token in action_request.rows if (target := Target.read(token))]
    return sorted(targets, key=attrgetter("shard"))
