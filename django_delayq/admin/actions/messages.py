"""Messages: sentences about an action, its jobs, its parameters and its results."""

from collections.abc import Mapping
from datetime import UTC, tzinfo
from typing import Any

from django.middleware.csrf import get_token
from django.utils.html import format_html, format_html_join
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy

from django_delayq.admin.actions.action_request import ActionRequest
from django_delayq.admin.actions.bulk_actions import ActionResult, BulkAction
from django_delayq.admin.errors import ErrorSummary
from django_delayq.admin.lists.job_lists import FAILED, RUNNING, counted
from django_delayq.admin.page import PageContext
from django_delayq.clock import SECOND_US
from django_delayq.display.text import printable
from django_delayq.templatetags.delayq import duration_text, sentence, zoned

_GONE = ngettext_lazy("%(count)s was already gone", "%(count)s were already gone", "n")
NOTHING_UNDONE = gettext_lazy("It has changed since: nothing was undone")
_CHANGED = ngettext_lazy("%(count)s has changed since", "%(count)s have changed since", "n")
_NOT_WAITING = ngettext_lazy("%(count)s was no longer waiting", "%(count)s were no longer waiting", "n")
_NOT_RUNNING = ngettext_lazy("%(count)s was no longer running", "%(count)s were no longer running", "n")
_UNCHANGED_TEXTS = {
    ActionResult.KEY_HELD: ngettext_lazy(
        "%(count)s was left alone, because another job holds its key",
        "%(count)s were left alone, because other jobs hold their keys",
        "n",
    ),
    ActionResult.UNREADABLE: ngettext_lazy(
        "%(count)s was left alone, because it cannot be read, verified or stored",
        "%(count)s were left alone, because they cannot be read, verified or stored",
        "n",
    ),
    ActionResult.UNREACHABLE: ngettext_lazy(
        "%(count)s was left alone, because its Redis server does not answer",
        "%(count)s were left alone, because their Redis server does not answer",
        "n",
    ),
}


def result_text(action: BulkAction, results: Mapping[str, int], parameters: str = "", selection: str = "") -> str:
    """Return what changed and what did not: "11 jobs retried. 1 was already gone"; the other texts are about both."""
    skipped_text, all_skipped_text = _skipped_texts(action)
    done, skipped = results.get(ActionResult.DONE, 0), results.get(ActionResult.SKIPPED, 0)
    if skipped and skipped == sum(results.values()):
        return str(all_skipped_text)
    unchanged = {ActionResult.SKIPPED: skipped_text, **_UNCHANGED_TEXTS}
    first = _change_text(counted(action.success_text, done), parameters, selection)
    parts = [first, *(counted(text, results[key]) for key, text in unchanged.items() if results.get(key))]
    return " ".join([*map(sentence, parts[:-1]), parts[-1]])


def _skipped_texts(action: BulkAction) -> tuple[Any, str]:
    """Return the words for jobs that were not there any more, and the sentence if that were all."""
    if action.is_undo:
        return _CHANGED, str(NOTHING_UNDONE)
    if FAILED.name in action.job_lists:
        return _GONE, _("Already gone: nothing was changed")
    if RUNNING.name in action.job_lists:
        return _NOT_RUNNING, _("No longer running: nothing was changed")
    return _NOT_WAITING, _("No longer waiting: nothing was changed")


def selection_text(action_request: ActionRequest, zone: tzinfo = UTC) -> str:
    """Return the filter in words: "queue email, error SMTPTimeout, failed up to …"; empty if rows were selected."""
    if action_request.rows:
        return ""
    job_filter, is_failed = action_request.filter, action_request.job_list is FAILED
    from_us, to_us = job_filter.from_us, job_filter.to_us
    parts = [
        (_("queue %s"), job_filter.queue),
        (_("tenant %s"), action_request.tenant),
        (_("task %s"), job_filter.task.removeprefix("=")),
        (_("error %s"), ErrorSummary(job_filter.error.removeprefix("="), "").name),
        (_("with the text “%s”"), job_filter.text),
        (_("failed from %s on") if is_failed else _("due from %s on"), moment_text(from_us, zone) if from_us else ""),
        (_("failed up to %s") if is_failed else _("due before %s"), moment_text(to_us, zone) if to_us else ""),
    ]
    return ", ".join(words % printable(value) for words, value in parts if value)


def parameters_text(parameters: Mapping[str, Any], zone: tzinfo = UTC) -> str:
    """Return the parameters in words: "by +10 min"."""
    if "shift_us" in parameters:
        sign = "−" if parameters["shift_us"] < 0 else "+"
        return _("by %s") % f"{sign}{duration_text(abs(parameters['shift_us']))}"
    if "spread_us" in parameters:
        return _("evenly over %s") % duration_text(parameters["spread_us"])
    if "due_us" in parameters:
        return _("for %s") % moment_text(parameters["due_us"], zone)
    if "until_us" in parameters:
        return _("until %s") % moment_text(parameters["until_us"], zone)
    if "grace_s" in parameters:
        return _("within %s") % duration_text(parameters["grace_s"] * SECOND_US)
    return _("to queue %s") % printable(parameters["queue"]) if "queue" in parameters else ""


def log_text(action_request: ActionRequest, *, about_one: bool) -> str:
    """Return the audit log's sentence about each job, or about all of them together."""
    action = action_request.action
    parameters, selection = parameters_text(action_request.parameters), selection_text(action_request)
    if not about_one:
        return result_text(action, action_request.results, parameters, selection)
    return _change_text(str(action.log_text), parameters, selection)


def _change_text(change: str, parameters: str, selection: str) -> str:
    """Return "3 jobs rescheduled by +10 min, queue mail"."""
    return ", ".join(filter(None, (" ".join(filter(None, (change, parameters))), selection)))


def moment_text(us: int, zone: tzinfo = UTC) -> str:
    """Return a moment as text, with its date and zone."""
    return f"{zoned(us, zone):%Y-%m-%d %H:%M:%S %Z}"


def with_undo(page: PageContext, text: str, fields: Mapping[str, str]) -> str:
    """Return a message with a button that posts these fields to the actions; without fields, the text alone."""
    if not fields:
        return text
    token = {"csrfmiddlewaretoken": get_token(page.request)}
    inputs = format_html_join("", '<input type="hidden" name="{}" value="{}">', {**token, **fields}.items())
    return format_html(
        '{} <form class="delayq-undo" method="post" action="{}">{}<button type="submit">{}</button></form>',
        text,
        page.url("action"),
        inputs,
        _("Undo"),
    )
