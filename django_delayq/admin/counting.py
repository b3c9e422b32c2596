"""Counting: how many jobs an order is about, and the first of them, for the page that asks whether it is meant."""

from dataclasses import replace
from time import monotonic

from django_delayq.admin import places
from django_delayq.admin.carrying import meant
from django_delayq.admin.filters import SIZES
from django_delayq.admin.orders import Order, Token
from django_delayq.admin.rows import Line
from django_delayq.admin.visit import Visit
from django_delayq.store.rows import Row

#: Rows told of; seconds for counting those that match.
_FIRST, _SECONDS = 5, 1.0


def counted_order(visit: Visit, order: Order) -> tuple[Order, list[str]]:
    """Return the order with the number of its jobs, and the first of them in words."""
    if order.ticked:
        lines = [_looked_up(visit, token) for token in list(order.tokens)[:_FIRST]]
    else:
        order, first = _looked_through(visit, order)
        lines = [Line(row, visit.config.redact) for row in first]
    told = [" ".join(filter(None, (line.short_id, line.call, str(line.failure)))) for line in lines if line]
    return order, told + ["…"] * (order.count > _FIRST)


def _looked_up(visit: Visit, token: Token) -> Line | None:
    """Return a ticked row as it is now; nothing where it is gone."""
    if token.shard >= visit.store.config.shards:
        return None
    found = visit.store.inspection(token.shard).find(token.raw_id)
    return None if found.ended else Line.of(found, visit.config.redact)


def _looked_through(visit: Visit, order: Order) -> tuple[Order, list[Row]]:
    place, asked = order.place, replace(order.asked, count=SIZES[0])
    if asked.match(visit.config.redact, by_queue=not place.by_queue) is None:
        listing = places.read(visit, place, asked)
        return replace(order, count=listing.total), listing.rows[:_FIRST]
    first: list[Row] = []
    count, until = 0, monotonic() + _SECONDS
    for _shard, page in places.walk(visit, place, asked, match=meant(visit, order), before=place.newest_first):
        first += page.rows[::-1] if place.newest_first else page.rows
        del first[_FIRST:]
        count += len(page.rows)
        if monotonic() > until:
            return replace(order, count=count, counted=False), first
    return replace(order, count=count), first
