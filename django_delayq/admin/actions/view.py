"""The view of all actions: it counts the jobs, shows the confirm page, runs the action, and shows the progress.

A list posts what to do with which rows. The signed request is posted back until all jobs are counted. It is then in the
address of the confirm page, so that a browser can go back to that page; and it is posted by that page, and by a long
action again and again. What can be undone, for one job, is done at once.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.translation import gettext as _

from django_delayq import runtime
from django_delayq.admin import audit_log
from django_delayq.admin.actions import schedules, selection, session, toggles
from django_delayq.admin.actions.action_request import ActionRequest
from django_delayq.admin.actions.bulk_actions import BULK_ACTIONS, ActionResult, Target
from django_delayq.admin.actions.forms import ActionForm
from django_delayq.admin.actions.messages import log_text, parameters_text, result_text, selection_text, with_undo
from django_delayq.admin.actions.run import run
from django_delayq.admin.lists.job_lists import JOB_LISTS, READY, counted
from django_delayq.admin.page import PageContext
from django_delayq.display.arguments import DisplayedArguments
from django_delayq.display.text import printable
from django_delayq.exceptions import StoreError
from django_delayq.job.ids import to_text
from django_delayq.job.job import State
from django_delayq.store.operations.batch import Effect
from django_delayq.templatetags.delayq import sentence

#: Longest address of a confirm page, in characters; servers and proxies refuse those of more than 4,000 or 8,000. A
#: request for more rows than about a hundred is longer, and its page is the response to the POST.
_LONGEST_ADDRESS = 3_000


def show(page: PageContext) -> HttpResponse:
    """Continue the posted request at its next stage; by GET, show its confirm page."""
    # Times in forms are in the zone of the page.
    with timezone.override(page.timezone):
        fields, is_posted = page.fields, page.request.method == "POST"
        if fields.get("action", "") in toggles.TOGGLES:
            return toggles.show(page)
        if fields.get("action", "") in schedules.SCHEDULE_ACTIONS:
            return schedules.show(page)
        if is_posted and "signed_request" not in fields:
            action_request = _of_tenant(page) or ActionRequest.read(page.request.POST)
            if action_request is None:
                return _back(page, None, messages.WARNING, _("Nothing was selected, so nothing was done."))
            if action_request.action.direct and len(action_request.rows) == 1:
                action_request.confirmed = True
                return _run(page, action_request)
            return _prepare(page, action_request)
        action_request = ActionRequest.unsign(page.request, fields.get("signed_request", ""))
        if action_request is None or not (is_posted or action_request.has_address):
            return _back(page, None, messages.ERROR, _("This form is too old or not yours. Nothing was done."))
        if not is_posted:
            return _ask(page, action_request)
        if "stop" in fields:
            return _stop(page, action_request)
        return _run(page, action_request) if action_request.counted else _prepare(page, action_request)


def _of_tenant(page: PageContext) -> ActionRequest | None:
    """Return the request of a form on the page of a queue's tenants; None if it is another form, or names nobody."""
    queue, tenant = toggles.posted_name(page, "queue"), toggles.posted_name(page, "tenant")
    if page.fields.get("action") != "cancel_tenant" or not (queue and tenant):
        return None
    return ActionRequest.of_tenant(queue, tenant, now_us=page.now_us)


def _prepare(page: PageContext, action_request: ActionRequest) -> HttpResponse:
    selection.count_and_sample(page, action_request)
    if not action_request.counted:
        return _progress(page, action_request)
    if not action_request.count:
        text = " ".join([_("No such job is left. Nothing was done."), *page.left_alone()])
        return _back(page, action_request, messages.WARNING, text)
    address = page.url("action", signed_request=action_request.sign(page.request))
    # To show arguments reveals hidden ones, which each POST records, and a browser repeats a GET at will.
    has_address = action_request.has_address and len(address) <= _LONGEST_ADDRESS
    return HttpResponseRedirect(address) if has_address else _ask(page, action_request)


def _ask(page: PageContext, action_request: ActionRequest) -> HttpResponse:
    """Show the confirm page of a counted request."""
    initial: dict[str, str] = {}
    if action_request.action.name == "edit":
        initial = _current_arguments(page, action_request)
        if not initial:
            text = " ".join([_("Its arguments cannot be read, so they cannot be edited."), *page.left_alone()])
            return _back(page, action_request, messages.WARNING, text)
    return _confirm(page, action_request, _form(page, action_request, initial=initial))


