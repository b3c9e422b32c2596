"""Schedule actions: what people do to one recurring schedule. A page confirms each, but for its resumption."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from django.contrib import messages
from django.http import HttpResponse, HttpResponseRedirect, QueryDict
from django.utils.http import urlencode
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_delayq.admin import audit_log
from django_delayq.admin.actions.forms import ActionForm
from django_delayq.admin.actions.schedule_form import ScheduleForm
from django_delayq.admin.lists.schedule_list import ListRequest
from django_delayq.admin.page import PageContext
from django_delayq.display.text import printable
from django_delayq.exceptions import InvalidSchedule, JobRefused
from django_delayq.job.ids import to_text
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.schedules.planting import new_job
from django_delayq.store.schedules.stored_schedule import StoredSchedule
from django_delayq.templatetags.delayq import sentence

#: Takes the schedule and the valid form; yields what it did in more detail, or True, or False if nothing changed.
Apply = Callable[[PageContext, StoredSchedule, Any], Iterator[str | bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleAction:
    """One action."""

    label: Any
    confirm_text: Any
    explanation: Any
    success_text: Any
    unchanged_text: Any = ""
    apply: Apply
    has_form: bool = False
    destructive: bool = False
    #: Whether it changes what code may have declared, and whether it needs what this process may be unable to read.
    redefines: bool = False
    reads: bool = False
    #: For a paused schedule only, or not for a paused one; None: for both.
    paused: bool | None = None
    #: Done at once. (A pause is not: the waiting job that it cancels does not come back.)
    direct: bool = False


# Each yields before it cancels the waiting job: if Redis fails then, the change is recorded.
def _pause(page: PageContext, stored: StoredSchedule, form: Any) -> Iterator[bool]:
    schedules = page.store.schedules(stored.shard)
    planted = schedules.pause_schedule(stored.id)
    yield planted is not None
    schedules.cancel_planted([planted or b""])


def _resume(page: PageContext, stored: StoredSchedule, form: Any) -> Iterator[bool]:
    yield page.store.schedules(stored.shard).resume_schedule(stored.id)


def _delete(page: PageContext, stored: StoredSchedule, form: Any) -> Iterator[bool]:
    schedules = page.store.schedules(stored.shard)
    [planted] = schedules.delete_schedules([stored.id])
    yield planted is not None
    schedules.cancel_planted([planted or b""])


def _edit(page: PageContext, stored: StoredSchedule, form: ScheduleForm) -> Iterator[str | bool]:
    schedules = page.store.schedules(stored.shard)
    if form.definition == stored.definition:
        yield False
        return
    # It may have moved to another shard since it was read, or been deleted: it must not come back.
    absent = list[Definition]()
    to_cancel = schedules.set_schedules([form.definition], absent=absent)
    yield False if absent else form.change_text
    schedules.cancel_planted(to_cancel)


def _run(page: PageContext, stored: StoredSchedule, form: Any) -> Iterator[str]:
    assert stored.definition is not None
    # Only in the shard of the schedule its overlap is known.
    page.store.layouts.read()
    shard = page.store.schedule_places.shard(stored)
    unsent = new_job(stored.definition, None, shard=shard)
    page.store.enqueue_api(shard).enqueue([unsent])
    yield gettext("job %s") % to_text(unsent.job.raw_id, shard)


SCHEDULE_ACTIONS = {
    "run_schedule": ScheduleAction(
        label=_("Run now"),
        confirm_text=_("Run a job of the schedule %s now?"),
        explanation=_(
            "One more job is enqueued, also if the schedule is paused. If another one runs, the schedule's overlap "
            "decides what becomes of it."
        ),
        success_text=_("Enqueued a job of the schedule %s"),
        apply=_run,
        reads=True,
    ),
    "pause_schedule": ScheduleAction(
        label=_("Pause"),
        confirm_text=_("Pause the schedule %s?"),
        explanation=_(
            "Its waiting job is cancelled, and no other one is enqueued until it is resumed. A running job continues."
        ),
        success_text=_("Paused the schedule %s"),
        unchanged_text=_("The schedule %s was paused already"),
        apply=_pause,
        paused=False,
    ),
    "resume_schedule": ScheduleAction(
        label=_("Resume"),
        confirm_text=_("Resume the schedule %s?"),
        explanation=_("Its jobs are enqueued again, from the next occurrence on. Its failures count from 0."),
        success_text=_("Resumed the schedule %s"),
        unchanged_text=_("The schedule %s was not paused"),
        apply=_resume,
        paused=True,
        direct=True,
    ),
    "edit_schedule": ScheduleAction(
        label=_("Edit…"),
        confirm_text=_("Edit the schedule %s"),
        explanation=_(
            "Its waiting job is replaced by one of the new rule. A running job continues. Code that sets the schedule "
            "again overwrites the change."
        ),
        success_text=_("Changed the schedule %s"),
        unchanged_text=_("Nothing in the schedule %s was changed"),
        apply=_edit,
        has_form=True,
        redefines=True,
        reads=True,
    ),
    "delete_schedule": ScheduleAction(
        label=_("Delete…"),
        confirm_text=_("Delete the schedule %s?"),
        explanation=_("Its waiting job is cancelled. A running job continues."),
        success_text=_("Deleted the schedule %s"),
        unchanged_text=_("The schedule %s was already gone"),
        apply=_delete,
        destructive=True,
        redefines=True,
    ),
}


def refusal(action: ScheduleAction, stored: StoredSchedule) -> str:
    """Return why an action is not for a schedule; empty if it is."""
    if action.redefines and stored.is_declared:
        return gettext("The schedule %s is declared in code: change it there, or pause it.") % _name(stored)
    if action.reads and stored.definition is None:
        return gettext("The schedule %s cannot be read.") % _name(stored)
    if action.paused is not None and action.paused is not stored.is_paused:
        return sentence(action.unchanged_text % _name(stored))
    return ""


def show(page: PageContext) -> HttpResponse:
    """Apply the posted action if it was confirmed or needs no confirmation; else show its confirm page, by GET."""
    fields, is_posted = page.fields, page.request.method == "POST"
    action, stored = SCHEDULE_ACTIONS[fields["action"]], page.store.find_schedule(fields.get("schedule", ""))
    if stored is None:
        return _gone(page)
    back = _back_url(page, stored)
    if problem := refusal(action, stored):
        messages.warning(page.request, problem)
        return HttpResponseRedirect(back)
    named = {name: fields[name] for name in ("action", "schedule", "list") if name in fields}
    if is_posted and not (action.direct or "confirmed" in fields):
        # An empty "list" is the first page of the list.
        return HttpResponseRedirect(f"{page.url('action')}?{urlencode(named)}")
    data = page.request.POST if is_posted else None
    form = ScheduleForm(data, page=page, stored=stored) if action.has_form else ActionForm(data, page=page)
    if form.is_valid():
        return _apply(page, action, stored, form, named, back)
    return page.render(
        "confirm.html",
        tab="recurring",
        title=action.confirm_text % _name(stored),
        button=gettext("Save") if action.has_form else str(action.label).rstrip("…"),
        explanation=action.explanation,
        rows=(),
        destructive=action.destructive,
        form=form,
        fields={**named, "confirmed": "yes"},
        cancel_url=back,
        zone=str(page.timezone),
    ).render()


def _apply(
    page: PageContext,
    action: ScheduleAction,
    stored: StoredSchedule,
    form: ActionForm,
    named: Mapping[str, str],
    back: str,
) -> HttpResponse:
    """Apply an action, record it, and return to the page that it came from. `named` are the fields that name it."""
    name, display_name = named["action"], _name(stored)
    done: str | bool = False
    try:
        for each in action.apply(page, stored, form):
            done = each
    except (JobRefused, InvalidSchedule) as error:
        text = gettext("%s. Nothing was done.") % printable(str(error)).rstrip(".")
        messages.error(page.request, text[:1].upper() + text[1:])
        return HttpResponseRedirect(back)
    except LookupError:
        return _gone(page)
    finally:
        if done:
            audit_log.record(
                page.request,
                name,
                lambda: _done_text(action, display_name, done),
                object_id=stored.text_id,
                destructive=action.destructive,
            )
    if not done:
        messages.warning(page.request, sentence(action.unchanged_text % display_name))
        return HttpResponseRedirect(back)
    messages.success(page.request, sentence(_done_text(action, display_name, done)))
    return HttpResponseRedirect(page.url("recurring") if name == "delete_schedule" else back)


def _done_text(action: ScheduleAction, display_name: str, done: str | bool) -> str:
    return ": ".join(filter(None, (action.success_text % display_name, done if isinstance(done, str) else "")))


def _name(stored: StoredSchedule) -> str:
    """Return how messages name a schedule."""
    if stored.definition is None:
        return stored.text_id
    facts = {"name": printable(stored.definition.schedule.name), "task": printable(stored.definition.job.task)}
    return gettext("%(name)s of %(task)s") % facts


def _back_url(page: PageContext, stored: StoredSchedule) -> str:
    """Return the address of the page that the form is on: the list, or that of the schedule."""
    if "list" not in page.fields:
        return page.url("recurring_schedule", stored.text_id)
    query = ListRequest.read(QueryDict(page.fields["list"])).query()
    return "?".join(filter(None, (page.url("recurring"), query)))


def _gone(page: PageContext) -> HttpResponse:
    messages.warning(page.request, gettext("It is not there any more. Nothing was done."))
    return HttpResponseRedirect(page.url("recurring"))
