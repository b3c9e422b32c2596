"""Words: what an order means, and what became of it, in sentences for pages, messages and the journal."""

from collections.abc import Mapping
from datetime import UTC, tzinfo
from typing import Any

from django.utils.translation import gettext as _
from django.utils.translation import ngettext_lazy

from django_delayq.admin.actions.bulk_actions import ActionResult, BulkAction
from django_delayq.admin.actions.requests import ActionRequest
from django_delayq.admin.arguments import printable
from django_delayq.admin.errors import ErrorSummary
from django_delayq.admin.job_lists import DEAD, counted
from django_delayq.clock import moment
from django_delayq.templatetags.delayq import duration_text

_HELD = ngettext_lazy(
    "%(count)s could not be: another task holds its key",
    "%(count)s could not be: other tasks hold their keys",
    "n",
)
_RESHARDED = ngettext_lazy(
    "%(count)s could not be: SHARDS changed since its key was taken; enqueue it anew, or set SHARDS back",
    "%(count)s could not be: SHARDS changed since their keys were taken; enqueue them anew, or set SHARDS back",
    "n",
)
_REFUSED = ngettext_lazy(
    "%(count)s could not be read, verified or stored", "%(count)s could not be read, verified or stored", "n"
)


def moment_text(us: int, zone: tzinfo = UTC) -> str:
    """Return a moment that means the same wherever it is read."""
    return f"{moment(us).astimezone(zone):%Y-%m-%d %H:%M:%S %Z}"


def result_text(deed: BulkAction, fates: Mapping[str, int]) -> str:
    """Return what was done and what could not be: "Retried 11; 1 was already gone"."""
    others = {
        ActionResult.MISSED: deed.skipped_text,
        ActionResult.HELD: _HELD,
        ActionResult.REFUSED: _REFUSED,
        ActionResult.RESHARDED: _RESHARDED,
    }
    done = counted(deed.success_text, fates.get(ActionResult.DONE, 0))
    return "; ".join([done, *(counted(words, fates[fate]) for fate, words in others.items() if fates.get(fate))])


def selection_text(order: ActionRequest, zone: tzinfo = UTC) -> str:
    """Return which jobs are meant: "queue email, error SMTPTimeout, died up to 14:02:11 UTC"."""
    if order.selected:
        return ""
    asked, dead = order.parsed_filter, order.job_list is DEAD
    parts = [
        (_("queue %s"), asked.queue),
        (_("function %s"), asked.function.removeprefix("=")),
        (_("error %s"), ErrorSummary(asked.error.removeprefix("="), "").name),
        (_("with the text “%s”"), asked.text),
        (
            _("died from %s on") if dead else _("due from %s on"),
            moment_text(asked.from_us, zone) if asked.from_us else "",
        ),
        (_("died up to %s") if dead else _("due before %s"), moment_text(asked.to_us, zone) if asked.to_us else ""),
    ]
    return ", ".join(words % printable(value) for words, value in parts if value)


def parameters_text(wish: Mapping[str, Any], zone: tzinfo = UTC) -> str:
    """Return what was wished besides: "by +10 min"."""
    if "shift_us" in wish:
        sign = "−" if wish["shift_us"] < 0 else "+"
        return _("by %s") % f"{sign}{duration_text(abs(wish['shift_us']))}"
    if "spread_us" in wish:
        return _("spread over %s") % duration_text(wish["spread_us"])
    if "due_us" in wish:
        return _("at %s") % moment_text(wish["due_us"], zone)
    return _("to queue %s") % printable(wish["queue"]) if "queue" in wish else ""


def log_text(order: ActionRequest, fates: Mapping[str, int], *, one: bool) -> str:
    """Return the journal's sentence about each job, or about all together."""
    first = str(order.action.log_text) if one else result_text(order.action, fates)
    return ", ".join(part for part in (first, parameters_text(order.parameters), selection_text(order)) if part)
