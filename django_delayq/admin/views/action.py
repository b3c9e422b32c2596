"""Action: the one address that changes anything: a page that asks whether it is meant, then the deed, then how it went.

A list posts what is to be done to which rows; that is posted back, signed, until they are counted; then by the confirm
page; and by a long deed again and again, with how far it came.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils import timezone
from django.utils.translation import gettext as _

from django_delayq.admin import audit_log
from django_delayq.admin.actions import preview as counting
from django_delayq.admin.actions import toggles
from django_delayq.admin.actions.bulk_actions import ActionResult
from django_delayq.admin.actions.forms import ActionForm
from django_delayq.admin.actions.messages import log_text, parameters_text, result_text, selection_text
from django_delayq.admin.actions.requests import ActionRequest, Progress, sign, unsign
from django_delayq.admin.actions.run import ActionRun
from django_delayq.admin.arguments import DisplayedArguments, printable
from django_delayq.admin.job_lists import JOB_LISTS, READY, counted
from django_delayq.admin.page import PageContext
from django_delayq.exceptions import StoreError
from django_delayq.job.ids import to_text
from django_delayq.job.job import State

#: Rows that may be destroyed without their number typed.
_FREELY = 100
#: Where the session keeps how many steps of an order were taken, by its nonce, and of how many orders.
_STEPS, _ORDERS_KEPT = "django_delayq.orders", 100


def show(visit: PageContext) -> HttpResponse:
    """Ask, do, or go on."""
    # Times that people type are meant in the zone that they see.
    with timezone.override(visit.timezone):
        if visit.request.POST.get("deed", "") in toggles.TOGGLES:
            return toggles.show(visit)
        if "order" not in visit.request.POST:
            order = ActionRequest.read(visit.request.POST)
            if order is None:
                return _back(visit, None, messages.WARNING, _("Nothing was selected, so nothing was done."))
            return _ask(visit, order, Progress())
        found = unsign(visit.request, visit.request.POST["order"])
        if found is None:
            return _back(visit, None, messages.ERROR, _("This form is too old or not yours. Nothing was done."))
        order, progress = found
        return _do(visit, order, progress) if order.counted else _ask(visit, order, progress)


def _ask(visit: PageContext, order: ActionRequest, progress: Progress) -> HttpResponse:
    order, progress = counting.count_and_sample(visit, order, progress)
    if not order.counted:
        return _so_far(visit, order, progress)
    if not order.count:
        return _back(visit, order, messages.WARNING, _("Nothing of that is there any more. Nothing was done."))
    wish, form = order.action.form_class, None
    if wish:
        initial: dict[str, str] = {}
        if order.action.name == "edit":
            order, initial = _arguments(visit, order)
            if not initial:
                return _back(
                    visit, order, messages.WARNING, _("Its arguments cannot be read, so they cannot be edited.")
                )
        form = wish(visit=visit, task=order.task, initial=initial)
    return _confirm(visit, order, form=form)


def _arguments(visit: PageContext, order: ActionRequest) -> tuple[ActionRequest, dict[str, str]]:
    """Return the arguments of the one job to edit; whoever sees what is hidden is written down."""
    (token,) = list(order.tokens)[:1]
    found = None
    if token.shard < visit.store.config.shards:
        found = visit.store.lookup(token.shard).find(token.raw_id)
    if found is None or found.job is None or found.state is not State.DEAD:
        return order, {}
    if DisplayedArguments.of(found.job, visit.config.redact).hidden:
        if not visit.may_reveal:
            raise PermissionDenied
        audit_log.record(visit.request, "reveal", _("Saw what is hidden"), job_ids=[found.job.id])
    order = replace(order, selected=order.selected[:1], count=1, task=found.job.task)
    return order, DisplayedArguments.of(found.job, visit.config.redact, reveal=True).as_json_texts()


def _do(visit: PageContext, order: ActionRequest, progress: Progress) -> HttpResponse:
    post, form = visit.request.POST, None
    if not order.confirmed:
        if order.action.form_class:
            form = order.action.form_class(post, visit=visit, task=order.task)
        wrong = (
            _("That is not it. Nothing was done yet.") if _typed(post.get("typed", "")) != _typed(_asked(order)) else ""
        )
        if wrong or (form and not form.is_valid()):
            return _confirm(visit, order, form=form, wrong=wrong)
        order = replace(order, confirmed=True, parameters=form.parameters if form else {})
    if order.is_non_idempotent and not _first_time(visit.request, order.nonce, progress.requests):
        refused = _("This was done already, and is not done twice. What is left can be asked for anew.")
        return _back(visit, order, messages.WARNING, refused)
    carrying = ActionRun(visit, order, replace(progress, requests=progress.requests + 1))
    try:
        carrying.run()
    except StoreError:
        so_far = result_text(order.action, carrying.progress.results)
        messages.warning(visit.request, _("%s, then Redis failed; one more may be done.") % so_far)
        raise
    finally:
        # Also where Redis failed on the way: what is done is done.
        progress = _write_down(visit.request, carrying, order)
    if progress.finished:
        level = messages.SUCCESS if set(progress.results) <= {ActionResult.DONE} else messages.WARNING
        said = (result_text(order.action, progress.results), parameters_text(order.parameters, visit.timezone))
        text = ", ".join(filter(None, said)) + "."
        return _back(visit, order, level, " ".join([text, *_remarks(visit, order, progress)]))
    return _so_far(visit, order, progress)


def _remarks(visit: PageContext, order: ActionRequest, progress: Progress) -> Iterator[str]:
    """Yield what there is to know besides what was done."""
    queue = order.parameters.get("queue", "")
    if queue and progress.results.get(ActionResult.DONE) and not visit.workers_of(queue):
        yield _("No worker takes tasks from queue %s now.") % printable(queue)
    # A Redis that fails now must not hide the result of the action.
    with suppress(StoreError):
        if not order.selected and counting.more_match(visit, order, progress):
            yield _("More match now: they came after the count, and were left alone.")


def _so_far(visit: PageContext, order: ActionRequest, progress: Progress) -> HttpResponse:
    """Tell how far counting, or the action, came; the page posts itself until the end."""
    return visit.render(
        "progress.html" if order.counted else "counting.html",
        tab=_tab(order),
        title=counted(order.action.confirm_text, order.count) if order.counted else _("Counting what matches"),
        order=sign(visit.request, order, progress),
        so_far=result_text(order.action, progress.results),
        about=selection_text(order, visit.timezone),
        progress=progress,
        whole=order.count,
        cancel_url=_address(visit, order),
    ).render()


def _first_time(request: HttpRequest, nonce: str, step: int) -> bool:
    """Record a step of an order in the session, at once: a second press of its button comes soon after."""
    session = getattr(request, "session", None)
    if session is None:
        return True
    # Read again: this request's own was read before another press may have written it.
    taken: dict[str, int] = type(session)(session.session_key).get(_STEPS, {})
    if step < taken.pop(nonce, 0):
        return False
    session[_STEPS] = dict([*taken.items(), (nonce, step + 1)][-_ORDERS_KEPT:])
    session.save()
    return True


def _write_down(request: HttpRequest, carrying: ActionRun, order: ActionRequest) -> Progress:
    progress, done = carrying.progress, carrying.done
    few = order.count <= audit_log.MOST_ROWS
    if not done:
        return progress
    entry = audit_log.record(
        request,
        order.action.name,
        log_text(order, progress.results, one=few),
        job_ids=[to_text(*each) for each in done] if few else (),
        count=len(done),
        destroys=order.action.destructive,
        entry=progress.entry,
    )
    return replace(progress, entry=entry)


def _confirm(visit: PageContext, order: ActionRequest, *, form: ActionForm | None, wrong: str = "") -> HttpResponse:
    export = ""
    if order.action.destructive and not order.selected:
        export = "?".join(filter(None, (visit.url("export", order.list_name), order.filter)))
    return visit.render(
        "confirm.html",
        tab=_tab(order),
        title=_("%s?") % counted(order.action.confirm_text, order.count),
        button=counted(order.action.confirm_text, order.count),
        about=selection_text(order, visit.timezone),
        rows=[*order.sample, *(["…"] if order.count > counting.SAMPLE else ())],
        is_whole=order.count <= counting.SAMPLE,
        destroys=order.action.destructive,
        form=form,
        queues=[printable(name) for name in visit.snapshot.queues] if order.action.name == "move" else (),
        asked=_asked(order),
        wrong=wrong,
        fields={"order": sign(visit.request, order, Progress())},
        cancel_url=_address(visit, order),
        export_url=export,
        zone=str(visit.timezone),
    ).render()


def _asked(order: ActionRequest) -> str:
    """Return what has to be typed: the queue's name, or the number of what cannot be brought back."""
    if order.action.name == "purge":
        return printable(order.parsed_filter.queue)
    return str(order.count) if order.action.destructive and order.count > _FREELY else ""


def _typed(text: str) -> str:
    """Return typed text without what people put into numbers."""
    digits = "".join(c for c in text if c.isdecimal())
    return digits if digits and not text.strip("0123456789,.' \u00a0\u202f’") else text.strip()


def _tab(order: ActionRequest) -> str:
    return "queues" if order.job_list is READY else order.list_name


def _address(visit: PageContext, order: ActionRequest | None) -> str:
    """Return where the person came from."""
    if order is not None and order.job:
        return visit.url("task_detail", order.job)
    if order is not None:
        return order.job_list.address(visit, order.parsed_filter.queue, order.page)
    place = JOB_LISTS.get(visit.request.POST.get("place", ""))
    return visit.url(place.name) if place and place is not READY else visit.url("overview")


def _back(visit: PageContext, order: ActionRequest | None, level: int, text: str) -> HttpResponse:
    messages.add_message(visit.request, level, text)
    return HttpResponseRedirect(_address(visit, order))
