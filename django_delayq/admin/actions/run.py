"""Runs an action job by job, for at most two seconds a request; the next request continues at the same place."""

from collections.abc import Iterator
from time import monotonic

from django_delayq import runtime
from django_delayq.admin.actions.action_request import ActionRequest
from django_delayq.admin.actions.bulk_actions import ActionResult, Parameters, Target
from django_delayq.admin.actions.selection import matching
from django_delayq.admin.filters import Cursor
from django_delayq.admin.page import PageContext


def run(page: PageContext, action_request: ActionRequest) -> Iterator[Target]:
    """Continue for two seconds, to the end, or up to the confirmed number of jobs; yield each job that changed.

    If Redis fails, the request's results hold everything that certainly happened.
    """
    until = monotonic() + runtime.current().bounds.action_seconds
    parameters = {**action_request.parameters, "now_us": page.now_us}
    for target, shard, cursor in _targets(page, action_request):
        # The only bound of every action. The clocks of enqueuers differ, so a job that came after the count may match;
        # and a row that could not be changed stays in the list beside others.
        if action_request.handled >= action_request.count:
            break
        # First: if Redis fails now, the job may have changed, and a continued action must not change it twice.
        action_request.advance(shard, cursor)
        result = _apply(page, action_request, target, parameters) if target else None
        if target and result is ActionResult.DONE:
            yield target
        if monotonic() > until:
            return
    action_request.finished = True


def _apply(page: PageContext, action_request: ActionRequest, target: Target, parameters: Parameters) -> ActionResult:
    result = ActionResult.SKIPPED
    # A selected row may name any shard, also one that does not exist.
    if target.shard < page.store.config.shards:
        result = action_request.action.apply(page.store.operations(target.shard), target, parameters)
    action_request.results[result] = action_request.results.get(result, 0) + 1
    return result


def _targets(page: PageContext, action_request: ActionRequest) -> Iterator[tuple[Target | None, int, Cursor | None]]:
    """Yield each job with the position after it, and after each batch its end without a job."""
    # Each selected row has one result, so their number is the position.
    for token in action_request.rows[action_request.handled :]:
        yield Target.read(token), 0, None
    if action_request.rows:
        return
    backwards = action_request.moves_later
    for shard, batch in matching(page, action_request, before=backwards):
        for row in reversed(batch.rows) if backwards else batch.rows:
            yield Target(row.raw_id, row.shard, row.moment_us), shard, row.cursor
        yield None, shard, batch.end
