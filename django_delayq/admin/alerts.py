"""Alerts: problems that need attention now, each with a link to the page about it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.formats import date_format
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_delayq.admin.page import PageContext
from django_delayq.clock import SECOND_US
from django_delayq.display.text import printable
from django_delayq.exceptions import address_of
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.store.schedules.stored_schedule import ScheduleState
from django_delayq.task import registry
from django_delayq.templatetags.delayq import duration_text, grouped, zoned

#: How long a due job may wait for its promotion.
_OVERDUE_US = 60 * SECOND_US
#: Most names in one alert.
_MAX_NAMES = 5
#: What the documentation says about some of them.
_NOTHING_RUNS = address_of("troubleshooting#nothing-runs")
_EVICTION = address_of("troubleshooting#redis-may-evict-jobs")
_UNKNOWN = address_of("troubleshooting#a-task-is-unknown")
_LATE = address_of("troubleshooting#jobs-start-late")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One problem."""

    text: str
    #: The page about it and its title; empty if no page helps.
    url: str = ""
    link: str = ""
    #: The address of what the documentation says about it; empty if it says no more.
    help: str = ""
    #: True: jobs do not run. False: something may go wrong.
    severe: bool = False


def alerts(page: PageContext, rows: Sequence[JobRow] = (), *, late_us: int | None = None) -> list[Alert]:
    """Return the problems in the snapshot and in rows that the page read anyway, the severe ones first.

    `late_us`: since when jobs are expected to start late. It makes no round trip of its own.
    """
    found = [
        *_processes(page),
        *_queues(page),
        *_server(page),
        *layout_alerts(page),
        *_schedules(page),
        *_unknown_tasks(page, rows),
    ]
    if late_us is not None:
        at = date_format(zoned(late_us, page.timezone), "D H:i")
        text = _("Jobs that are due from %s on are expected to start late.") % at
        found.append(Alert(text=text, url=page.url("coming"), link=_("Coming due"), help=_LATE))
    return sorted(found, key=lambda alert: not alert.severe)


def _processes(page: PageContext) -> Iterator[Alert]:
    now, link = page.snapshot, _link_to_processes(page)
    dispatchers = [each for each in now.processes if each.kind == "dispatcher"]
    if not any(each.kind == "dispatcher" for each in page.alive):
        seen_us = max((each.seen_us for each in dispatchers), default=None)
        problem = (
            _("No dispatcher has been seen for %s.") % duration_text(now.now_us - seen_us)
            if seen_us is not None
            else _("No dispatcher is running.")
        )
        workers_promote = bool(page.alive)
        effect = (
            _("Workers make due jobs ready in its place, but later.")
            if workers_promote
            else _("Due jobs do not become ready.")
        )
        yield Alert(text=f"{problem} {effect}", severe=not workers_promote, help=_NOTHING_RUNS, **link)
    lost = [each for each in now.processes if each.kind == "worker" and each.busy and each not in page.alive]
    for each in lost:
        text = ngettext(
            "Worker %(name)s has been silent for %(time)s and holds %(count)s job.",
            "Worker %(name)s has been silent for %(time)s and holds %(count)s jobs.",
            each.busy,
        )
        facts = {
            "name": printable(each.name) or each.code.hex(),
            "time": duration_text(now.now_us - each.seen_us),
            "count": grouped(each.busy),
        }
        yield Alert(text=text % facts, **link)
    unserved = [name for name, queue in now.queues.items() if queue.ready and not page.workers_of(name)]
    if unserved:
        text = ngettext(
            "Jobs are ready in queue %(names)s, but no worker takes them.",
            "Jobs are ready in queues %(names)s, but no worker takes them.",
            len(unserved),
        )
        yield Alert(text=text % {"names": _joined(unserved)}, severe=True, help=_NOTHING_RUNS, **link)


def _queues(page: PageContext) -> Iterator[Alert]:
    now = page.snapshot
    for name, queue in now.queues.items():
        waiting = queue.ready + queue.overdue
        if queue.paused and waiting:
            facts = {"queue": printable(name), "by": printable(queue.paused.by), "count": grouped(waiting)}
            text = ngettext(
                "Queue %(queue)s is paused by %(by)s, and %(count)s job waits in it.",
                "Queue %(queue)s is paused by %(by)s, and %(count)s jobs wait in it.",
                waiting,
            )
            yield Alert(text=text % facts, url=page.url("queues"), link=_("Queues"))
    oldest = now.total.oldest_overdue_us
    if oldest is not None and now.now_us - oldest > _OVERDUE_US:
        text = _("The oldest overdue job was due %s ago.") % duration_text(now.now_us - oldest)
        url = page.url("scheduled", within="overdue")
        yield Alert(text=text, url=url, link=_("Overdue jobs"), help=_NOTHING_RUNS, severe=True)


