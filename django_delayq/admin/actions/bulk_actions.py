"""Bulk actions: one table of what people can do to jobs, with the effect on a batch and the sentences about it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple, Self

from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext_lazy

from django_delayq.admin.actions import forms
from django_delayq.clock import SECOND_US
from django_delayq.exceptions import BadBody, KeyHeld, PayloadTooLarge
from django_delayq.job.ids import from_text
from django_delayq.job.job import Job
from django_delayq.store.operations.batch import SKIPPED, BatchJob, Effect
from django_delayq.store.operations.operations import Operations


class ActionResult(StrEnum):
    """What an action did to one job; all but DONE leave the job as it is."""

    DONE = "done"
    #: The job no longer waits, or is no longer that failed job.
    SKIPPED = "skipped"
    KEY_HELD = "key_held"
    UNREADABLE = "unreadable"
    #: The server of its shard does not answer.
    UNREACHABLE = "unreachable"


_RESULTS: dict[type[Exception], ActionResult] = {
    KeyHeld: ActionResult.KEY_HELD,
    BadBody: ActionResult.UNREADABLE,
    PayloadTooLarge: ActionResult.UNREADABLE,
}


class Target(NamedTuple):
    """One job as the person saw it."""

    raw_id: bytes
    shard: int
    #: When it is due, or when it failed: a job that failed again since then is another row.
    moment_us: int

    @classmethod
    def read(cls, token: str) -> Self | None:
        """Read the value of a row's checkbox, `<job id>.<moment>`; None if it is not one."""
        job_id, _dot, moment = token.partition(".")
        found = from_text(job_id)
        if found is None or not moment.removeprefix("-").isdecimal() or len(moment) > 17:
            return None
        return cls(*found, int(moment))


class Change(NamedTuple):
    """What an action did to one job."""

    result: ActionResult
    effect: Effect = SKIPPED


Parameters = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkAction:
    """One thing that people can do to jobs."""

    name: str
    #: Names of the lists that offer it.
    job_lists: tuple[str, ...]
    #: False: offered for one job, a whole queue or a tenant only, not in the menu of a list.
    in_menu: bool = True
    #: Its entry in that menu.
    label: Any
    #: The audit log's sentence about one job.
    log_text: Any
    #: The button of the confirm page, and the result, each by the number of jobs.
    confirm_text: Any
    success_text: Any
    #: The form on the confirm page.
    form_class: type[forms.ActionForm] = forms.ActionForm
    #: Changes up to 250 jobs of a shard in one call. The parameters include Redis's time as `now_us`.
    change: Callable[[Operations, Sequence[Target], Parameters], Sequence[Effect]]
    #: Nobody can undo it.
    destructive: bool = False
    #: Done to one job at once, without a confirm page.
    direct: bool = False
    #: The action that undoes it for one job; empty if none does.
    undo: str = ""
    #: It undoes another one, and is offered by the message about that alone.
    is_undo: bool = False

    def apply(self, operations: Operations, targets: Sequence[Target], parameters: Parameters) -> Sequence[Change]:
        """Change up to 250 jobs of a shard; return what was done to each."""
        return [Change(_result(effect), effect) for effect in self.change(operations, targets, parameters)]


def _result(effect: Effect) -> ActionResult:
    if effect.error is not None:
        return next(result for kind, result in _RESULTS.items() if isinstance(effect.error, kind))
    return ActionResult.DONE if effect.done else ActionResult.SKIPPED


def _jobs(targets: Sequence[Target], **times: Any) -> Sequence[BatchJob]:
    return [BatchJob(raw_id=target.raw_id, died_us=target.moment_us, **times) for target in targets]


def _set_back(operations: Operations, targets: Sequence[Target], parameters: Parameters) -> Sequence[Effect]:
    # The form of an undo has the time that the job had.
    left_us, counts = parameters["left_us"], bytes.fromhex(parameters["left_counts"])
    return operations.waiting_jobs.reschedule(
        [
            BatchJob(raw_id=each.raw_id, due_us=each.moment_us, left_due_us=left_us, left_counts=counts)
            for each in targets
        ]
    )


