"""Schedule list: which recurring schedules a page of the list shows, and the query string for it.

Redis keeps schedules in no order, and there may be a million. So a page reads one batch of them, sorts it, and shows a
part of it; the next page continues there.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil
from operator import attrgetter
from typing import Any, NamedTuple, Self

from django.utils.http import urlencode
from django.utils.translation import gettext

from django_delayq import runtime
from django_delayq.admin.lists.filters import SIZES, from_url_name, url_name
from django_delayq.admin.page import PageContext
from django_delayq.display.text import printable
from django_delayq.store.client.reading import Reading
from django_delayq.store.queries.job_filter import names_match
from django_delayq.store.schedules.schedule_filter import ScheduleFilter
from django_delayq.store.schedules.schedules import ScheduleBatch
from django_delayq.store.schedules.stored_schedule import ScheduleState, StoredSchedule
from django_delayq.task import registry

#: About how many schedules a page without a filter reads. Most projects have fewer, so that the list is sorted.
_BATCH = 250
_POSITION = re.compile(r"([0-9]{1,4})\.([0-9]{1,20})\.([0-9]{1,5})")
_LAST_CURSOR = 2**64 - 1


class Position(NamedTuple):
    """Where a page begins: the shard and the cursor of its batch, and how many schedules of it come before."""

    shard: int = 0
    cursor: int = 0
    skipped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ListRequest:
    """A filter, and a position in the list."""

    filter: ScheduleFilter
    count: int = SIZES[1]
    position: Position = Position()
    #: Messages about invalid parameters.
    errors: tuple[str, ...] = ()

    @classmethod
    def read(cls, query: Mapping[str, Any]) -> Self:
        """Read a query string. Invalid parameters are ignored and reported."""
        errors: list[str] = []
        readers: dict[str, Any] = {
            "task": from_url_name,
            "prefix": from_url_name,
            "state": ScheduleState,
            "n": _read_count,
            "after": _read_position,
        }
        found: dict[str, Any] = {}
        for name, read in readers.items():
            # Not stripped: a name may begin with a space.
            if text := str(query.get(name, "")):
                try:
                    found[name] = read(text)
                except ValueError:
                    facts = {"name": name, "value": printable(text[:40])}
                    errors.append(gettext("“%(name)s” is not understood: %(value)s") % facts)
        wanted = ScheduleFilter(
            task=found.get("task", "").strip(), prefix=found.get("prefix", ""), state=found.get("state")
        )
        position, count = found.get("after", Position()), found.get("n", SIZES[1])
        return cls(filter=wanted, count=count, position=position, errors=tuple(errors))

    def query(self, **changes: Any) -> str:
        """Return the query string of this request with changes, for `read`."""
        changed = replace(self, **changes)
        pairs = {
            "task": url_name(changed.filter.task) if changed.filter.task else "",
            "prefix": url_name(changed.filter.prefix) if changed.filter.prefix else "",
            "state": changed.filter.state or "",
            "n": changed.count if changed.count != SIZES[1] else "",
            "after": ".".join(map(str, changed.position)) if changed.position != Position() else "",
        }
        return urlencode({name: value for name, value in pairs.items() if value})


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePage:
    """The schedules of one page, by task and name; those that cannot be read come first."""

    schedules: list[StoredSchedule]
    #: How many were read, and how many there are.
    scanned: int
    total: int
    #: Where the next page begins; None: this is the last one.
    next_position: Position | None
    #: Numbers of the first and the last one among all, from 1; None if they are not known.
    numbers: tuple[int, int] | None
    #: Entries among those read that are no records of schedules.
    damaged: int


def read(page: PageContext, wanted: ListRequest) -> SchedulePage:
    """Read one page: two round trips, and one more if the filter names one schedule.

    With several shards that are filled unevenly a few more.
    """
    start, shards = wanted.position, len(page.store.shard_numbers())
    size = runtime.current().bounds.scanned_rows // 2 if wanted.filter.is_set else _BATCH
    ahead = _first_batches(page, start, size)
    # By their ids: a batch may repeat one.
    found, damaged, shard, cursor = dict[bytes, StoredSchedule](), 0, start.shard, start.cursor
    # Most entries of a table may be deleted, so that a batch is empty.
    for _ in range(shards + 1):
        if shard >= shards or len(found) >= size:
            break
        if shard not in page.answering:
            shard, cursor = shard + 1, 0
            continue
        batch = ahead.pop(shard, None) or page.store.schedules(shard).scan_batch(cursor, count=size - len(found))
        found |= {each.id: each for each in batch.schedules}
        damaged += batch.damaged
        shard, cursor = (shard, batch.next_cursor) if batch.next_cursor is not None else (shard + 1, 0)
    now_us, at_end = page.now_us, shard >= shards
    matching = sorted(
        (each for each in found.values() if wanted.filter.matches(each, now_us=now_us)), key=attrgetter("sort_key")
    )
    shown = matching[start.skipped : start.skipped + wanted.count]
    next_position = None if at_end else Position(shard, cursor)
    if len(matching) > start.skipped + wanted.count:
        next_position = start._replace(skipped=start.skipped + wanted.count)
    is_first = start == Position()
    if is_first and not at_end and wanted.filter.task and wanted.filter.prefix:
        exact = _find(page, wanted.filter)
        shown = [*exact, *(each for each in shown if each.id not in {one.id for one in exact})]
    numbers = None
    if at_end and start[:2] == (0, 0) and not wanted.filter.is_set:
        numbers = start.skipped + 1, start.skipped + len(shown)
    return SchedulePage(
        schedules=shown,
        scanned=len(found),
        total=max(page.snapshot.schedules, len(found)),
        next_position=next_position,
        numbers=numbers,
        damaged=damaged,
    )


def _first_batches(page: PageContext, start: Position, size: int) -> dict[int, ScheduleBatch]:
    """Return the first batch of each shard that a page probably needs, by shard: they have about equal shares."""
    shards = len(page.store.shard_numbers())
    number = ceil(size * shards / max(1, page.snapshot.schedules))

    def of_shard(shard: int) -> Reading[ScheduleBatch]:
        return page.store.schedules(shard).read_batch(start.cursor if shard == start.shard else 0, count=size)

    return page.reads.read(of_shard, range(start.shard, min(shards, start.shard + number)))


def _find(page: PageContext, wanted: ScheduleFilter) -> list[StoredSchedule]:
    """Return the schedules whose name is the prefix, of the tasks that this process knows by the filter's text."""
    tasks = {wanted.task.removeprefix("="), *(name for name in registry.names() if names_match(name, wanted.task))}
    found = page.store.find_schedules(tasks, wanted.prefix, reads=page.reads)
    return sorted((each for each in found if wanted.matches(each, now_us=page.now_us)), key=attrgetter("sort_key"))


def _read_count(text: str) -> int:
    if text not in map(str, SIZES):
        raise ValueError("not one of the sizes")
    return int(text)


def _read_position(text: str) -> Position:
    found = _POSITION.fullmatch(text)
    if found is None or int(found[2]) > _LAST_CURSOR:
        raise ValueError("not a position")
    return Position(*map(int, found.groups()))
