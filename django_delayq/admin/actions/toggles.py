"""Toggles: a queue, tenant or task is paused or resumed, a worker is quieted or resumed.

A POST does it at once, because it can be undone. A GET shows what it does, with a form for the end of a pause.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, tzinfo
from types import MappingProxyType
from typing import Any, NamedTuple

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_delayq.admin import audit_log
from django_delayq.admin.actions.forms import ActionForm, PauseForm
from django_delayq.admin.actions.messages import NOTHING_UNDONE, parameters_text, with_undo
from django_delayq.admin.lists.filters import from_url_name, url_name
from django_delayq.admin.page import PageContext
from django_delayq.display.text import printable
from django_delayq.exceptions import StoreError, StoreUnavailable
from django_delayq.store.digests import tenant_digest
from django_delayq.store.operations.operations import Operations
from django_delayq.store.queries.snapshot import Pause
from django_delayq.task import registry
from django_delayq.templatetags.delayq import sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Toggle:
    """One direction of a toggle."""

    #: The kind of its subject, "queue", "tenant", "task" or "worker", and the tab of the page that lists those.
    subject: str
    tab: str
    confirm_text: Any
    explanation: Any
    button: Any
    success_text: Any
    unchanged_text: Any
    #: The toggle of the other direction, which undoes it.
    opposite: str
    #: The form on the confirm page.
    form_class: type[ActionForm] = ActionForm
    #: Takes `Subject.value`, the person's name and the parameters of the form; returns False if nothing changed.
    apply: Callable[[Operations, Any, str, Mapping[str, Any]], bool]


TOGGLES = {
    "pause": Toggle(
        opposite="resume",
        subject="queue",
        tab="queues",
        confirm_text=_("Pause queue %s?"),
        explanation=_("No worker takes its jobs until the pause ends, also after restarts. Running jobs continue."),
        button=_("Pause it"),
        success_text=_("Paused queue %s"),
        unchanged_text=_("Queue %s was paused already"),
        form_class=PauseForm,
        apply=lambda operations, queue, by, parameters: operations.workers.pause(
            queue, by=by, until_us=parameters.get("until_us")
        ),
    ),
    "resume": Toggle(
        opposite="pause",
        subject="queue",
        tab="queues",
        confirm_text=_("Resume queue %s?"),
        explanation=_("Workers take its jobs again at once."),
        button=_("Resume it"),
        success_text=_("Resumed queue %s"),
        unchanged_text=_("Queue %s was not paused"),
        apply=lambda operations, queue, by, _: operations.workers.resume(queue),
    ),
    "pause_tenant": Toggle(
        opposite="resume_tenant",
        subject="tenant",
        tab="queues",
        confirm_text=_("Pause tenant %s?"),
        explanation=_("No worker takes its jobs from this queue until it is resumed. Running jobs continue."),
        button=_("Pause it"),
        success_text=_("Paused tenant %s"),
        unchanged_text=_("Tenant %s was paused already"),
        apply=lambda operations, tenant, by, _: operations.workers.pause_tenant(*tenant, by=by),
    ),
    "resume_tenant": Toggle(
        opposite="pause_tenant",
        subject="tenant",
        tab="queues",
        confirm_text=_("Resume tenant %s?"),
        explanation=_("Workers take its jobs again at once."),
        button=_("Resume it"),
        success_text=_("Resumed tenant %s"),
        unchanged_text=_("Tenant %s was not paused"),
        apply=lambda operations, tenant, by, _: operations.workers.resume_tenant(*tenant),
    ),
    "pause_task": Toggle(
        opposite="resume_task",
        subject="task",
        tab="tasks",
        confirm_text=_("Pause task %s?"),
        explanation=_(
            "Its jobs wait, in whichever queue they are, until it is resumed, also after restarts. Running jobs "
            "continue, and so do those that a worker has claimed already."
        ),
        button=_("Pause it"),
        success_text=_("Paused task %s"),
        unchanged_text=_("Task %s was paused already"),
        apply=lambda operations, names, by, _: operations.limits.pause_task(*names, by=by),
    ),
    "resume_task": Toggle(
        opposite="pause_task",
        subject="task",
        tab="tasks",
        confirm_text=_("Resume task %s?"),
        explanation=_("Workers take its jobs again at once."),
        button=_("Resume it"),
        success_text=_("Resumed task %s"),
        unchanged_text=_("Task %s was not paused"),
        apply=lambda operations, names, by, _: operations.limits.resume_task(*names),
    ),
    "quiet": Toggle(
        opposite="unquiet",
        subject="worker",
        tab="processes",
        confirm_text=_("Quiet worker %s?"),
        explanation=_("It finishes its running jobs and takes no more. This takes effect at once."),
        button=_("Quiet it"),
        success_text=_("Asked worker %s to take no more jobs"),
        unchanged_text=_("Worker %s is asked to take no more jobs already"),
        apply=lambda operations, worker_id, by, _: operations.workers.quiet(worker_id, by=by),
    ),
    "unquiet": Toggle(
        opposite="quiet",
        subject="worker",
        tab="processes",
        confirm_text=_("Let worker %s take jobs again?"),
        explanation=_("This takes effect at once."),
        button=_("Take jobs again"),
        success_text=_("Let worker %s take jobs again"),
        unchanged_text=_("Worker %s was not quiet"),
        apply=lambda operations, worker_id, by, _: operations.workers.unquiet(worker_id),
    ),
}


class Subject(NamedTuple):
    """The queue, tenant, task or worker that a form names."""

    #: The queue's name, the queue's and the tenant's name, the task's name and aliases, or the worker's id.
    value: Any
    display_name: str
    #: The form fields that name it.
    fields: Mapping[str, str]
    #: The page that lists it.
    url: str
    #: Since when it is paused, and until when, or that it is quiet, as text; empty if it is neither.
    state: str
    #: The shards in which a queue is paused, each with its pause.
    pauses: Mapping[int, Pause] = MappingProxyType({})


def show(page: PageContext) -> HttpResponse:
    """Apply the posted toggle on every shard; by GET, or if its form has an error, show the form."""
    name, is_posted = page.fields["action"], page.request.method == "POST"
    toggle = TOGGLES[name]
    subject = _SUBJECTS[toggle.subject](page)
    if isinstance(subject, str):
        messages.warning(page.request, subject)
        return HttpResponseRedirect(page.url(toggle.tab))
    if page.fields.get("left", subject.state) != subject.state:
        # An undo is about what its person changed.
        messages.warning(page.request, sentence(str(NOTHING_UNDONE)))
        return HttpResponseRedirect(subject.url)
    form = toggle.form_class(page.request.POST if is_posted else None, page=page)
    if not form.is_valid():
        return page.render(
            "confirm.html",
            tab=toggle.tab,
            title=toggle.confirm_text % subject.display_name,
            button=toggle.button,
            explanation=toggle.explanation,
            rows=(),
            destructive=False,
            form=form,
            fields={"action": name, **subject.fields},
            cancel_url=subject.url,
            zone=str(page.timezone),
        ).render()
    by, changed, display_name = page.request.user.get_username(), False, subject.display_name
    # The button alone must not remove the end of a pause: the form has a field for it.
    untouched = subject.pauses if name == "pause" and not {"until", "until_us"} & page.fields.keys() else ()
    try:
        for shard in [shard for shard in page.answering if shard not in untouched]:
            changed |= _apply(page, toggle, shard, subject.value, by, form.cleaned_data)
    finally:
        # Also if Redis fails at a later shard: the change of the first ones is recorded.
        if changed:
            audit_log.record(page.request, name, lambda: _done(toggle, display_name, form), object_id=display_name)
    result = _done(toggle, display_name, form, page.timezone) if changed else toggle.unchanged_text % display_name
    level = messages.SUCCESS if changed and not page.missing else messages.WARNING
    text = " ".join([sentence(result), *page.left_alone(again=True)])
    messages.add_message(
        page.request, level, with_undo(page, text, _undo_fields(page, toggle, subject) if changed else {})
    )
    return HttpResponseRedirect(subject.url)


def _undo_fields(page: PageContext, toggle: Toggle, subject: Subject) -> dict[str, str]:
    """Return the fields of the form that undoes a change; empty if nothing does."""
    if toggle.opposite == "resume" and subject.pauses:
        # No press restores the former end of a pause.
        return {}
    try:
        page.load_snapshot()
        now = _SUBJECTS[toggle.subject](page)
    except StoreError:
        # The change is done; it is not undone by a button that cannot know what it would undo.
        return {}
    if isinstance(now, str):
        return {}
    fields = {"action": toggle.opposite, **subject.fields, "left": now.state}
    ends = [pause.until_us for pause in subject.pauses.values() if pause.until_us]
    return fields | {"until_us": str(ends[0])} if toggle.opposite == "pause" and ends else fields


def _apply(page: PageContext, toggle: Toggle, shard: int, value: Any, by: str, parameters: Mapping[str, Any]) -> bool:
    """Apply the toggle in one shard, unless its server turns out not to answer; returns whether anything changed."""
    if shard not in page.answering:
        return False
    try:
        return bool(toggle.apply(page.store.operations(shard), value, by, parameters))
    except StoreUnavailable as error:
        # Raises if no other server is left.
        page.reads.leave_out(shard, error)
        return False


def _done(toggle: Toggle, display_name: str, form: ActionForm, zone: tzinfo = UTC) -> str:
    return " ".join(filter(None, (toggle.success_text % display_name, parameters_text(form.cleaned_data, zone))))


def _queue(page: PageContext) -> Subject | str:
    """Return the queue that the form names, or why nothing is done."""
    queue = posted_name(page, "queue")
    if queue not in page.snapshot.queues:
        return _gone()
    states = {shard: found.queues[queue] for shard, found in page.snapshots.items() if queue in found.queues}
    pauses = {shard: state.paused for shard, state in states.items() if state.paused}
    fields, state = {"queue": url_name(queue)}, _pause_text(next(iter(pauses.values()), None))
    return Subject(queue, printable(queue), fields, page.url("queues"), state, pauses)


def _tenant(page: PageContext) -> Subject | str:
    """Return the tenant that the form names, with jobs or not: more of them may come."""
    queue, tenant = posted_name(page, "queue"), posted_name(page, "tenant")
    if not (queue and tenant):
        return _gone()
    if not page.store.config.tasks.options_of(queue).fair:
        text = gettext("Queue %s is not fair, so none of its tenants can be paused. Nothing was done.")
        return text % printable(queue)
    digest = tenant_digest(tenant)
    found = page.reads.read(lambda shard: page.store.tenants(shard).read_tenant(queue, digest)).values()
    return Subject(
        (queue, tenant),
        gettext("%(tenant)s of queue %(queue)s") % {"tenant": printable(tenant), "queue": printable(queue)},
        {"queue": url_name(queue), "tenant": url_name(tenant)},
        page.url("queue_tenants", queue),
        _pause_text(next((each.paused for each in found if each.paused), None)),
    )


def _task(page: PageContext) -> Subject | str:
    """Return the task that the form names, registered here or not: workers may know it."""
    task = posted_name(page, "task")
    if not task:
        return _gone()
    # Back to the page that the person came from.
    tab = "limits" if page.fields.get("tab") == "limits" else "tasks"
    names, paused = registry.names_of(task), page.snapshot.paused_tasks
    state = _pause_text(next((paused[name] for name in names if name in paused), None))
    return Subject(names, printable(names[0]), {"task": url_name(task), "tab": tab}, page.url(tab), state)


def _worker(page: PageContext) -> Subject | str:
    """Return the worker that the form names, or why nothing is done."""
    text = page.fields.get("worker", "")
    for process in page.snapshot.processes:
        if process.kind == "worker" and process.code.hex() == text:
            state, url = "quiet" if process.asked_quiet else "", page.url("processes")
            return Subject(process.code, printable(process.name or text), {"worker": text}, url, state)
    return _gone()


def _pause_text(pause: Pause | None) -> str:
    return f"{pause.at_us} {pause.until_us or ''}".strip() if pause else ""


_SUBJECTS: Mapping[str, Callable[[PageContext], Subject | str]] = {
    "queue": _queue,
    "tenant": _tenant,
    "task": _task,
    "worker": _worker,
}


def posted_name(page: PageContext, field: str) -> str:
    """Return the name in a field; empty if there is none."""
    try:
        return from_url_name(page.fields.get(field, ""))
    except ValueError:
        return ""


def _gone() -> str:
    return gettext("It is not there any more. Nothing was done.")
