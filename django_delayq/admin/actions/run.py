"""Carrying out: an order is done row by row, for at most two seconds a request; the next request goes on from there."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any

from django_delayq.admin.actions.bulk_actions import ActionResult, Target
from django_delayq.admin.actions.requests import ActionRequest, Progress, RowToken
from django_delayq.admin.filters import Cursor
from django_delayq.admin.job_lists import DEAD, READY, iter_pages
from django_delayq.admin.page import PageContext
from django_delayq.job.ids import created_us
from django_delayq.store.queries.job_pages import JobRow

#: Seconds of one request.
SECONDS = 2.0
#: The rank of a ready job knows its due time to the millisecond.
_MS_US = 1_000


class ActionRun:
    """One request's share of an order."""

    def __init__(self, visit: PageContext, order: ActionRequest, progress: Progress) -> None:
        self._visit, self._order = visit, order
        self.progress = progress
        #: Ids of the jobs it was done to, in this request.
        self.done: list[tuple[bytes, int]] = []

    def run(self) -> None:
        """Go on for two seconds, to the end, or until as many jobs are handled as were counted and confirmed.

        Where Redis fails, `progress` tells of all that is surely done.
        """
        until = monotonic() + SECONDS
        for step in self._run_selected() if self._order.selected else self._run_matching():
            # The one bound of every action. Clocks of enqueuers differ, so `meant` alone may let in a job that came
            # after the count; and a row that could not be changed stays in the list beside others.
            if self.progress.handled >= self._order.count:
                break
            step()
            if monotonic() > until:
                return
        self.progress = replace(self.progress, finished=True)

    def _run_selected(self) -> Iterator[Callable[[], None]]:
        for token in list(self._order.tokens)[self.progress.passed :]:
            yield partial(self._token, token)

    def _run_matching(self) -> Iterator[Callable[[], None]]:
        """Yield a step for each row that is meant, and one for each page."""
        order, before = self._order, self._order.moves_up
        pages = iter_pages(
            self._visit,
            order.job_list,
            order.parsed_filter,
            match=row_predicate(self._visit, order),
            shard=self.progress.shard,
            cursor=self.progress.cursor,
            before=before,
        )
        for shard, page in pages:
            for row in reversed(page.rows) if before else page.rows:
                yield partial(self._row, row)
            yield partial(self._pass, shard, page.end)

    def _token(self, token: RowToken) -> None:
        self._one(*token, passed=self.progress.passed + 1)

    def _row(self, row: JobRow) -> None:
        self._one(row.raw_id, row.shard, row.moment_us, cursor=row.cursor)

    def _pass(self, shard: int, end: Cursor | None) -> None:
        self.progress = self.progress.after(shard, end)

    def _one(self, raw_id: bytes, shard: int, moment_us: int, **passed: Any) -> None:
        visit, fate = self._visit, ActionResult.MISSED
        # The token of a ticked row is signed only as a whole: its shard may be any.
        if shard < visit.store.config.shards:
            target = Target(raw_id, moment_us, visit.now_us)
            fate = self._order.action.apply(visit.store.operations(shard), target, self._order.parameters)
        if fate is ActionResult.DONE:
            self.done.append((raw_id, shard))
        fates = {**self.progress.results, fate.value: self.progress.results.get(fate, 0) + 1}
        self.progress = replace(self.progress, results=fates, **passed)


def row_predicate(visit: PageContext, order: ActionRequest) -> Callable[[JobRow], bool] | None:
    """Return what says whether a row is meant: it matches, and was there when the person looked."""
    place = order.job_list
    match = order.parsed_filter.match(visit.config.redact, by_queue=not place.by_queue)
    if place is DEAD:
        return match
    moved_to = order.parameters.get("due_us"), order.parameters.get("queue")

    def is_meant(row: JobRow) -> bool:
        return (
            row.due_us != moved_to[0]
            and row.queue != moved_to[1]
            and was_there(order, row)
            and (match is None or match(row))
        )

    return is_meant


def was_there(order: ActionRequest, row: JobRow) -> bool:
    """Return whether a row was in the list when the person looked."""
    if order.job_list is DEAD:
        return row.moment_us <= order.seen_us
    return (
        # The id holds the enqueuer's time. A job has no other record of when it was enqueued.
        created_us(row.raw_id) <= order.seen_us
        and (order.job_list is not READY or (row.due_us or 0) <= order.seen_us + _MS_US)
        and _back_since(row) <= order.seen_us
    )


def _back_since(row: JobRow) -> int:
    """Return when a job that ran came back to wait; of a lapsed lease nobody saw the end, and it was due at once."""
    if not row.attempts.history:
        return 0
    ended_us = row.attempts.history[-1].get("ended_us")
    return int((row.due_us or 0) if ended_us is None else ended_us)
