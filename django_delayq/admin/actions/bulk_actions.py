"""Deeds: what people may do to jobs from the lists, each with what it does to one of them and the words for it."""

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from django_delayq.admin.actions import forms as wishes
from django_delayq.exceptions import BadBody, KeyHeld, PayloadTooLarge, ShardsChanged
from django_delayq.job.job import Job
from django_delayq.store.operations import Operations


class ActionResult(StrEnum):
    """What became of one job."""

    DONE = "done"
    MISSED = "missed"
    HELD = "held"
    REFUSED = "refused"
    RESHARDED = "resharded"


class Target(NamedTuple):
    """One job as the person saw it."""

    raw_id: bytes
    #: When it is due, or when it died: a dead letter that died again since is another one.
    moment_us: int
    #: Redis's time.
    now_us: int


Act = Callable[[Operations, Target, Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkAction:
    """One thing to do to jobs."""

    name: str
    #: The lists it is offered in.
    job_lists: tuple[str, ...]
    #: In a list of deeds; in the journal of one job; what its button says, by their number; what was done, and what
    #: could not be.
    label: Any
    log_text: Any
    confirm_text: Any
    success_text: Any
    skipped_text: Any
    #: What is to be known besides; and what does it, returning nothing or False where it could not.
    form_class: type[wishes.ActionForm] | None = None
    function: Act
    #: Whether what it does cannot be undone.
    destructive: bool = False

    def apply(self, operations: Operations, target: Target, wish: Mapping[str, Any]) -> ActionResult:
        """Do it to one job, and tell what became of it."""
        try:
            outcome = self.function(operations, target, wish)
        except KeyHeld:
            return ActionResult.HELD
        except ShardsChanged:
            return ActionResult.RESHARDED
        except (BadBody, PayloadTooLarge):
            return ActionResult.REFUSED
        return ActionResult.MISSED if outcome is None or outcome is False else ActionResult.DONE


def _run_now(operations: Operations, target: Target, _: Mapping[str, Any]) -> Any:
    return operations.reschedule(target.raw_id, delay_us=0)


def _reschedule(operations: Operations, target: Target, wish: Mapping[str, Any]) -> Any:
    # From the moment the person saw: pressed twice, it is shifted once.
    due_us = wish["due_us"] if "due_us" in wish else target.moment_us + wish["shift_us"]
    return operations.reschedule(target.raw_id, due_us=max(due_us, target.now_us))


def _move(operations: Operations, target: Target, wish: Mapping[str, Any]) -> Any:
    return operations.move(target.raw_id, wish["queue"])


def _cancel(operations: Operations, target: Target, _: Mapping[str, Any]) -> Any:
    return operations.cancel(target.raw_id)


def _retry(operations: Operations, target: Target, _: Mapping[str, Any]) -> Any:
    return operations.requeue(target.raw_id, died_us=target.moment_us)


def _retry_later(operations: Operations, target: Target, wish: Mapping[str, Any]) -> Any:
    delay_us = max(0, wish["due_us"] - target.now_us) if "due_us" in wish else random.randrange(wish["spread_us"])
    return operations.requeue(target.raw_id, died_us=target.moment_us, delay_us=delay_us)


def _edit(operations: Operations, target: Target, wish: Mapping[str, Any]) -> Any:
    def change(job: Job) -> Job:
        return replace(job, args=json.loads(wish["args"]), kwargs=json.loads(wish["kwargs"]))

    return operations.requeue(target.raw_id, died_us=target.moment_us, change=change)


def _delete(operations: Operations, target: Target, _: Mapping[str, Any]) -> Any:
    return operations.discard(target.raw_id, died_us=target.moment_us)


_WAITING, _DEAD = ("pending", "ready"), ("dead",)
_LATE = ngettext_lazy("%(count)s was no longer waiting", "%(count)s were no longer waiting", "n")
_GONE = ngettext_lazy("%(count)s was already gone", "%(count)s were already gone", "n")
_RETRIED = ngettext_lazy("Retried %(count)s", "Retried %(count)s", "n")
_CANCELLED = ngettext_lazy("Cancelled %(count)s", "Cancelled %(count)s", "n")

BULK_ACTIONS = {
    deed.name: deed
    for deed in (
        BulkAction(
            name="run_now",
            job_lists=("pending",),
            label=_("Run now"),
            log_text=_("Made to run now"),
            confirm_text=ngettext_lazy("Run %(count)s task now", "Run %(count)s tasks now", "n"),
            success_text=ngettext_lazy("Made %(count)s run now", "Made %(count)s run now", "n"),
            skipped_text=_LATE,
            function=_run_now,
        ),
        BulkAction(
            name="reschedule",
            job_lists=_WAITING,
            label=_("Reschedule…"),
            log_text=_("Rescheduled"),
            confirm_text=ngettext_lazy("Reschedule %(count)s task", "Reschedule %(count)s tasks", "n"),
            success_text=ngettext_lazy("Rescheduled %(count)s", "Rescheduled %(count)s", "n"),
            skipped_text=_LATE,
            form_class=wishes.RescheduleForm,
            function=_reschedule,
        ),
        BulkAction(
            name="move",
            job_lists=_WAITING,
            label=_("Move to queue…"),
            log_text=_("Moved"),
            confirm_text=ngettext_lazy("Move %(count)s task", "Move %(count)s tasks", "n"),
            success_text=ngettext_lazy("Moved %(count)s", "Moved %(count)s", "n"),
            skipped_text=_LATE,
            form_class=wishes.MoveForm,
            function=_move,
        ),
        BulkAction(
            name="cancel",
            job_lists=_WAITING,
            label=_("Cancel"),
            log_text=_("Cancelled"),
            confirm_text=ngettext_lazy("Cancel %(count)s waiting task", "Cancel %(count)s waiting tasks", "n"),
            success_text=_CANCELLED,
            skipped_text=_LATE,
            function=_cancel,
            destructive=True,
        ),
        BulkAction(
            name="purge",
            job_lists=("ready",),
            label=_("Purge…"),
            log_text=_("Cancelled with all that was ready"),
            confirm_text=ngettext_lazy("Delete %(count)s ready task", "Delete all %(count)s ready tasks", "n"),
            success_text=_CANCELLED,
            skipped_text=_LATE,
            function=_cancel,
            destructive=True,
        ),
        BulkAction(
            name="retry",
            job_lists=_DEAD,
            label=_("Retry now"),
            log_text=_("Retried"),
            confirm_text=ngettext_lazy("Retry %(count)s dead letter", "Retry %(count)s dead letters", "n"),
            success_text=_RETRIED,
            skipped_text=_GONE,
            function=_retry,
        ),
        BulkAction(
            name="retry_later",
            job_lists=_DEAD,
            label=_("Retry later…"),
            log_text=_("Set to be retried"),
            confirm_text=ngettext_lazy("Retry %(count)s dead letter later", "Retry %(count)s dead letters later", "n"),
            success_text=ngettext_lazy("Set %(count)s to be retried", "Set %(count)s to be retried", "n"),
            skipped_text=_GONE,
            form_class=wishes.RetryLaterForm,
            function=_retry_later,
        ),
        BulkAction(
            name="edit",
            job_lists=_DEAD,
            label=_("Edit arguments and retry…"),
            log_text=_("Retried with other arguments"),
            confirm_text=ngettext_lazy("Retry it with these arguments", "Retry %(count)s with these arguments", "n"),
            success_text=_RETRIED,
            skipped_text=_GONE,
            form_class=wishes.ArgumentsForm,
            function=_edit,
        ),
        BulkAction(
            name="delete",
            job_lists=_DEAD,
            label=_("Delete"),
            log_text=_("Deleted"),
            confirm_text=ngettext_lazy("Delete %(count)s dead letter", "Delete %(count)s dead letters", "n"),
            success_text=ngettext_lazy("Deleted %(count)s", "Deleted %(count)s", "n"),
            skipped_text=_GONE,
            function=_delete,
            destructive=True,
        ),
    )
}
#: What is done to one job or a whole queue only, and so is in no list's menu.
NOT_IN_MENU = frozenset({"edit", "purge"})


def offered(place: str) -> list[BulkAction]:
    """Return what may be done to ticked rows of a list."""
    return [deed for deed in BULK_ACTIONS.values() if place in deed.job_lists and deed.name not in NOT_IN_MENU]