def _current_arguments(page: PageContext, action_request: ActionRequest) -> dict[str, str]:
    """Return the arguments of the job to edit as JSON, and limit the request to that job; empty if unreadable."""
    target = Target.read(action_request.rows[0])
    found = selection.find(page, target) if target else None
    if found is None or found.job is None or found.state is not State.DEAD:
        return {}
    if DisplayedArguments.of(found.job, page.config.redact).hidden:
        if not page.may_reveal:
            raise PermissionDenied
        audit_log.record(page.request, "reveal", lambda: _("Revealed hidden values"), job_ids=[found.job.id])
    action_request.rows, action_request.count, action_request.task = action_request.rows[:1], 1, found.job.task
    return DisplayedArguments.of(found.job, page.config.redact, reveal=True).as_json_texts()


def _run(page: PageContext, action_request: ActionRequest) -> HttpResponse:
    if not action_request.confirmed:
        form = _form(page, action_request, page.request.POST)
        if not form.is_valid():
            return _confirm(page, action_request, form)
        action_request.confirmed, action_request.parameters = True, form.cleaned_data
    if action_request.is_non_idempotent and not session.claim_step(page.request, action_request):
        text = _("This was done already and is not done twice. Select the jobs that are left again.")
        return _back(page, action_request, messages.WARNING, text)
    action_request.steps += 1
    changed: list[tuple[Target, Effect]] = []
    try:
        for each in run(page, action_request):
            changed.append(each)
    except StoreError:
        facts = {
            "result": result_text(action_request.action, action_request.results),
            "count": runtime.current().bounds.changed_jobs,
        }
        text = _("%(result)s. Then Redis failed: up to %(count)s more jobs may be changed.") % facts
        messages.warning(page.request, text)
        raise
    finally:
        # Also if Redis failed: what is done is recorded.
        _record(page, action_request, [target for target, _effect in changed])
        if action_request.is_non_idempotent:
            session.keep_unfinished(page.request, action_request)
    if not action_request.finished:
        return _progress(page, action_request)
    is_whole = set(action_request.results) <= {ActionResult.DONE} and not (page.missing and not action_request.rows)
    level = messages.SUCCESS if is_whole else messages.WARNING
    parameters = parameters_text(action_request.parameters, page.timezone)
    result = result_text(action_request.action, action_request.results, parameters)
    sentences = [sentence(result), *_remarks(page, action_request)]
    text = with_undo(page, " ".join(sentences), _undo_fields(action_request, changed))
    return _back(page, action_request, level, text)


def _undo_fields(action_request: ActionRequest, changed: list[tuple[Target, Effect]]) -> dict[str, str]:
    """Return the fields of the form that undoes a change of one selected job; empty if nothing does."""
    action = action_request.action
    if not action.undo or len(action_request.rows) != 1 or not changed:
        return {}
    [(target, effect)] = changed
    if action_request.list_name not in BULK_ACTIONS[action.undo].job_lists or effect.due_us is None:
        return {}
    if action.undo == "set_back":
        if effect.former_due_us is None:
            return {}
        # Somebody may have given it another time since the person saw the list.
        target = target._replace(moment_us=effect.former_due_us)
    # A retry may have brought it to another shard.
    text_id = to_text(target.raw_id, target.shard if effect.shard is None else effect.shard)
    return {
        "action": action.undo,
        "list": action_request.list_name,
        "filter": action_request.filter_query,
        "page": action_request.page_query,
        "row": f"{text_id}.{target.moment_us}",
        "left_us": str(effect.due_us),
        "left_counts": effect.counts.hex(),
        "seen_us": str(action_request.seen_us),
        "job": action_request.job_id,
    }


def _stop(page: PageContext, action_request: ActionRequest) -> HttpResponse:
    """Leave the other jobs as they are; no form of the request continues it."""
    if not action_request.confirmed:
        return _back(page, action_request, messages.INFO, _("Nothing was done."))
    session.stop(page.request, action_request)
    text = _("Stopped. %s. A step that is running still ends.") % result_text(
        action_request.action, action_request.results
    )
    return _back(page, action_request, messages.INFO, text)


