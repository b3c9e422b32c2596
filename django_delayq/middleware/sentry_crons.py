"""Sentry's crons: a middleware that sends a check-in for each job of a recurring schedule.

It needs the extra `sentry`. Sentry then knows which jobs did not begin, take too long, or failed.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import blake2b
from typing import Any
from uuid import NAMESPACE_OID, uuid5

from django.core.exceptions import ImproperlyConfigured

from django_delayq.clock import SECOND_US
from django_delayq.exceptions import StoreError
from django_delayq.middleware.chain import Link
from django_delayq.middleware.job import MiddlewareJob
from django_delayq.middleware.job_thread import in_job_thread
from django_delayq.recurring.cron import Cron
from django_delayq.recurring.declaration import DEFAULT_NAME
from django_delayq.recurring.rule import Every, Rule

try:
    from sentry_sdk.crons import MonitorStatus, capture_checkin
except ImportError as error:
    raise ImproperlyConfigured(
        "SentryCronsMiddleware needs the package sentry-sdk: pip install 'django-delayq[sentry]'"
    ) from error

#: Sentry cuts longer slugs, so that two might become one.
_LONGEST_SLUG = 50
_MINUTE_US = 60 * SECOND_US
#: Sentry knows no shorter unit, and counts months by the calendar.
_UNITS = (("day", 1_440 * _MINUTE_US), ("hour", 60 * _MINUTE_US), ("minute", _MINUTE_US))


class SentryCronsMiddleware:
    """Send a check-in when the first attempt of a job begins, and at the end of the last one.

    A subclass may override `slug()` and `monitor_config()`.
    """

    # Without the base class, because it reads the schedule, and an event loop must not wait for that.
    def __init__(self, next: Link) -> None:
        self.next = next

    def run(self, job: MiddlewareJob) -> Any:
        """Pass an attempt on; returns the value of the task."""
        slug = self._watched(job)
        if slug is None:
            return self.next.run(job)
        if job.attempt == 1:
            self._begin(slug, job)
        with _ending(slug, job):
            return self.next.run(job)

    async def arun(self, job: MiddlewareJob) -> Any:
        """Do what `run()` does in an event loop."""
        slug = self._watched(job)
        if slug is None:
            return await self.next.arun(job)
        if job.attempt == 1:
            await in_job_thread(self._begin)(slug, job)
        with _ending(slug, job):
            return await self.next.arun(job)

    def slug(self, job: MiddlewareJob) -> str | None:
        """Return the slug of the monitor for the schedule of a job; None if it has no monitor."""
        return slug_of(job.task, job.schedule or DEFAULT_NAME)

    def monitor_config(self, job: MiddlewareJob) -> dict[str, Any] | None:
        """Return what Sentry creates or changes the monitor by; None to leave it as it is. One round trip.

        None is also for a rule that Sentry does not know: seconds, and intervals that are no whole minutes.
        """
        schedule = job.find_schedule()
        timing = None if schedule is None else _timing(schedule.rule)
        if schedule is None or timing is None:
            return None
        config: dict[str, Any] = {"schedule": timing}
        if isinstance(schedule.rule, Cron):
            config["timezone"] = schedule.rule.zone.key
        if schedule.jitter_us:
            # One minute is Sentry's default, after which a job is missed.
            config["checkin_margin"] = 1 - -schedule.jitter_us // _MINUTE_US
        return config

    def _watched(self, job: MiddlewareJob) -> str | None:
        # A job of `run_now()` would stand for one that is missed.
        return None if job.occurrence is None else self.slug(job)

    def _begin(self, slug: str, job: MiddlewareJob) -> None:
        config = None
        # The monitor may exist, and the job runs in any case.
        with suppress(StoreError):
            config = self.monitor_config(job)
        _send(slug, job, MonitorStatus.IN_PROGRESS, config)


def slug_of(task: str, schedule: str) -> str:
    """Return the slug of a schedule: at most 50 lower-case letters, digits, hyphens and underscores.

    It ends with a digest if the names have other characters than these and dots, or are too long.
    """
    names = task if schedule == DEFAULT_NAME else f"{task}.{schedule}"
    slug = re.sub(r"[^a-z0-9_]+", "-", names.lower()).strip("-_")
    if slug == names.replace(".", "-") and len(slug) <= _LONGEST_SLUG and not slug.isdecimal():
        return slug
    digest = blake2b(f"{task}\0{schedule}".encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{slug[: _LONGEST_SLUG - 9].strip('-_') or 'schedule'}-{digest}"


def _timing(rule: Rule) -> dict[str, Any] | None:
    """Return a rule in the form of Sentry, which counts whole minutes; None for one that it does not know."""
    if isinstance(rule, Cron):
        second, *fields = rule.six_fields
        return {"type": "crontab", "value": " ".join(fields)} if second.isdecimal() else None
    assert isinstance(rule, Every)
    for unit, unit_us in _UNITS:
        if rule.interval_us % unit_us == 0:
            return {"type": "interval", "value": rule.interval_us // unit_us, "unit": unit}
    return None


@contextmanager
def _ending(slug: str, job: MiddlewareJob) -> Iterator[None]:
    """End the check-in with the attempt, unless another one follows."""
    try:
        yield
    except BaseException as error:
        if not job.will_retry(error):
            _send(slug, job, MonitorStatus.ERROR)
        raise
    _send(slug, job, MonitorStatus.OK)


def _send(slug: str, job: MiddlewareJob, status: str, config: Any = None) -> None:
    # The same id for all attempts, in whatever process each of them runs.
    check_in_id = uuid5(NAMESPACE_OID, f"django_delayq {job.id}").hex
    capture_checkin(monitor_slug=slug, check_in_id=check_in_id, status=status, monitor_config=config)