def _undo_retry(operations: Operations, targets: Sequence[Target], parameters: Parameters) -> Sequence[Effect]:
    return operations.waiting_jobs.undo_requeue(_jobs(targets, left_due_us=parameters["left_us"]))


def _run_now(operations: Operations, targets: Sequence[Target], _parameters: Parameters) -> Sequence[Effect]:
    return _give_time(operations, _jobs(targets))


def _reschedule(operations: Operations, targets: Sequence[Target], parameters: Parameters) -> Sequence[Effect]:
    if "due_us" in parameters:
        return _give_time(operations, _jobs(targets, due_us=parameters["due_us"]))
    # A shift counts from the moment that the person saw, so a repeated request shifts once.
    shift_us = parameters["shift_us"]
    jobs = [BatchJob(raw_id=target.raw_id, due_us=target.moment_us + shift_us) for target in targets]
    return _give_time(operations, jobs)


def _give_time(operations: Operations, jobs: Sequence[BatchJob]) -> Sequence[Effect]:
    # Only the change of one job can be undone.
    return operations.waiting_jobs.reschedule(jobs, with_counts=len(jobs) == 1)


def _retry(operations: Operations, targets: Sequence[Target], parameters: Parameters) -> Sequence[Effect]:
    jobs = _jobs(targets, due_us=parameters.get("due_us"))
    return operations.dead_letters.requeue(jobs, spread=parameters.get("spread"))


def _edit(operations: Operations, targets: Sequence[Target], parameters: Parameters) -> Sequence[Effect]:
    def change(job: Job) -> Job:
        return replace(job, args=parameters["args"], kwargs=parameters["kwargs"])

    return operations.dead_letters.requeue(_jobs(targets), change=change)


def _cancel(operations: Operations, targets: Sequence[Target], _parameters: Parameters) -> Sequence[Effect]:
    return operations.waiting_jobs.cancel(_jobs(targets))


def _stop(operations: Operations, targets: Sequence[Target], parameters: Parameters) -> Sequence[Effect]:
    grace_us = parameters["grace_s"] * SECOND_US
    return [Effect(done=operations.workers.stop(target.raw_id, grace_us=grace_us)) for target in targets]


_RETRIED = ngettext_lazy("%(count)s job retried", "%(count)s jobs retried", "n")
_CANCEL = BulkAction(
    name="cancel",
    job_lists=("scheduled", "ready"),
    label=_("Cancel"),
    log_text=_("Cancelled"),
    confirm_text=ngettext_lazy("Cancel %(count)s waiting job", "Cancel %(count)s waiting jobs", "n"),
    success_text=ngettext_lazy("%(count)s job cancelled", "%(count)s jobs cancelled", "n"),
    change=_cancel,
    destructive=True,
)

