"""Alerts: what somebody should look at now, worst first, each with the page to look at."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from django_delayq.admin.arguments import printable
from django_delayq.admin.page import PageContext
from django_delayq.clock import SECOND_US
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.task import registry
from django_delayq.templatetags.delayq import duration_text, grouped

#: How long a due task may wait to be moved before something is wrong.
_OVERDUE_US = 60 * SECOND_US
#: Names told in one alert.
_NAMES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One thing that is wrong."""

    text: str
    #: Where to look, and what that is called; empty where no page of ours helps.
    url: str = ""
    link: str = ""
    #: Nothing moves, rather than: something will go wrong.
    severe: bool = False


def alerts(visit: PageContext, rows: Sequence[JobRow] = ()) -> list[Alert]:
    """Return what is wrong by the snapshot and the rows that the page shows anyway."""
    return [*_processes(visit), *_queues(visit), *_server(visit), *_unknown(visit, rows)]


def _processes(visit: PageContext) -> Iterator[Alert]:
    now = visit.snapshot
    link: dict[str, Any] = {"url": visit.url("processes"), "link": _("Processes")}
    dispatchers = [each for each in now.processes if each.kind == "dispatcher"]
    if not any(each.kind == "dispatcher" for each in visit.alive):
        seen_us = max((each.seen_us for each in dispatchers), default=None)
        what = (
            _("No dispatcher has been seen for %s.") % duration_text(now.now_us - seen_us)
            if seen_us is not None
            else _("No dispatcher is running.")
        )
        helped = bool(visit.alive)
        so = (
            _("Workers move pending tasks in its place, later than it would.")
            if helped
            else _("Pending tasks are not moving.")
        )
        yield Alert(text=f"{what} {so}", severe=not helped, **link)
    lost = [each for each in now.processes if each.kind == "worker" and each.busy and each not in visit.alive]
    for each in lost:
        text = ngettext(
            "Worker %(name)s has been silent for %(time)s and holds %(count)s task.",
            "Worker %(name)s has been silent for %(time)s and holds %(count)s tasks.",
            each.busy,
        )
        facts = {
            "name": printable(each.name) or each.code.hex(),
            "time": duration_text(now.now_us - each.seen_us),
            "count": grouped(each.busy),
        }
        yield Alert(text=text % facts, **link)
    unserved = [name for name, queue in now.queues.items() if queue.ready and not visit.workers_of(name)]
    if unserved:
        text = ngettext(
            "No worker takes tasks from queue %(names)s, where tasks are ready.",
            "No worker takes tasks from queues %(names)s, where tasks are ready.",
            len(unserved),
        )
        yield Alert(text=text % {"names": _list(unserved)}, severe=True, **link)


def _queues(visit: PageContext) -> Iterator[Alert]:
    now = visit.snapshot
    for name, queue in now.queues.items():
        waiting = queue.ready + queue.overdue
        if queue.paused and waiting:
            facts = {"queue": printable(name), "by": printable(queue.paused.by), "count": grouped(waiting)}
            text = ngettext(
                "Queue %(queue)s is paused by %(by)s, and %(count)s task waits in it.",
                "Queue %(queue)s is paused by %(by)s, and %(count)s tasks wait in it.",
                waiting,
            )
            yield Alert(text=text % facts, url=visit.url("queues"), link=_("Queues"))
    oldest = now.total.oldest_overdue_us
    if oldest is not None and now.now_us - oldest > _OVERDUE_US:
        text = _("The oldest overdue task should have been moved %s ago.") % duration_text(now.now_us - oldest)
        yield Alert(text=text, url=visit.url("pending", within="overdue"), link=_("Overdue tasks"), severe=True)


def _server(visit: PageContext) -> Iterator[Alert]:
    server = visit.snapshot.server
    if server and server.policy and server.policy != "noeviction":
        yield Alert(
            text=_("Redis may throw away tasks when its memory is full: its maxmemory-policy is %s, not noeviction.")
            % server.policy,
            url=visit.url("processes"),
            link=_("Processes"),
            severe=True,
        )
    if visit.skewed:
        yield Alert(
            text=_("Redis's clock and this server's are %s apart: moments given by the server come that much off.")
            % duration_text(visit.skew_us),
            url=visit.url("processes"),
            link=_("Processes"),
        )


def _unknown(visit: PageContext, rows: Sequence[JobRow]) -> Iterator[Alert]:
    met = {row.task for row in rows} | {queue.next_task for queue in visit.snapshot.queues.values()}
    names = sorted(name for name in met if name and registry.find(name) is None)
    if names:
        text = ngettext(
            "Tasks wait or died whose function is not registered in this process: %s.",
            "Tasks wait or died whose functions are not registered in this process: %s.",
            len(names),
        )
        yield Alert(
            text=text % _list(names),
            url=visit.url("functions"),
            link=_("Functions"),
        )


def _list(names: Sequence[str]) -> str:
    more = "" if len(names) <= _NAMES else "…"
    return ", ".join(printable(name) for name in names[:_NAMES]) + more
