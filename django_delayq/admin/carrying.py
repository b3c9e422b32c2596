"""Carrying out: an order is done row by row, for at most two seconds a request; the next request goes on from there."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any

from django_delayq.admin.deeds import Fate, Target
from django_delayq.admin.orders import Order, Progress, Token
from django_delayq.admin.places import DEAD, READY, walk
from django_delayq.admin.visit import Visit
from django_delayq.job_id import created_us
from django_delayq.store.rows import Row

#: Seconds of one request.
SECONDS = 2.0
#: The rank of a ready job knows its due time to the millisecond.
_MS_US = 1_000


class Carrying:
    """One request's share of an order."""

    def __init__(self, visit: Visit, order: Order, progress: Progress) -> None:
        self._visit, self._order = visit, order
        self.progress = progress
        #: Ids of the jobs it was done to, in this request.
        self.done: list[tuple[bytes, int]] = []

    def run(self) -> None:
        """Go on for two seconds, or to the end. Where Redis fails, `progress` tells of all that is surely done."""
        until = monotonic() + SECONDS
        for step in self._ticked() if self._order.ticked else self._all():
            if self._destroyed_all_counted():
                break
            step()
            if monotonic() > until:
                return
        self.progress = replace(self.progress, finished=True)

    def _destroyed_all_counted(self) -> bool:
        """Whether as many are destroyed as the person was told: what came since may not be among them."""
        order = self._order
        return order.deed.destroys and order.counted and self.progress.fates.get(Fate.DONE, 0) >= order.count

    def _ticked(self) -> Iterator[Callable[[], None]]:
        for token in list(self._order.tokens)[self.progress.passed :]:
            yield partial(self._token, token)

    def _all(self) -> Iterator[Callable[[], None]]:
        """Yield a step for each row that is meant, and one for each page."""
        order, before = self._order, self._moves_up()
        pages = walk(
            self._visit,
            order.place,
            order.asked,
            match=meant(self._visit, order),
            shard=self.progress.shard,
            cursor=self.progress.cursor,
            before=before,
        )
        for shard, page in pages:
            for row in reversed(page.rows) if before else page.rows:
                yield partial(self._row, row)
            last = {"shard": shard, "cursor": page.end} if page.end else {"shard": shard + 1, "cursor": None}
            yield partial(self._pass, last)

    def _moves_up(self) -> bool:
        """Whether rows go to a later place of the same list: from the end on, none is met twice."""
        wish = self._order.wish
        return self._order.place.ahead and (wish.get("shift_us", 0) > 0 or "due_us" in wish)

    def _token(self, token: Token) -> None:
        self._one(*token, passed=self.progress.passed + 1)

    def _row(self, row: Row) -> None:
        self._one(row.raw_id, row.shard, row.moment_us, cursor=row.cursor)

    def _pass(self, where: dict[str, Any]) -> None:
        self.progress = replace(self.progress, **where)

    def _one(self, raw_id: bytes, shard: int, moment_us: int, **passed: Any) -> None:
        visit, fate = self._visit, Fate.MISSED
        # The token of a ticked row is signed only as a whole: its shard may be any.
        if shard < visit.store.config.shards:
            target = Target(raw_id, moment_us, visit.now_us)
            fate = self._order.deed.carry_out(visit.store.operations(shard), target, self._order.wish)
        if fate is Fate.DONE:
            self.done.append((raw_id, shard))
        fates = {**self.progress.fates, fate.value: self.progress.fates.get(fate, 0) + 1}
        self.progress = replace(self.progress, fates=fates, **passed)


def meant(visit: Visit, order: Order) -> Callable[[Row], bool] | None:
    """Return what says whether a row is meant: it matches, and was there when the person looked."""
    place, seen_us = order.place, order.seen_us
    match = order.asked.match(visit.config.redact, by_queue=not place.by_queue)
    if place is DEAD:
        return match
    moved_to = order.wish.get("due_us"), order.wish.get("queue")

    def is_meant(row: Row) -> bool:
        return (
            # Its enqueuer's clock; nothing else tells since when a job waits.
            created_us(row.raw_id) <= seen_us
            and (place is not READY or (row.due_us or 0) <= seen_us + _MS_US)
            and row.due_us != moved_to[0]
            and row.queue != moved_to[1]
            and _back_since(row) <= seen_us
            and (match is None or match(row))
        )

    return is_meant


def _back_since(row: Row) -> int:
    """Return when a job that ran came back to wait; of a lapsed lease nobody saw the end, and it was due at once."""
    if not row.attempts.history:
        return 0
    ended_us = row.attempts.history[-1].get("ended_us")
    return int((row.due_us or 0) if ended_us is None else ended_us)