def _server(page: PageContext) -> Iterator[Alert]:
    servers, link = page.snapshot.servers, _link_to_servers(page)
    for address, server in servers.items():
        if server.policy and server.policy != "noeviction":
            text = _("Redis may delete jobs when its memory is full: its maxmemory-policy is %s, not noeviction.")
            place = f"{printable(address)}: " if len(servers) > 1 else ""
            yield Alert(text=place + text % server.policy, severe=True, help=_EVICTION, **link)
    if page.skewed:
        text = _("The clocks of Redis and this server differ by %s, and so do moments that this server computes.")
        yield Alert(text=text % duration_text(page.skew_us), help=_LATE, **link)


def layout_alerts(page: PageContext) -> Iterator[Alert]:
    """Yield what is under way with the number of shards, each with the command that goes on with it."""
    layout, link = page.store.layout, _link_to_servers(page)
    shards, setting = layout.shards, page.store.config.shards
    if not layout.is_finished:
        text = _("The number of shards changes from %(old)s to %(new)s, and something may be left in the old places.")
        more = _("Run delayq_shards --finish until nothing is left.")
        if layout.draining:
            more = _("Shards %(numbers)s get no new jobs: run delayq_shards --shrink %(new)s until they are dropped.")
        facts = {
            "old": ", ".join(map(str, layout.older)),
            "new": shards,
            "numbers": ", ".join(map(str, layout.draining)),
        }
        yield Alert(text=f"{text % facts} {more % facts}", **link)
    if layout.coming:
        text = _(
            "%(coming)s shards are announced, but only %(shards)s get jobs: run delayq_shards --grow %(coming)s again, "
            "or --shrink %(shards)s to take that back."
        )
        yield Alert(text=text % {"coming": layout.coming, "shards": shards}, **link)
    if layout.moves_schedules:
        text = _("Recurring schedules are being moved, and none is declared meanwhile: run delayq_shards --finish.")
        yield Alert(text=text, **link)
    if setting in layout.past:
        text = _("SHARDS is %(setting)s, but there are %(shards)s shards: set it to %(shards)s with the next deploy.")
        yield Alert(text=text % {"setting": setting, "shards": shards}, **link)


def _schedules(page: PageContext) -> Iterator[Alert]:
    """Yield what is wrong with recurring schedules; nothing if there are many, which nobody counts."""
    now = page.snapshot
    texts = {
        ScheduleState.PAUSED: ngettext(
            "%(count)s recurring schedule is paused, because its jobs failed.",
            "%(count)s recurring schedules are paused, because their jobs failed.",
            now.failing_schedules,
        ),
        ScheduleState.UNREADABLE: ngettext(
            "%(count)s recurring schedule cannot be read, so none of its jobs is enqueued.",
            "%(count)s recurring schedules cannot be read, so none of their jobs is enqueued.",
            now.unreadable_schedules,
        ),
    }
    counts = {ScheduleState.PAUSED: now.failing_schedules, ScheduleState.UNREADABLE: now.unreadable_schedules}
    for state, count in counts.items():
        if count:
            text, url = texts[state] % {"count": grouped(count)}, page.url("recurring", state=state)
            yield Alert(text=text, url=url, link=_("Recurring schedules"), severe=True)


def _unknown_tasks(page: PageContext, rows: Sequence[JobRow]) -> Iterator[Alert]:
    names_met = {row.task for row in rows} | {queue.next_task for queue in page.snapshot.queues.values()}
    names = sorted(name for name in names_met if name and registry.find(name) is None)
    if names:
        text = ngettext(
            "Waiting or failed jobs have a task that is not registered in this process: %s.",
            "Waiting or failed jobs have tasks that are not registered in this process: %s.",
            len(names),
        )
        yield Alert(text=text % _joined(names), url=page.url("tasks"), link=_("Tasks"), help=_UNKNOWN)


def _link_to_processes(page: PageContext) -> dict[str, Any]:
    return {"url": page.url("processes"), "link": _("Workers & dispatchers")}


def _link_to_servers(page: PageContext) -> dict[str, Any]:
    return {"url": page.url("servers"), "link": _("Servers")}


def _joined(names: Sequence[str]) -> str:
    more = "" if len(names) <= _MAX_NAMES else "…"
    return ", ".join(printable(name) for name in names[:_MAX_NAMES]) + more
