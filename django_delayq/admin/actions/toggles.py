"""Switches: what is turned off and on for a whole queue or a worker: pause and resume, quiet and back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_delayq.admin import audit_log
from django_delayq.admin.arguments import visible
from django_delayq.admin.context import Visit
from django_delayq.admin.filters import name_of
from django_delayq.store.operations import Operations


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """One way to turn one."""

    #: What it is about, as the form calls it: a queue or a worker; and the list of those.
    of: str
    tab: str
    question: Any
    explained: Any
    button: Any
    done: Any
    already: Any
    #: With the queue's name, or the worker's code, and the person's name.
    turn: Callable[[Operations, Any, str], bool]


SWITCHES = {
    "pause": Switch(
        of="queue",
        tab="queues",
        question=_("Pause queue %s?"),
        explained=_("No worker takes its tasks until it is resumed, also after restarts. What runs is not stopped."),
        button=_("Pause it"),
        done=_("Paused queue %s"),
        already=_("Queue %s was paused already"),
        turn=lambda operations, queue, by: operations.pause(queue, by=by),
    ),
    "resume": Switch(
        of="queue",
        tab="queues",
        question=_("Resume queue %s?"),
        explained=_("Workers take its tasks again, at once."),
        button=_("Resume it"),
        done=_("Resumed queue %s"),
        already=_("Queue %s was not paused"),
        turn=lambda operations, queue, by: operations.resume(queue),
    ),
    "quiet": Switch(
        of="worker",
        tab="processes",
        question=_("Quiet worker %s?"),
        explained=_("It takes no more tasks, and ends what it runs. It hears of it within 15 seconds."),
        button=_("Quiet it"),
        done=_("Asked worker %s to take no more tasks"),
        already=_("Worker %s was asked already"),
        turn=lambda operations, code, by: operations.quiet(code, by=by),
    ),
    "unquiet": Switch(
        of="worker",
        tab="processes",
        question=_("Let worker %s take tasks again?"),
        explained=_("It hears of it within 15 seconds."),
        button=_("Let it work"),
        done=_("Let worker %s take tasks again"),
        already=_("Worker %s was not asked to be quiet"),
        turn=lambda operations, code, by: operations.unquiet(code),
    ),
}


def show(visit: Visit) -> HttpResponse:
    """Ask whether it is meant; do it where that was answered."""
    post = visit.request.POST
    name = post["deed"]
    switch = SWITCHES[name]
    subject = _subject(visit, switch.of)
    if subject is None:
        messages.warning(visit.request, gettext("It is not there any more. Nothing was done."))
        return HttpResponseRedirect(visit.url(switch.tab))
    of, shown = subject
    shown = visible(shown)
    if "sure" not in post:
        return visit.render(
            "confirm.html",
            tab=switch.tab,
            title=switch.question % shown,
            button=switch.button,
            about=switch.explained,
            fields={"deed": name, switch.of: post[switch.of], "sure": "yes"},
            cancel_url=visit.url(switch.tab),
        ).render()
    by = visit.request.user.get_username()
    shards = range(visit.store.config.shards)
    turned: list[bool] = []
    try:
        for shard in shards:
            turned.append(bool(switch.turn(visit.store.operations(shard), of, by)))
    finally:
        # Also where Redis failed on the way: what is done is done.
        if any(turned):
            audit_log.note(visit.request, name, str(switch.done % shown), object_id=shown)
    told, level = (switch.done, messages.SUCCESS) if any(turned) else (switch.already, messages.WARNING)
    messages.add_message(visit.request, level, told % shown + ".")
    return HttpResponseRedirect(visit.url(switch.tab))


def _subject(visit: Visit, of: str) -> tuple[str | bytes, str] | None:
    """Return the queue or the worker's code that the form names, and what people call it; None for none there is."""
    text = visit.request.POST.get(of, "")
    if of == "worker":
        found = (process for process in visit.snapshot.processes if process.code.hex() == text)
        return next(((process.code, process.name or text) for process in found if process.kind == "worker"), None)
    try:
        queue = name_of(text)
    except ValueError:
        return None
    return (queue, queue) if queue in visit.snapshot.queues else None
