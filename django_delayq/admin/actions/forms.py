"""The form on the confirm page of each action: a time, a queue, arguments, or typed text to confirm with.

The `cleaned_data` of a valid form are the parameters of the action, as JSON values.
"""

import json
from datetime import datetime
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.text import format_lazy
from django.utils.translation import gettext_lazy as _

from django_delayq.admin.lists.filters import url_name
from django_delayq.admin.page import PageContext
from django_delayq.clock import LATEST_US, SECOND_US, moment_us
from django_delayq.display.text import printable
from django_delayq.exceptions import DelayQError
from django_delayq.store.operations.worker_control import LONGEST_GRACE_US
from django_delayq.task import registry
from django_delayq.task.arguments import check_arguments

#: A moment may be this far in the past: people need time to fill in a form.
_TOLERANCE_US = 60 * SECOND_US
_UNITS = [(1, _("seconds")), (60, _("minutes")), (3_600, _("hours")), (86_400, _("days"))]


class ActionForm(forms.Form):
    """The form of an action without parameters; it has a field only if the person must type text to confirm."""

    #: Whether the page must name the time zone.
    has_times = False
    #: The field that has the focus if none has an error; empty: nothing needs to be filled in.
    first_field = ""

    def __init__(
        self,
        data: Any = None,
        *,
        page: PageContext,
        task: str = "",
        text_to_type: str = "",
        count: int = 0,
        **options: Any,
    ) -> None:
        super().__init__(data, **options)
        self.task_config, self.now_us, self.task = page.store.config.tasks, page.now_us, task
        if text_to_type:
            self.fields["typed_confirmation"] = _TypedField(text_to_type)
            self.first_field = "typed_confirmation"

    @cached_property
    def focused_field(self) -> str:
        """Give the focus to the first field with an error, or the first to fill in, and return its name."""
        name = next((name for name in self.fields if name in self.errors), self.first_field)
        if name:
            self.fields[name].widget.attrs["autofocus"] = True
        return name


class _TypedField(forms.CharField):
    """Text that the person has to type as it is; a number may have separators."""

    def __init__(self, expected: str) -> None:
        attributes = {"autocomplete": "off", "autocapitalize": "off", "spellcheck": "false"}
        label = _("Type %s to continue") % expected
        super().__init__(label=label, required=False, widget=forms.TextInput(attrs=attributes))
        self.expected = expected

    def clean(self, value: Any) -> str:
        """Require the expected text."""
        if _without_separators(self.to_python(value) or "") != _without_separators(self.expected):
            is_number = self.expected.isdecimal()
            text = _("The number does not match.") if is_number else _("The text does not match.")
            raise ValidationError(format_lazy("{} {}", text, _("Nothing was done.")))
        return self.expected


def _without_separators(text: str) -> str:
    digits = "".join(c for c in text if c.isdecimal())
    return digits if digits and not text.strip("0123456789,.' \u00a0\u202f’") else text.strip()


def moment_field(label: Any) -> forms.DateTimeField:
    """Return a field for a moment, which may be left empty."""
    widget = forms.DateTimeInput(attrs={"type": "datetime-local", "step": "any"}, format="%Y-%m-%dT%H:%M:%S")
    return forms.DateTimeField(label=label, required=False, widget=widget)


def aware(found: datetime) -> datetime:
    """Return a moment of a form with its time zone."""
    # Naive if the project has USE_TZ = False.
    return found if timezone.is_aware(found) else timezone.make_aware(found)


class _TimeForm(ActionForm):
    """Either a moment, which becomes `due_us`, or a number of minutes or of another unit."""

    has_times = True
    first_field = "moment"
    #: The number's field and its parameter, in µs; and the error about a moment in the past.
    number_field = number_parameter = ""
    past_text: Any

    def clean(self) -> dict[str, Any]:
        """Require exactly one of the two."""
        cleaned = super().clean() or {}
        if self.errors:
            return cleaned
        moment, number = cleaned["moment"], cleaned[self.number_field]
        if (moment is None) is (number is None):
            raise ValidationError(_("Fill in one of the two."))
        try:
            if moment is None:
                seconds = number * int(cleaned.get("unit") or 60)
                self.task_config.check_time(delay=abs(seconds))
                return {self.number_parameter: seconds * SECOND_US}
            moment = aware(moment)
            self.task_config.check_time(at=moment)
        except DelayQError as error:
            raise ValidationError(str(error)) from error
        if (due_us := moment_us(moment)) < self.now_us - _TOLERANCE_US:
            raise ValidationError(self.past_text)
        return {"due_us": due_us}


class RescheduleForm(_TimeForm):
    """The new due time of jobs that wait, or a shift of it."""

    number_field, number_parameter = "shift", "shift_us"
    past_text = _("That moment is past. “Run now” makes jobs due at once.")
    moment = moment_field(_("Due at"))
    shift = forms.IntegerField(
        label=_("or earlier (−) or later (+) by"), required=False, min_value=-1_000_000, max_value=1_000_000
    )
    unit = forms.ChoiceField(label=_("Unit"), choices=_UNITS, initial=60, required=False)


