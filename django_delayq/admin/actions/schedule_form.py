"""The form of a recurring schedule that was made at run time: its rule, and what its jobs do."""

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from django import forms
from django.core.exceptions import ImproperlyConfigured, ValidationError
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from django_delayq.admin.actions.forms import ActionForm, aware, moment_field
from django_delayq.admin.page import PageContext
from django_delayq.clock import moment
from django_delayq.conf.settings import default_time_zone
from django_delayq.display.schedules import CATCH_UPS, OVERLAPS, rule_text
from django_delayq.display.text import printable, read_span, write_span
from django_delayq.exceptions import DelayQError
from django_delayq.recurring.cron import Cron
from django_delayq.recurring.rule import Every
from django_delayq.recurring.schedule import Schedule, make_schedule
from django_delayq.store.schedules.definition import Definition
from django_delayq.store.schedules.stored_schedule import StoredSchedule

#: An error begins with the option that it is about.
_OPTION = re.compile(r"every|cron|tz|jitter|overlap|catch_up|window|end|pause_after")


class SpanField(forms.CharField):
    """A span such as 10m or 1h30m, as in the options of commands; it becomes seconds."""

    def __init__(self, label: Any, **options: Any) -> None:
        super().__init__(label=label, required=False, max_length=100, **options)

    def clean(self, value: Any) -> Any:
        """Return the seconds, None if the field is empty."""
        text = "".join(super().clean(value).split())
        try:
            seconds = read_span(text).total_seconds() if text else None
        except ValueError as error:
            raise ValidationError(str(error)) from error
        # Errors about it quote it.
        return int(seconds) if seconds is not None and seconds.is_integer() else seconds


class ScheduleForm(ActionForm):
    """Another rule and other options for one schedule. `definition` is valid if the form is."""

    has_times = True
    first_field = "every"
    #: The version that the person saw.
    version = forms.IntegerField(widget=forms.HiddenInput)
    every = SpanField(_("Every"), help_text=_("An interval such as 5m, 1h30m or 1d. Fill in this or the cron fields."))
    cron = forms.CharField(
        label=_("or cron fields"),
        required=False,
        max_length=500,
        help_text=_("minute hour day-of-month month day-of-week, or six fields with the seconds first"),
    )
    tz = forms.CharField(label=_("Time zone"), required=False, max_length=100, help_text=_("of the cron fields"))
    end = moment_field(_("End"))
    jitter = SpanField(_("Jitter"), help_text=_("Each job is due up to that much later, always by the same time."))
    overlap = forms.ChoiceField(label=_("Overlap"), choices=list(OVERLAPS.items()))
    catch_up = forms.ChoiceField(label=_("Catch up"), choices=list(CATCH_UPS.items()))
    window = SpanField(_("Window"), help_text=_("for “none” how late a job may begin, for “all” how far to look back"))
    pause_after = forms.IntegerField(
        label=_("Pause after failures in a row"), required=False, min_value=1, max_value=255
    )

    definition: Definition

    def __init__(self, data: Any = None, *, page: PageContext, stored: StoredSchedule, **options: Any) -> None:
        assert stored.definition is not None
        self._old, self._version = stored.definition, stored.record.version
        initial = {**_initial(self._old.schedule), "version": self._version}
        super().__init__(data, page=page, initial=initial, **options)

    def clean(self) -> dict[str, Any]:
        """Make the schedule; each error of it is shown at the field that it names."""
        cleaned = super().clean() or {}
        if self.errors:
            return cleaned
        if cleaned["version"] != self._version:
            raise ValidationError(
                _("The schedule was changed meanwhile. Nothing was done. Go back to see how it is now.")
            )
        old = self._old.schedule
        given = {name: None if cleaned[name] == "" else cleaned[name] for name in ("every", "cron", "tz")}
        if given["cron"] and not given["tz"]:
            given["tz"] = default_time_zone()
        try:
            schedule = make_schedule(
                old.name,
                now_us=self.now_us,
                start=None if old.start_us is None else moment(old.start_us),
                end=aware(cleaned["end"]) if cleaned["end"] else None,
                **given,
                **{name: cleaned[name] for name in ("jitter", "overlap", "catch_up", "window", "pause_after")},
            )
        except (DelayQError, ImproperlyConfigured) as error:
            found = _OPTION.match(str(error))
            self.add_error(found[0] if found else None, printable(str(error)))
            return cleaned
        self.definition = replace(self._old, schedule=schedule)
        return cleaned

    @property
    def change_text(self) -> str:
        """What differs, for the audit log: "every 5 min → every 10 min, overlap skip → wait"."""
        return ", ".join(_differences(self._old.schedule, self.definition.schedule))


def _initial(schedule: Schedule) -> dict[str, Any]:
    """Return the fields of a schedule as it is."""
    rule = schedule.rule
    return {
        "every": write_span(rule.interval_us) if isinstance(rule, Every) else "",
        "cron": rule.fields if isinstance(rule, Cron) else "",
        "tz": rule.zone.key if isinstance(rule, Cron) else "",
        "end": None if schedule.end_us is None else moment(schedule.end_us),
        "jitter": write_span(schedule.jitter_us) if schedule.jitter_us else "",
        "overlap": schedule.overlap,
        "catch_up": schedule.catch_up,
        "window": "" if schedule.window_us is None else write_span(schedule.window_us),
        "pause_after": schedule.pause_after,
    }


def _differences(old: Schedule, new: Schedule) -> Iterator[str]:
    if old.rule != new.rule:
        yield f"{rule_text(old.rule)} → {rule_text(new.rule)}"
    before, after = _initial(old), _initial(new)
    for name in ("end", "jitter", "overlap", "catch_up", "window", "pause_after"):
        if before[name] != after[name]:
            texts = [gettext("none") if each[name] in ("", None) else str(each[name]) for each in (before, after)]
            yield f"{name} {' → '.join(texts)}"