BULK_ACTIONS = {
    action.name: action
    for action in (
        BulkAction(
            name="run_now",
            job_lists=("scheduled",),
            label=_("Run now"),
            log_text=_("Set to run now"),
            confirm_text=ngettext_lazy("Run %(count)s job now", "Run %(count)s jobs now", "n"),
            success_text=ngettext_lazy("%(count)s job will run now", "%(count)s jobs will run now", "n"),
            change=_run_now,
            direct=True,
            undo="set_back",
        ),
        BulkAction(
            name="set_back",
            job_lists=("scheduled",),
            in_menu=False,
            is_undo=True,
            label=_("Undo"),
            log_text=_("Set back to its time"),
            confirm_text=ngettext_lazy("Set %(count)s job back", "Set %(count)s jobs back", "n"),
            success_text=ngettext_lazy(
                "%(count)s job set back to its time", "%(count)s jobs set back to their times", "n"
            ),
            change=_set_back,
            direct=True,
        ),
        BulkAction(
            name="reschedule",
            job_lists=("scheduled", "ready"),
            label=_("Reschedule…"),
            log_text=_("Rescheduled"),
            confirm_text=ngettext_lazy("Reschedule %(count)s job", "Reschedule %(count)s jobs", "n"),
            success_text=ngettext_lazy("%(count)s job rescheduled", "%(count)s jobs rescheduled", "n"),
            form_class=forms.RescheduleForm,
            change=_reschedule,
            undo="set_back",
        ),
        BulkAction(
            name="move",
            job_lists=("scheduled", "ready"),
            label=_("Move to queue…"),
            log_text=_("Moved"),
            confirm_text=ngettext_lazy("Move %(count)s job", "Move %(count)s jobs", "n"),
            success_text=ngettext_lazy("%(count)s job moved", "%(count)s jobs moved", "n"),
            form_class=forms.MoveForm,
            change=lambda operations, targets, parameters: operations.waiting_jobs.move(
                _jobs(targets), parameters["queue"]
            ),
        ),
        _CANCEL,
        replace(
            _CANCEL,
            name="cancel_all",
            job_lists=("ready",),
            in_menu=False,
            label=_("Cancel all…"),
            log_text=_("Cancelled with all ready jobs of the queue"),
            confirm_text=ngettext_lazy("Cancel %(count)s ready job", "Cancel all %(count)s ready jobs", "n"),
        ),
        replace(
            _CANCEL,
            name="cancel_tenant",
            job_lists=("ready",),
            in_menu=False,
            label=_("Cancel its jobs…"),
            log_text=_("Cancelled with all waiting jobs of its tenant"),
        ),
        BulkAction(
            name="stop",
            job_lists=("running",),
            label=_("Stop…"),
            log_text=_("Asked to stop"),
            confirm_text=ngettext_lazy("Stop %(count)s running job", "Stop %(count)s running jobs", "n"),
            success_text=ngettext_lazy("%(count)s job asked to stop", "%(count)s jobs asked to stop", "n"),
            form_class=forms.StopForm,
            change=_stop,
            destructive=True,
        ),
        BulkAction(
            name="retry",
            job_lists=("failed",),
            label=_("Retry now"),
            log_text=_("Retried"),
            confirm_text=ngettext_lazy("Retry %(count)s failed job", "Retry %(count)s failed jobs", "n"),
            success_text=_RETRIED,
            change=_retry,
            direct=True,
            undo="undo_retry",
        ),
        BulkAction(
            name="undo_retry",
            job_lists=("failed",),
            in_menu=False,
            is_undo=True,
            label=_("Undo"),
            log_text=_("Retry undone"),
            confirm_text=ngettext_lazy("Undo the retry of %(count)s job", "Undo the retry of %(count)s jobs", "n"),
            success_text=ngettext_lazy("%(count)s retry undone", "%(count)s retries undone", "n"),
            change=_undo_retry,
            direct=True,
        ),
        BulkAction(
            name="retry_later",
            job_lists=("failed",),
            label=_("Retry later…"),
            log_text=_("Retry scheduled"),
            confirm_text=ngettext_lazy("Retry %(count)s failed job later", "Retry %(count)s failed jobs later", "n"),
            success_text=ngettext_lazy("%(count)s retry scheduled", "%(count)s retries scheduled", "n"),
            form_class=forms.RetryLaterForm,
            change=_retry,
            undo="undo_retry",
        ),
        BulkAction(
            name="edit",
            job_lists=("failed",),
            in_menu=False,
            label=_("Edit arguments and retry…"),
            log_text=_("Retried with other arguments"),
            confirm_text=ngettext_lazy(
                "Retry %(count)s job with these arguments", "Retry %(count)s jobs with these arguments", "n"
            ),
            success_text=_RETRIED,
            form_class=forms.ArgumentsForm,
            change=_edit,
        ),
        BulkAction(
            name="delete",
            job_lists=("failed",),
            label=_("Delete"),
            log_text=_("Deleted"),
            confirm_text=ngettext_lazy("Delete %(count)s failed job", "Delete %(count)s failed jobs", "n"),
            success_text=ngettext_lazy("%(count)s job deleted", "%(count)s jobs deleted", "n"),
            change=lambda operations, targets, _: operations.dead_letters.discard(_jobs(targets)),
            destructive=True,
        ),
    )
}