class RetryLaterForm(_TimeForm):
    """When failed jobs are retried: all at one moment, or evenly over minutes."""

    number_field, number_parameter = "minutes", "spread_us"
    past_text = _("That moment is past. “Retry now” makes jobs due at once.")
    moment = moment_field(_("Retry at"))
    minutes = forms.IntegerField(label=_("or spread over (minutes)"), required=False, min_value=1, max_value=1_000_000)

    def __init__(self, data: Any = None, *, count: int = 0, **options: Any) -> None:
        super().__init__(data, **options)
        if count > 1:
            self.fields["moment"].label = _("Retry all at")
        else:
            self.fields["minutes"].label = _("or at some time within (minutes)")


class PauseForm(ActionForm):
    """Until when a queue is paused."""

    has_times = True
    until = moment_field(_("Until (leave it empty to pause until somebody resumes it)"))
    #: In µs: an undo gives the end of a pause back.
    until_us = forms.IntegerField(required=False, min_value=0, max_value=LATEST_US, widget=forms.HiddenInput)

    def clean(self) -> dict[str, Any]:
        """Require a moment that is still to come, if there is one; it becomes `until_us`."""
        cleaned = super().clean() or {}
        if self.errors or not (cleaned["until"] or cleaned["until_us"]):
            return {}
        until_us = cleaned["until_us"] or min(moment_us(aware(cleaned["until"])), LATEST_US)
        if until_us <= self.now_us:
            self.add_error("until", _("until must be later than now; to end a pause, resume the queue."))
        return {"until_us": until_us}


class StopForm(ActionForm):
    """How long the code of running jobs may run on."""

    grace_s = forms.IntegerField(
        label=_("Seconds that its code may still take"),
        min_value=0,
        max_value=LONGEST_GRACE_US // SECOND_US,
        initial=10,
        help_text=_("After that a job in a process of its own is killed. In a thread, code that does not ask runs on."),
    )


class MoveForm(ActionForm):
    """The queue that jobs move to; the person has to confirm one that does not exist and has no worker."""

    first_field = "queue"
    queue = forms.CharField(label=_("Queue"), max_length=200, widget=forms.TextInput(attrs={"list": "delayq-queues"}))

    def __init__(self, data: Any = None, *, page: PageContext, **options: Any) -> None:
        super().__init__(data, page=page, **options)
        self._page = page

    def clean_queue(self) -> str:
        """Require a valid name, and a declared one if any are declared."""
        try:
            return self.task_config.check_queue(self.cleaned_data["queue"])
        except ValueError as error:
            raise ValidationError(str(error)) from error

    def clean(self) -> dict[str, Any]:
        """Ask for a confirmation of a queue that is probably mistyped."""
        cleaned = super().clean() or {}
        if self.errors:
            return cleaned
        queue = cleaned["queue"]
        is_known = queue in self._page.snapshot.queues or queue in self.task_config.queues
        # The box is for this name alone: the next one may be mistyped, too.
        if not (is_known or self._page.workers_of(queue) or self.data.get("new_queue") == url_name(queue)):
            box = forms.CheckboxInput(attrs={"value": url_name(queue)}, check_test=lambda _: False)
            self.fields["new_queue"] = forms.BooleanField(label=_("Move to this new queue"), required=False, widget=box)
            text = _("No worker serves “%s”, and there is no such queue yet. Correct the name, or confirm it below.")
            self.add_error("queue", text % printable(queue))
        return {"queue": queue}


class ArgumentsField(forms.CharField):
    """JSON of one type; `forms.JSONField` fails on deep nesting and takes NaN."""

    widget = forms.Textarea(attrs={"rows": 6})

    def __init__(self, json_type: type, **options: Any) -> None:
        super().__init__(**options)
        self.json_type = json_type

    def clean(self, value: Any) -> Any:
        """Return the list or dict."""
        text = super().clean(value)
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise ValidationError(_("This is not JSON: %s") % error) from error
        if type(found) is not self.json_type:
            text = _("This must be a list, [ … ].") if self.json_type is list else _("This must be an object, { … }.")
            raise ValidationError(text)
        return found


class ArgumentsForm(ActionForm):
    """Other arguments for one job."""

    first_field = "args"
    args = ArgumentsField(list, label=_("Positional arguments (a JSON list)"))
    kwargs = ArgumentsField(dict, label=_("Named arguments (a JSON object)"))

    def clean(self) -> dict[str, Any]:
        """Check the arguments against the function's signature, if this process knows the task."""
        cleaned = super().clean() or {}
        if self.errors:
            return cleaned
        task = registry.find(self.task)
        try:
            check_arguments(cleaned["args"], cleaned["kwargs"], show_keys=True)
            if task is not None:
                task.signature.bind(*cleaned["args"], **cleaned["kwargs"])
        except DelayQError as error:
            raise ValidationError(str(error)) from error
        except TypeError as error:
            raise ValidationError(_("These arguments do not fit the function: %s") % error) from error
        return cleaned
