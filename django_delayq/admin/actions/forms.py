"""Wishes: what a deed has to be told besides the jobs, as a form on its confirm page: a moment, a queue, arguments."""

from abc import abstractmethod
from typing import Any

from django import forms
from django.core.exceptions import ValidationError
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from django_delayq.admin.arguments import read_arguments
from django_delayq.admin.page import PageContext
from django_delayq.clock import SECOND_US, moment_us
from django_delayq.exceptions import DelayQError
from django_delayq.task import registry
from django_delayq.task.arguments import check_arguments

#: Less is what it takes to fill in a form.
_MINUTE_US = 60 * SECOND_US
_UNITS = [(1, _("seconds")), (60, _("minutes")), (3_600, _("hours")), (86_400, _("days"))]


class ActionForm(forms.Form):
    """A form that knows who asks, and of which task where that matters."""

    #: What it means, as JSON can carry it; once it is valid.
    parameters: dict[str, Any]

    def __init__(self, *args: Any, visit: PageContext, task: str = "", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.limits = visit.store.config.tasks
        self.now_us, self.task = visit.now_us, task


def _moment_field(label: Any) -> forms.DateTimeField:
    widget = forms.DateTimeInput(attrs={"type": "datetime-local", "step": "any"}, format="%Y-%m-%dT%H:%M:%S")
    return forms.DateTimeField(label=label, required=False, widget=widget)


class _TimeForm(ActionForm):
    """A moment, or a number that says something else about time."""

    #: The name of that number; what is said of a moment that is past.
    other = ""
    is_past: Any

    def clean(self) -> dict[str, Any]:
        """Take exactly one of the two."""
        cleaned = super().clean() or {}
        if self.errors:
            return cleaned
        moment, number = cleaned.get("moment"), cleaned.get(self.other)
        if (moment is None) is (number is None):
            raise ValidationError(_("Fill in one of the two."))
        try:
            if moment is None:
                self.parameters = self.of_number(cleaned)
                self.limits.check_time(delay=abs(next(iter(self.parameters.values()))) / SECOND_US)
            else:
                # Naive where the project has no time zones.
                moment = moment if timezone.is_aware(moment) else timezone.make_aware(moment)
                self.limits.check_time(at=moment)
                self.parameters = {"due_us": moment_us(moment)}
                if self.parameters["due_us"] < self.now_us - _MINUTE_US:
                    raise ValidationError(self.is_past)
        except DelayQError as error:
            raise ValidationError(str(error)) from error
        return cleaned

    @abstractmethod
    def of_number(self, cleaned: dict[str, Any]) -> dict[str, Any]:
        """Return what the number means."""


class RescheduleForm(_TimeForm):
    """When jobs that wait shall be due."""

    other = "shift"
    is_past = _("That moment is past. “Run now” makes tasks due at once.")
    moment = _moment_field(_("Due at"))
    shift = forms.IntegerField(
        label=_("or earlier (−) or later (+) by"), required=False, min_value=-1_000_000, max_value=1_000_000
    )
    unit = forms.ChoiceField(label=_("Unit"), choices=_UNITS, initial=60, required=False)

    def of_number(self, cleaned: dict[str, Any]) -> dict[str, Any]:
        """Return the shift."""
        return {"shift_us": cleaned["shift"] * int(cleaned["unit"] or 60) * SECOND_US}


class RetryLaterForm(_TimeForm):
    """When dead letters shall be tried again."""

    other = "minutes"
    is_past = _("That moment is past. “Retry now” makes tasks due at once.")
    moment = _moment_field(_("Retry all at"))
    minutes = forms.IntegerField(label=_("or spread over (minutes)"), required=False, min_value=1, max_value=1_000_000)

    def of_number(self, cleaned: dict[str, Any]) -> dict[str, Any]:
        """Return the span to spread them over."""
        return {"spread_us": cleaned["minutes"] * 60 * SECOND_US}


class MoveForm(ActionForm):
    """The queue that jobs shall wait in."""

    queue = forms.CharField(label=_("Queue"), max_length=200, widget=forms.TextInput(attrs={"list": "delayq-queues"}))

    def clean_queue(self) -> str:
        """Take a legal name of a declared queue."""
        try:
            queue = self.limits.check_queue(self.cleaned_data["queue"])
        except ValueError as error:
            raise ValidationError(str(error)) from error
        self.parameters = {"queue": queue}
        return queue


class ArgumentsForm(ActionForm):
    """Other arguments for one job."""

    args = forms.CharField(label=_("Positional arguments (a JSON list)"), widget=forms.Textarea(attrs={"rows": 6}))
    kwargs = forms.CharField(label=_("Named arguments (a JSON object)"), widget=forms.Textarea(attrs={"rows": 6}))

    def clean_args(self) -> Any:
        """Take a list."""
        return self._read("args", list)

    def clean_kwargs(self) -> Any:
        """Take an object."""
        return self._read("kwargs", dict)

    def clean(self) -> dict[str, Any]:
        """Take what fits the function, where it is known here."""
        cleaned = super().clean() or {}
        if self.errors:
            return cleaned
        args, kwargs, task = cleaned["args"], cleaned["kwargs"], registry.find(self.task)
        try:
            check_arguments(args, kwargs, show_keys=True)
            if task is not None:
                task.signature.bind(*args, **kwargs)
        except DelayQError as error:
            raise ValidationError(str(error)) from error
        except TypeError as error:
            raise ValidationError(_("These arguments do not fit the function: %s") % error) from error
        self.parameters = {name: self.data.get(name, "") for name in ("args", "kwargs")}
        return cleaned

    def _read(self, name: str, kind: type) -> Any:
        try:
            return read_arguments(self.cleaned_data[name], kind)
        except DelayQError as error:
            raise ValidationError(str(error)) from error