def _record(page: PageContext, action_request: ActionRequest, changed: list[Target]) -> None:
    if not changed:
        return
    few = action_request.count <= runtime.current().bounds.logged_jobs
    action_request.log_entry = audit_log.record(
        page.request,
        action_request.action.name,
        lambda: log_text(action_request, about_one=few),
        job_ids=[to_text(target.raw_id, target.shard) for target in changed] if few else (),
        count=len(changed),
        destructive=action_request.action.destructive,
        entry=action_request.log_entry,
    )


def _remarks(page: PageContext, action_request: ActionRequest) -> Iterator[str]:
    """Yield what the person should know besides the result."""
    queue = action_request.parameters.get("queue", "")
    if queue and action_request.results.get(ActionResult.DONE) and not page.workers_of(queue):
        yield _("No worker takes jobs from queue %s now.") % printable(queue)
    if not action_request.rows:
        yield from page.left_alone()
    # A Redis that fails now must not hide the result of the action.
    with suppress(StoreError):
        if not action_request.rows and selection.more_match(page, action_request):
            yield _("More jobs match now. They came after the count and were left alone.")


def _progress(page: PageContext, action_request: ActionRequest) -> HttpResponse:
    """Show how far the count or the action is; the script posts the page's form again until the end."""
    counted_all = action_request.counted
    text = counted(action_request.action.confirm_text, action_request.count)
    return page.render(
        "progress.html" if counted_all else "counting.html",
        tab=_tab(action_request),
        title=text if counted_all else _("Counting the matching jobs"),
        signed_request=action_request.sign(page.request),
        result=result_text(action_request.action, action_request.results),
        explanation=selection_text(action_request, page.timezone),
        handled=action_request.handled,
        scanned=action_request.scanned,
        total=action_request.count,
        cancel_url=_return_url(page, action_request),
    ).render()


def _form(page: PageContext, action_request: ActionRequest, data: Any = None, **options: Any) -> ActionForm:
    action, text_to_type = action_request.action, ""
    if action.name == "cancel_all":
        text_to_type = printable(action_request.filter.queue)
    elif action.destructive and action_request.count > runtime.current().bounds.untyped_jobs:
        text_to_type = str(action_request.count)
    more = {"task": action_request.task, "text_to_type": text_to_type, "count": action_request.count, **options}
    return action.form_class(data, page=page, **more)


def _confirm(page: PageContext, action_request: ActionRequest, form: ActionForm) -> HttpResponse:
    action, text = action_request.action, counted(action_request.action.confirm_text, action_request.count)
    rows, export_url = selection.sample_texts(page, action_request), ""
    # No list shows the jobs of one tenant alone.
    if action.destructive and not action_request.rows and not action_request.tenant:
        export_url = "?".join(filter(None, (page.url("export", action_request.list_name), action_request.filter_query)))
    is_complete = action_request.count <= selection.SAMPLE
    return page.render(
        "confirm.html",
        tab=_tab(action_request),
        title=_("%s?") % text,
        button=text,
        explanation=selection_text(action_request, page.timezone),
        rows=rows if is_complete else [*rows, "…"],
        is_complete=is_complete,
        destructive=action.destructive,
        form=form,
        queues=[printable(name) for name in page.snapshot.queues] if action.name == "move" else (),
        # A page keeps the request of its address: a new signature at each visit would extend its hour.
        fields={"signed_request": page.request.GET.get("signed_request") or action_request.sign(page.request)},
        cancel_url=_return_url(page, action_request),
        export_url=export_url,
        zone=str(page.timezone),
    ).render()


def _tab(action_request: ActionRequest) -> str:
    return "queues" if action_request.job_list is READY else action_request.list_name


def _return_url(page: PageContext, action_request: ActionRequest | None) -> str:
    """Return the address of the page that the person came from."""
    if action_request is not None and action_request.job_id:
        return page.url("job_detail", action_request.job_id)
    if action_request is not None and action_request.tenant:
        return page.url("queue_tenants", action_request.filter.queue)
    if action_request is not None:
        return action_request.job_list.address(page, action_request.filter.queue, action_request.page_query)
    job_list = JOB_LISTS.get(page.request.POST.get("list", ""))
    return page.url(job_list.name) if job_list and job_list is not READY else page.url("overview")


def _back(page: PageContext, action_request: ActionRequest | None, level: int, text: str) -> HttpResponse:
    messages.add_message(page.request, level, text)
    return HttpResponseRedirect(_return_url(page, action_request))
