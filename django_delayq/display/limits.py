"""Limits: their rules, and what a job waits for, in plain words."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from re import Pattern

from django.utils.translation import gettext as _

from django_delayq.conf.limit_rules import UNITS, LimitRule
from django_delayq.display.arguments import DOTS, DisplayedArguments
from django_delayq.display.text import printable
from django_delayq.job.job import Job, LimitUse
from django_delayq.store.digests import limit_name_digest
from django_delayq.store.queries.job_pages import JobRow
from django_delayq.store.queries.limits import LimitState
from django_delayq.task import registry
from django_delayq.templatetags.delayq import grouped

#: How far a rate may be from a whole number: floats are that inexact.
_INEXACT = 1e-12


def rule_text(rule: LimitRule) -> str:
    """Return `100/s, burst 20, at most 5 at a time`."""
    parts = []
    if rule.interval_us is not None:
        parts += [_rate_text(rule.interval_us), _("burst %s") % grouped(rule.burst)]
    if rule.max_running is not None:
        parts.append(_("at most %s at a time") % grouped(rule.max_running))
    return ", ".join(parts)


def with_declared_values(states: Mapping[str, LimitState]) -> dict[str, LimitState]:
    """Return the states by name, `by_value` also if only a task of this process uses the limit with values."""
    declared = (limit for task in registry.tasks() for limit in task.as_configured().limits.limits)
    by_value = {limit.name for limit in declared if limit.value is not None} if states else set()
    return {name: replace(state, by_value=state.by_value or name in by_value) for name, state in states.items()}


def limits_text(job: Job, hide: Pattern[str], *, reveal: bool = False) -> str:
    """Return the limits of a job: `reports, stripe (4711)`. Values are often arguments: hidden as the unique key is."""
    hides = any(use.value is not None for use in job.limits) and not reveal and _hides(job, hide)
    return ", ".join(_use_text(use, hides=hides) for use in job.limits)


def parked_text(row: JobRow, hide: Pattern[str], names: Iterable[str] = ()) -> str:
    """Return what a parked job waits for, as a sentence; "" if it is not parked.

    `names` are the declared limits: if the body cannot be read, they tell the name.
    """
    if not row.limit:
        return ""
    if row.task_is_paused:
        return _("its task is paused")
    if row.job is not None and (use := row.limit_use):
        return _("waits for the limit %s") % _use_text(use, hides=use.value is not None and _hides(row.job, hide))
    known = next((name for name in names if limit_name_digest(name) == row.limit[:4]), None)
    return _("waits for a limit") if known is None else _("waits for the limit %s") % printable(known)


def parked_for(row: JobRow, hide: Pattern[str]) -> str:
    """Return `JobRow.parked_for`, with hidden values replaced."""
    use = None if row.task_is_paused else row.limit_use
    if use is None or use.value is None or row.job is None or not _hides(row.job, hide):
        return row.parked_for
    return f"limit {use.name} ({DOTS})"


def _rate_text(interval_us: float) -> str:
    # The first unit in which the rate is a whole number.
    rates = [(size / interval_us, name) for name, size in UNITS.items()]
    whole = (rate for rate in rates if round(rate[0]) and abs(rate[0] - round(rate[0])) <= rate[0] * _INEXACT)
    number, name = next(whole, rates[-1])
    return f"{grouped(round(number))}/{name}"


def _use_text(use: LimitUse, *, hides: bool) -> str:
    name = printable(use.name)
    return name if use.value is None else f"{name} ({DOTS if hides else printable(use.value)})"


def _hides(job: Job, hide: Pattern[str]) -> bool:
    return registry.find(job.task) is None or DisplayedArguments.of(job, hide).hidden
