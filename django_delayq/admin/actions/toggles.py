"""Switches: what is turned off and on for a whole queue or a worker: pause and resume, quiet and back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_delayq.admin import audit_log
from django_delayq.admin.arguments import printable
from django_delayq.admin.filters import from_url_name
from django_delayq.admin.page import PageContext
from django_delayq.store.operations import Operations


@dataclass(frozen=True, slots=True, kw_only=True)
class Toggle:
    """One way to turn one."""

    #: What it is about, as the form calls it: a queue or a worker; and the list of those.
    of: str
    tab: str
    confirm_text: Any
    explanation: Any
    button: Any
    success_text: Any
    unchanged_text: Any
    #: With the queue's name, or the worker's code, and the person's name.
    apply: Callable[[Operations, Any, str], bool]


TOGGLES = {
    "pause": Toggle(
        of="queue",
        tab="queues",
        confirm_text=_("Pause queue %s?"),
        explanation=_("No worker takes its tasks until it is resumed, also after restarts. What runs is not stopped."),
        button=_("Pause it"),
        success_text=_("Paused queue %s"),
        unchanged_text=_("Queue %s was paused already"),
        apply=lambda operations, queue, by: operations.pause(queue, by=by),
    ),
    "resume": Toggle(
        of="queue",
        tab="queues",
        confirm_text=_("Resume queue %s?"),
        explanation=_("Workers take its tasks again, at once."),
        button=_("Resume it"),
        success_text=_("Resumed queue %s"),
        unchanged_text=_("Queue %s was not paused"),
        apply=lambda operations, queue, by: operations.resume(queue),
    ),
    "quiet": Toggle(
        of="worker",
        tab="processes",
        confirm_text=_("Quiet worker %s?"),
        explanation=_("It takes no more tasks, and ends what it runs. It hears of it within 15 seconds."),
        button=_("Quiet it"),
        success_text=_("Asked worker %s to take no more tasks"),
        unchanged_text=_("Worker %s was asked already"),
        apply=lambda operations, code, by: operations.quiet(code, by=by),
    ),
    "unquiet": Toggle(
        of="worker",
        tab="processes",
        confirm_text=_("Let worker %s take tasks again?"),
        explanation=_("It hears of it within 15 seconds."),
        button=_("Let it work"),
        success_text=_("Let worker %s take tasks again"),
        unchanged_text=_("Worker %s was not asked to be quiet"),
        apply=lambda operations, code, by: operations.unquiet(code),
    ),
}


def show(visit: PageContext) -> HttpResponse:
    """Ask whether it is meant; do it where that was answered."""
    post = visit.request.POST
    name = post["deed"]
    switch = TOGGLES[name]
    subject = _subject(visit, switch.of)
    if subject is None:
        messages.warning(visit.request, gettext("It is not there any more. Nothing was done."))
        return HttpResponseRedirect(visit.url(switch.tab))
    of, shown = subject
    shown = printable(shown)
    if "sure" not in post:
        return visit.render(
            "confirm.html",
            tab=switch.tab,
            title=switch.confirm_text % shown,
            button=switch.button,
            about=switch.explanation,
            fields={"deed": name, switch.of: post[switch.of], "sure": "yes"},
            cancel_url=visit.url(switch.tab),
        ).render()
    by = visit.request.user.get_username()
    shards = range(visit.store.config.shards)
    turned: list[bool] = []
    try:
        for shard in shards:
            turned.append(bool(switch.apply(visit.store.operations(shard), of, by)))
    finally:
        # Also where Redis failed on the way: what is done is done.
        if any(turned):
            audit_log.record(visit.request, name, str(switch.success_text % shown), object_id=shown)
    told, level = (switch.success_text, messages.SUCCESS) if any(turned) else (switch.unchanged_text, messages.WARNING)
    messages.add_message(visit.request, level, told % shown + ".")
    return HttpResponseRedirect(visit.url(switch.tab))


def _subject(visit: PageContext, of: str) -> tuple[str | bytes, str] | None:
    """Return the queue or the worker's code that the form names, and what people call it; None for none there is."""
    text = visit.request.POST.get(of, "")
    if of == "worker":
        found = (process for process in visit.snapshot.processes if process.code.hex() == text)
        return next(((process.code, process.name or text) for process in found if process.kind == "worker"), None)
    try:
        queue = from_url_name(text)
    except ValueError:
        return None
    return (queue, queue) if queue in visit.snapshot.queues else None
