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


class Fate(StrEnum):
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
class Deed:
    """One thing to do to jobs."""

    name: str
    #: The lists it is offered in.
    places: tuple[str, ...]
    #: In a list of deeds; in the journal of one job; what its button says, by their number; what was done, and what
    #: could not be.
    label: Any
    past: Any
    order: Any
    done: Any
    missed: Any
    #: What is to be known besides; and what does it, returning nothing or False where it could not.
    wish: type[wishes.Wish] | None = None
    act: Act
    #: Whether what it does cannot be undone.
    destroys: bool = False

    def carry_out(self, operations: Operations, target: Target, wish: Mapping[str, Any]) -> Fate:
        """Do it to one job, and tell what became of it."""
        try:
            outcome = self.act(operations, target, wish)
        except KeyHeld:
            return Fate.HELD
        except ShardsChanged:
            return Fate.RESHARDED
        except (BadBody, PayloadTooLarge):
            return Fate.REFUSED
        return Fate.MISSED if outcome is None or outcome is False else Fate.DONE


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

DEEDS = {
    deed.name: deed
    for deed in (
        Deed(
            name="run_now",
            places=("pending",),
            label=_("Run now"),
            past=_("Made to run now"),
            order=ngettext_lazy("Run %(count)s task now", "Run %(count)s tasks now", "n"),
            done=ngettext_lazy("Made %(count)s run now", "Made %(count)s run now", "n"),
            missed=_LATE,
            act=_run_now,
        ),
        Deed(
            name="reschedule",
            places=_WAITING,
            label=_("Reschedule…"),
            past=_("Rescheduled"),
            order=ngettext_lazy("Reschedule %(count)s task", "Reschedule %(count)s tasks", "n"),
            done=ngettext_lazy("Rescheduled %(count)s", "Rescheduled %(count)s", "n"),
            missed=_LATE,
            wish=wishes.NewTime,
            act=_reschedule,
        ),
        Deed(
            name="move",
            places=_WAITING,
            label=_("Move to queue…"),
            past=_("Moved"),
            order=ngettext_lazy("Move %(count)s task", "Move %(count)s tasks", "n"),
            done=ngettext_lazy("Moved %(count)s", "Moved %(count)s", "n"),
            missed=_LATE,
            wish=wishes.NewQueue,
            act=_move,
        ),
        Deed(
            name="cancel",
            places=_WAITING,
            label=_("Cancel"),
            past=_("Cancelled"),
            order=ngettext_lazy("Cancel %(count)s waiting task", "Cancel %(count)s waiting tasks", "n"),
            done=_CANCELLED,
            missed=_LATE,
            act=_cancel,
            destroys=True,
        ),
        Deed(
            name="purge",
            places=("ready",),
            label=_("Purge…"),
            past=_("Cancelled with all that was ready"),
            order=ngettext_lazy("Delete %(count)s ready task", "Delete all %(count)s ready tasks", "n"),
            done=_CANCELLED,
            missed=_LATE,
            act=_cancel,
            destroys=True,
        ),
        Deed(
            name="retry",
            places=_DEAD,
            label=_("Retry now"),
            past=_("Retried"),
            order=ngettext_lazy("Retry %(count)s dead letter", "Retry %(count)s dead letters", "n"),
            done=_RETRIED,
            missed=_GONE,
            act=_retry,
        ),
        Deed(
            name="retry_later",
            places=_DEAD,
            label=_("Retry later…"),
            past=_("Set to be retried"),
            order=ngettext_lazy("Retry %(count)s dead letter later", "Retry %(count)s dead letters later", "n"),
            done=ngettext_lazy("Set %(count)s to be retried", "Set %(count)s to be retried", "n"),
            missed=_GONE,
            wish=wishes.LaterTime,
            act=_retry_later,
        ),
        Deed(
            name="edit",
            places=_DEAD,
            label=_("Edit arguments and retry…"),
            past=_("Retried with other arguments"),
            order=ngettext_lazy("Retry it with these arguments", "Retry %(count)s with these arguments", "n"),
            done=_RETRIED,
            missed=_GONE,
            wish=wishes.NewArguments,
            act=_edit,
        ),
        Deed(
            name="delete",
            places=_DEAD,
            label=_("Delete"),
            past=_("Deleted"),
            order=ngettext_lazy("Delete %(count)s dead letter", "Delete %(count)s dead letters", "n"),
            done=ngettext_lazy("Deleted %(count)s", "Deleted %(count)s", "n"),
            missed=_GONE,
            act=_delete,
            destroys=True,
        ),
    )
}
#: What is done to one job or a whole queue only, and so is in no list's menu.
APART = frozenset({"edit", "purge"})


def offered(place: str) -> list[Deed]:
    """Return what may be done to ticked rows of a list."""
    return [deed for deed in DEEDS.values() if place in deed.places and deed.name not in APART]
