"""Toggles: a queue is paused or resumed, a worker is quieted or resumed; each is confirmed on a page first."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_delayq.admin import audit_log
from django_delayq.admin.actions.forms import ActionForm, PauseForm
from django_delayq.admin.actions.messages import parameters_text
from django_delayq.admin.filters import from_url_name
from django_delayq.admin.page import PageContext
from django_delayq.display.text import printable
from django_delayq.store.operations.worker_control import WorkerControl


@dataclass(frozen=True, slots=True, kw_only=True)
class Toggle:
    """One direction of a toggle."""

    #: The form field that names the subject, "queue" or "worker", and the page that lists those.
    subject: str
    tab: str
    confirm_text: Any
    explanation: Any
    button: Any
    success_text: Any
    unchanged_text: Any
    #: The form on the confirm page.
    form_class: type[ActionForm] = ActionForm
    #: Takes the queue's name or the worker's id, the person's name and the parameters of the form; returns False if
    #: nothing changed.
    apply: Callable[[WorkerControl, Any, str, Mapping[str, Any]], bool]


TOGGLES = {
    "pause": Toggle(
        subject="queue",
        tab="queues",
        confirm_text=_("Pause queue %s?"),
        explanation=_("No worker takes its jobs until the pause ends, also after restarts. Running jobs continue."),
        button=_("Pause it"),
        success_text=_("Paused queue %s"),
        unchanged_text=_("Queue %s was paused already"),
        form_class=PauseForm,
        apply=lambda workers, queue, by, parameters: workers.pause(queue, by=by, until_us=parameters.get("until_us")),
    ),
    "resume": Toggle(
        subject="queue",
        tab="queues",
        confirm_text=_("Resume queue %s?"),
        explanation=_("Workers take its jobs again at once."),
        button=_("Resume it"),
        success_text=_("Resumed queue %s"),
        unchanged_text=_("Queue %s was not paused"),
        apply=lambda workers, queue, by, _: workers.resume(queue),
    ),
    "quiet": Toggle(
        subject="worker",
        tab="processes",
        confirm_text=_("Quiet worker %s?"),
        explanation=_("It finishes its running jobs and takes no more. This takes effect at once."),
        button=_("Quiet it"),
        success_text=_("Asked worker %s to take no more jobs"),
        unchanged_text=_("Worker %s was asked already"),
        apply=lambda workers, worker_id, by, _: workers.quiet(worker_id, by=by),
    ),
    "unquiet": Toggle(
        subject="worker",
        tab="processes",
        confirm_text=_("Let worker %s take jobs again?"),
        explanation=_("This takes effect at once."),
        button=_("Let it work"),
        success_text=_("Let worker %s take jobs again"),
        unchanged_text=_("Worker %s was not asked to be quiet"),
        apply=lambda workers, worker_id, by, _: workers.unquiet(worker_id),
    ),
}


def show(page: PageContext) -> HttpResponse:
    """Show the confirm page; once confirmed, apply the toggle on every shard."""
    post, name = page.request.POST, page.request.POST["action"]
    toggle = TOGGLES[name]
    back = HttpResponseRedirect(page.url(toggle.tab))
    subject, display_name = _subject(page, toggle.subject)
    if subject is None:
        messages.warning(page.request, gettext("It is not there any more. Nothing was done."))
        return back
    confirmed = "confirmed" in post
    form = toggle.form_class(post if confirmed else None, page=page)
    if not (confirmed and form.is_valid()):
        return page.render(
            "confirm.html",
            tab=toggle.tab,
            title=toggle.confirm_text % display_name,
            button=toggle.button,
            explanation=toggle.explanation,
            rows=(),
            destructive=False,
            form=form,
            fields={"action": name, toggle.subject: post[toggle.subject], "confirmed": "yes"},
            cancel_url=back.url,
            zone=str(page.timezone),
        ).render()
    by, changed = page.request.user.get_username(), False
    try:
        for shard in range(page.store.config.shards):
            changed |= bool(toggle.apply(page.store.operations(shard).workers, subject, by, form.cleaned_data))
    finally:
        # Also if Redis fails at a later shard: the change of the first ones is recorded.
        if changed:
            audit_log.record(page.request, name, _done(toggle, display_name, form), object_id=display_name)
    if changed:
        messages.success(page.request, _done(toggle, display_name, form, page.timezone) + ".")
    else:
        messages.warning(page.request, toggle.unchanged_text % display_name + ".")
    return back


def _done(toggle: Toggle, display_name: str, form: ActionForm, zone: tzinfo = UTC) -> str:
    return " ".join(filter(None, (toggle.success_text % display_name, parameters_text(form.cleaned_data, zone))))


def _subject(page: PageContext, field: str) -> tuple[str | bytes | None, str]:
    """Return the queue, or the worker's id, that the form names, and its printable name; (None, "") if it is gone."""
    text = page.request.POST.get(field, "")
    if field == "worker":
        for process in page.snapshot.processes:
            if process.kind == "worker" and process.code.hex() == text:
                return process.code, printable(process.name or text)
        return None, ""
    try:
        queue = from_url_name(text)
    except ValueError:
        return None, ""
    return (queue, printable(queue)) if queue in page.snapshot.queues else (None, "")
